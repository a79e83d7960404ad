"""The live page as a person has it: the real server, a real browser, and stand-ins for searches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException, WebDriverException
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from ui_site import TOKEN, Site, begin_run, individual, is_alive, make_run, make_suite, row, site, wait_for

from cupilot.report import run_report


def is_gone(error: WebDriverException) -> bool:
    """Chrome has three ways to say that an element is no longer there."""
    known = isinstance(error, NoSuchElementException | StaleElementReferenceException)
    return known or "does not belong to the document" in str(error)


class Person:
    """Somebody in front of the browser."""

    def __init__(self, chrome: Chrome, found: Site, pictures: Path) -> None:
        self.chrome = chrome
        self.site = found
        self.pictures = pictures

    def open(self, path: str) -> None:
        self.chrome.get(self.site.address + path)

    def one(self, selector: str) -> WebElement:
        return self.chrome.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.chrome.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str = "main") -> str:
        try:
            return " ".join(self.one(selector).text.replace("\u202f", " ").split())
        except WebDriverException as error:
            if is_gone(error):  # between two pages, or replaced meanwhile
                return ""
            raise

    def sees(self, text: str, selector: str = "main") -> None:
        wait_for(lambda: text in self.text(selector))

    def waits_for_events(self) -> None:
        wait_for(lambda: self.one("main").get_attribute("data-live") == "yes")

    def takes_picture(self, name: str) -> None:
        assert self.chrome.save_screenshot(str(self.pictures / f"{name}.png"))

    def complaints(self) -> list[str]:
        """Errors and warnings of the browser, but for those that say that the test's server has ended."""
        found = [
            entry["message"] for entry in self.chrome.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
        ]
        return [text for text in found if "net::ERR_CONNECTION_REFUSED" not in text]


Visit = Callable[[Site], Person]


@pytest.fixture
def visit(chrome: Chrome, pictures: Path) -> Iterator[Visit]:
    """Whatever a test does, the browser has nothing to complain about."""
    people: list[Person] = []

    def enter(found: Site) -> Person:
        chrome.get_log("browser")
        chrome.set_window_size(1200, 900)
        people.append(Person(chrome, found, pictures))
        return people[-1]

    yield enter
    complaints = [text for person in people for text in person.complaints()]
    chrome.get("about:blank")
    assert complaints == []


def test_runs_are_listed_and_a_run_is_followed(tmp_path: Path, visit: Visit) -> None:
    make_run(tmp_path / "relu-1")
    with closing(begin_run(tmp_path / "relu-2", (8e-6,))) as store, site(tmp_path, report=run_report) as found:
        person = visit(found)
        person.open("/")
        person.waits_for_events()
        assert [row.text for row in person.all("#rows th")] == ["relu-2", "relu-1"]
        assert "running" in person.text('tr[data-run="relu-2"]')
        assert "8.00 µs modelled" in person.text('tr[data-run="relu-2"]')
        person.one('tr[data-run="relu-1"] input').click()
        store.add(individual(1, 6e-6))
        person.sees("6.00 µs modelled", 'tr[data-run="relu-2"]')
        assert person.one('tr[data-run="relu-1"] input').is_selected(), "news does not undo what was chosen"
        person.takes_picture("list")

        person.one('tr[data-run="relu-2"] a').click()
        person.sees("6.00 µs modelled", "#header")
        person.waits_for_events()
        person.takes_picture("run-before")
        store.add(individual(2, 3e-6, generation=1))
        person.sees("3.00 µs modelled", "#header")
        assert "1 of 2" in person.text("#header")
        person.sees("1 individual is newer")
        person.takes_picture("run-after")
        person.one("#refresh").click()
        wait_for(lambda: not person.one("#refresh").is_displayed())
        assert person.text("#announce") or person.one("#announce").get_attribute("textContent") == (
            "running, best 3.00\u202fµs, modelled"
        )
    person.sees("The server does not answer", "#line")
    assert [text for text in person.complaints() if "ERR_" not in text] == [], "but that nobody answers any more"


def test_the_report_is_shown_and_cannot_reach_the_page(tmp_path: Path, visit: Visit) -> None:
    make_run(tmp_path / "run")

    def report(folder: Path) -> str:
        return """<!doctype html><title>r</title><p id="p">plain</p><script>
            document.getElementById("p").textContent = "own scripts run";
            try { parent.document.title; } catch (error) { document.getElementById("p").textContent += ", kept in"; }
            </script>"""

    with site(tmp_path, report=report) as found:
        person = visit(found)
        person.open("/run/run")
        person.chrome.switch_to.frame("report")
        person.sees("own scripts run, kept in", "#p")
        person.chrome.switch_to.default_content()


@pytest.mark.parametrize("width", [390, 1200])
def test_a_real_report_fits(tmp_path: Path, visit: Visit, width: int) -> None:
    make_run(tmp_path / "run")
    with site(tmp_path, report=run_report) as found:
        person = visit(found)
        person.chrome.set_window_size(width, 850)
        person.open("/run/run")
        person.waits_for_events()
        person.chrome.switch_to.frame("report")
        wait_for(lambda: person.chrome.execute_script("return document.readyState") == "complete")
        assert "relu" in person.text("body")
        person.chrome.switch_to.default_content()
        fits(person)
        person.takes_picture(f"report-{width}")


def test_a_benchmark_is_listed_followed_and_its_runs_are_reached(tmp_path: Path, visit: Visit) -> None:
    make_suite(tmp_path / "level1", row(1))
    with site(tmp_path, report=run_report) as found:
        person = visit(found)
        person.open("/")
        person.waits_for_events()
        person.sees("level1 1 of 1 2.00× modelled, recorded", "#suites")
        make_suite(tmp_path / "level1", row(1), row(2, None))
        person.sees("level1 1 of 2", "#suites")
        person.takes_picture("benchmarks")

        person.one("#suites a").click()
        person.sees("1 of 2 problems", "#header")
        person.waits_for_events()
        person.chrome.switch_to.frame("report")
        person.sees("2_relu", "#problems")
        wait_for(lambda: person.all("#chart svg"))
        person.chrome.switch_to.default_content()
        person.one("#runs summary").click()
        make_suite(tmp_path / "level1", row(1), row(2, None), row(3, 4.0))
        person.sees("1 problem is newer")
        assert "level1/runs/1_relu" in person.text("#runs"), "news does not close what was opened"
        person.takes_picture("benchmark")
        person.one("#refresh").click()
        person.chrome.switch_to.frame("report")
        person.sees("3_relu", "#problems")
        person.chrome.switch_to.default_content()
        person.one("#runs a[href='/run/level1/runs/1_relu']").click()
        person.sees("level1/runs/1_relu", "h1")


def fits(person: Person) -> None:
    script = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert person.chrome.execute_script(script), "nothing is wider than the window"


def test_a_run_is_started_stopped_and_resumed(tmp_path: Path, visit: Visit) -> None:
    with site(tmp_path) as found:
        person = visit(found)
        person.open("/")
        person.sees("No runs yet")
        person.one("nav a[href='/new']").click()
        person.one("[name=name]").send_keys("my_relu")
        person.one("[name=text]").send_keys("# a task of mine\n")
        population = person.one("[name=population]")
        population.clear()
        population.send_keys("5")
        person.takes_picture("new")
        person.one("#new button").click()
        person.sees("running", "#header")
        assert person.chrome.current_url == f"{found.address}/run/my_relu-1"
        assert (tmp_path / "tasks" / "my_relu.py").read_text() == "# a task of mine\n"
        person.sees("5.00 µs modelled", "#header")
        said = (tmp_path / "my_relu-1" / "ui.log").read_text()
        assert "--population 5 --generations 4" in said
        pid = int(said.split()[1])

        person.chrome.refresh()
        person.sees("keeps the best, and can be resumed")
        assert is_alive(pid), "a reload changes nothing"
        person.one("#stop").send_keys(Keys.ENTER)
        person.sees("stopped interrupted by the user", "#header")
        wait_for(lambda: not is_alive(pid))
        person.takes_picture("stopped")

        person.one("#resume").click()
        person.sees("running", "#header")
        person.sees("Individuals 2", "#header")
        pid = int((tmp_path / "my_relu-1" / "ui.log").read_text().split("stand-in ")[-1].split()[0])
        assert is_alive(pid)
    wait_for(lambda: not is_alive(pid))
    person.complaints()  # the server has ended, which the browser says


def test_a_run_that_cannot_start_says_why(tmp_path: Path, visit: Visit) -> None:
    (tmp_path / "bad.py").write_text("# fails\n")
    with site(tmp_path) as found:
        person = visit(found)
        person.open("/new")
        assert person.one("[name=file]").get_attribute("value") == "bad.py"
        person.one("#new button").click()
        person.sees("cupilot: the task is not in KernelBench form", "#header")
        assert person.all("#resume") == []
        person.one("#header .actions a").click()
        person.sees("the task is not in KernelBench form", "body")
        complaints = person.complaints()
        assert all("/report/bad-1" in text and "404" in text for text in complaints), complaints


def test_a_file_fills_in_the_form(tmp_path: Path, visit: Visit) -> None:
    mine = tmp_path / "my task.py"
    mine.write_text("x = 'ä'\n", encoding="utf-8")
    (tmp_path / "runs").mkdir()
    with site(tmp_path / "runs") as found:
        person = visit(found)
        person.open("/new")
        person.one("#pick input").send_keys(str(mine))
        wait_for(lambda: person.one("[name=text]").get_attribute("value") == "x = 'ä'\n")
        assert person.one("[name=name]").get_attribute("value") == "my-task"
        assert person.one("[value=text]").is_selected()


def test_two_runs_are_compared(tmp_path: Path, visit: Visit) -> None:
    make_run(tmp_path / "relu-1")
    make_run(tmp_path / "relu-2", (8e-6, 2e-6), stopped="interrupted")
    with site(tmp_path) as found:
        person = visit(found)
        person.open("/")
        for box in person.all("#rows input"):
            box.click()
        person.one("#list button").click()
        person.sees("The best kernel of relu-2 is 2.00× as fast as the other (modelled).")
        assert "dram 3.00 µs 1.50 µs" in person.text() or "dram 1.50 µs 3.00 µs" in person.text()
        assert {link.text for link in person.all("a[href^='/report/']")} == {"Report of relu-1", "Report of relu-2"}
        fits(person)
        person.takes_picture("compare")
        person.chrome.set_window_size(390, 850)
        fits(person)
        person.takes_picture("compare-phone")
        person.one("a[href='/report/relu-2']").click()
        person.sees("report of relu-2", "body")


@pytest.mark.parametrize(
    "path", ["/", "/run/relu-1", "/suite/relu-1-suite", "/new", "/compare?run=relu-1&run=a-longer-name-of-a-run"]
)
def test_pages_fit_a_phone_and_are_dark_where_asked(tmp_path: Path, visit: Visit, path: str) -> None:
    make_run(tmp_path / "relu-1")
    make_run(tmp_path / "a-longer-name-of-a-run", (8e-6,), stopped="")
    make_suite(tmp_path / "relu-1-suite", row(1))
    with site(tmp_path) as found:
        person = visit(found)
        person.chrome.set_window_size(390, 850)
        person.open(path)
        person.sees("New run" if path == "/new" else "relu-1")
        fits(person)
        name = path.split("?", maxsplit=1)[0].strip("/").replace("/", "-") or "list"
        for scheme in ("dark", "light"):
            media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            person.chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            red = int(re.findall(r"\d+", person.one("body").value_of_css_property("background-color"))[0])
            assert (red < 64) == (scheme == "dark")
            person.takes_picture(f"phone-{scheme}-{name}")
        person.chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_list_can_be_used_by_keyboard(tmp_path: Path, visit: Visit) -> None:
    make_run(tmp_path / "relu-1")
    with closing(begin_run(tmp_path / "relu-2", (8e-6,))) as store, site(tmp_path) as found:
        person = visit(found)
        person.open("/")
        person.waits_for_events()
        link = person.one('tr[data-run="relu-2"] a')
        for _ in range(20):
            person.chrome.switch_to.active_element.send_keys(Keys.TAB)
            if person.chrome.switch_to.active_element == link:
                break
        assert person.chrome.switch_to.active_element == link
        store.add(individual(1, 6e-6))
        person.sees("6.00 µs", 'tr[data-run="relu-2"]')
        assert person.chrome.switch_to.active_element.text == "relu-2", "news does not take the focus away"
        person.chrome.switch_to.active_element.send_keys(Keys.ENTER)
        person.sees("Report")
        assert person.chrome.current_url.endswith("/run/relu-2")


def test_a_browser_gets_in_with_the_token_and_the_report_with_it(tmp_path: Path, visit: Visit) -> None:
    make_run(tmp_path / "run")
    with site(tmp_path, token=TOKEN) as found:
        person = visit(found)
        person.open("/")
        assert person.chrome.current_url.endswith("/login")
        person.takes_picture("login")
        person.one("[name=token]").send_keys(TOKEN + Keys.ENTER)
        person.sees("run")
        wait_for(lambda: person.chrome.current_url == f"{found.address}/")
        person.open("/run/run")
        person.waits_for_events()
        person.chrome.switch_to.frame("report")
        person.sees("report of run", "body")
        person.chrome.switch_to.default_content()
        person.chrome.delete_all_cookies()


def test_another_site_cannot_stop_a_run(tmp_path: Path, visit: Visit) -> None:
    """A page of another origin sends the form that ours would send, secret and all."""
    make_run(tmp_path / "mine" / "run", stopped="interrupted")
    make_run(tmp_path / "theirs" / "run")
    with site(tmp_path / "mine") as found:
        secret = found.server.access.form_secret
        form = (
            f'<form method="post" action="{found.address}/resume/run">'
            f'<input name="form_secret" value="{secret}"><button>x</button></form>'
        )
        page = f"data:text/html,{form.replace('#', '%23')}"
        person = visit(found)
        person.chrome.get(page)
        person.one("button").click()
        person.sees("requests from other sites are not allowed", "body")
        assert not (tmp_path / "mine" / "run" / "ui.log").exists()
        person.complaints()  # the refusal is in the browser's log
