"""The pages in Chromium, opened from disk: what a person does with them, and that nothing else happens."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from made_runs import write_hostile_run, write_run
from made_suite import write_suite
from selenium.webdriver import ActionChains, Chrome, ChromeOptions, Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from cupilot.report import run_report, suite_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="chromium and chromedriver are not installed"
)

DEADLINE_S = 30
SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
DOT = "path[tabindex][aria-label^='individual']"


class Browser:
    """Chromium with what the tests ask of it."""

    def __init__(self, profile: Path, shots: Path) -> None:
        options = ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for switch in (*SWITCHES, f"--user-data-dir={profile}"):
            options.add_argument(switch)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = Chrome(options=options, service=Service(str(DRIVER)))
        self.driver.get("about:blank")  # the browser's own first page goes on loading for a while on a busy machine
        self.shots = shots

    def open(self, path: Path, *, width: int = 1200, dark: bool = False) -> None:
        """Show a file and wait for its charts."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get(path.as_uri())
        self.until(lambda: self.script("return document.documentElement.dataset.drawn") == "yes")

    def script(self, text: str, *arguments: object) -> Any:
        return self.driver.execute_script(text, *arguments)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def until(self, holds: Callable[[], object]) -> None:
        WebDriverWait(self.driver, DEADLINE_S, poll_frequency=0.05).until(lambda driver: holds())

    def complaints(self) -> list[str]:
        """What the console says since it was asked last; warnings count."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    def requests(self) -> set[str]:
        """Addresses asked for since the last question, files on disk left out."""
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        asked = {e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"}
        return {url for url in asked if not url.startswith(("file:", "data:"))}

    def keep(self, name: str) -> None:
        self.driver.save_screenshot(str(self.shots / f"{name}.png"))


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"), tmp_path_factory.mktemp("screenshots"))
    yield browser
    browser.driver.quit()


@pytest.fixture
def browser(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Browser]:
    """Nothing may be asked of any server, nor complained about, in any of these tests."""
    chromium.requests(), chromium.complaints()
    yield chromium
    chromium.keep(request.node.name)
    assert chromium.requests() == set()
    assert chromium.complaints() == []


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    texts = {
        "run": run_report(write_run(folder / "relu-1")),
        "begun": run_report(write_run(folder / "relu-2", (), finished=False)),
        "hostile": run_report(write_hostile_run(folder / "hostile")),
        "suite": suite_report(write_suite(folder)),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


def overflow(browser: Browser) -> int:
    return int(browser.script("return document.documentElement.scrollWidth - innerWidth"))


def test_hovering_a_dot_shows_what_it_is(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["run"])
    dots = browser.all(f"#roofline-plot {DOT}")
    assert len(dots) == 5
    best = next(dot for dot in dots if "individual 5," in str(dot.get_attribute("aria-label")))
    browser.script("arguments[0].scrollIntoView({block: 'center'})", best)
    ActionChains(browser.driver).move_to_element(best).perform()
    browser.until(lambda: browser.one("#tip").is_displayed())
    text = browser.one("#tip").text
    assert "5 (best)" in text
    assert "cross of 1 and 3" in text
    assert "0.125 flop per byte of DRAM" in text
    assert "unroll(factor=2) + vector-load(bytes=16)" in text


def test_dots_are_reached_by_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["run"])
    dot = browser.one(f"#convergence-plot {DOT}")
    browser.script("arguments[0].focus()", dot)
    browser.until(lambda: browser.one("#tip").is_displayed())
    label = str(dot.get_attribute("aria-label"))
    number = label.split()[1].strip(",")
    dot.send_keys(Keys.ENTER)
    browser.until(lambda: browser.one(f"#individual-{number}").get_attribute("open"))
    assert not browser.one("#tip").is_displayed()


def test_another_level_moves_the_dots(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["run"])
    place = "return document.querySelector(arguments[0]).getAttribute('transform')"
    before = browser.script(place, f"#roofline-plot {DOT}")
    Select(browser.one("#roofline-plot select")).select_by_visible_text("L2")
    browser.until(lambda: browser.script(place, f"#roofline-plot {DOT}") != before)


def test_a_node_expands_and_leads_to_the_diff(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["run"])
    node = browser.one("#individual-5")
    summary = node.find_element(By.CSS_SELECTOR, "summary")
    body = node.find_element(By.CSS_SELECTOR, ".body")
    assert not body.is_displayed()
    summary.send_keys(Keys.SPACE)
    browser.until(body.is_displayed)
    assert "added unroll(factor=2)" in " ".join(str(body.get_attribute("textContent")).split()).replace(
        "+added", "added"
    )
    browser.one("#individual-5 [data-left='1']").click()
    assert Select(browser.one("#diff-left")).first_selected_option.get_attribute("value") == "1"
    assert Select(browser.one("#diff-right")).first_selected_option.get_attribute("value") == "5"


def test_the_drawing_leads_to_the_individual(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["run"])
    browser.one(".tree a[href='#individual-2']").send_keys(Keys.ENTER)
    browser.until(lambda: browser.one("#individual-2").get_attribute("open"))
    assert "element 7 is 1.5" in browser.one("#individual-2").text


def test_two_kernels_side_by_side(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["run"])
    Select(browser.one("#diff-left")).select_by_value("0")
    Select(browser.one("#diff-right")).select_by_value("6")
    assert browser.one("#diff-state").text == "1 lines gone, 1 come."
    assert browser.one(".diff .removed.text").text == "  if (i < n  /* 0 */) {"
    assert browser.one(".diff .added.text").text == "  if (i < n  /* 6 */) {"
    costs = [cell.text for cell in browser.all(".diff .l.cost") if cell.text.endswith("%")]
    assert len(costs) == 2, "two lines of the kernel cost something"
    Select(browser.one("#diff-right")).select_by_value("0")
    assert browser.one("#diff-state").text == "The two are the same."
    shown = [int(cell.text) for cell in browser.all(".diff .l.no")[1:]]
    assert shown == [4], "the line that costs most is shown though nothing changed"
    for gap in browser.all(".diff .gap button"):
        assert "equal lines" in gap.text
        gap.click()
    assert len(browser.all(".diff .row")) == 1 + 6


def test_the_table_sorts_and_filters(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["suite"])

    def column(number: int) -> list[str]:
        return [row.text for row in browser.all(f"#problem-table tbody tr:not([hidden]) > :nth-child({number})")]

    assert column(1) == ["1", "2", "3", "10"]
    speedup = next(b for b in browser.all("#problem-table button.sort") if b.text.startswith("speed-up"))
    speedup.send_keys(Keys.ENTER)
    assert column(1) == ["2", "1", "10", "3"], "ascending, what is not known last"
    speedup.click()
    assert column(1) == ["10", "1", "2", "3"]
    head = speedup.find_element(By.XPATH, "..")
    assert head.get_attribute("aria-sort") == "descending"
    Select(browser.one("#category")).select_by_visible_text("loss")
    assert column(1) == ["2"]
    assert browser.one("#shown").text == "1 of 4 shown"


@pytest.mark.parametrize("name", ["run", "begun", "suite", "hostile"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling(browser: Browser, pages: dict[str, Path], name: str, dark: bool) -> None:
    browser.open(pages[name], width=360, dark=dark)
    assert overflow(browser) <= 0
    browser.script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert overflow(browser) <= 0


def test_dark_and_light_have_their_own_colours(browser: Browser, pages: dict[str, Path]) -> None:
    colours = []
    for dark in (False, True):
        browser.open(pages["run"], dark=dark)
        roof = "return document.querySelector('#roofline-plot .mark-line path').getAttribute('stroke')"
        colours.append((browser.script("return getComputedStyle(document.body).backgroundColor"), browser.script(roof)))
    assert colours == [("rgb(255, 255, 255)", "#1f2328"), ("rgb(13, 17, 23)", "#e6edf3")]


def test_hostile_texts_do_nothing(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile"])
    browser.script("for (const d of document.querySelectorAll('details')) d.open = true")
    browser.script("document.querySelector(arguments[0]).focus()", f"#roofline-plot {DOT}")
    browser.until(lambda: browser.one("#tip").is_displayed())
    assert browser.script("return globalThis.hacked") is None
    assert browser.all("img") == []
    assert browser.script("return document.getElementById('diff-view').textContent.includes('⟨U+202E⟩')")


def test_the_focus_is_visible_and_goes_from_top_to_bottom(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["run"])
    parts = []
    for _ in range(40):
        ActionChains(browser.driver).send_keys(Keys.TAB).perform()
        part, seen = browser.script(
            "const e = document.activeElement, s = getComputedStyle(e);"
            "const p = [...document.querySelectorAll('nav, section')];"
            "const drawn = [e, ...e.children].filter((x) => x.matches('path, circle, rect'));"
            "return [p.indexOf(e.closest('nav, section')), s.outlineStyle !== 'none'"
            " || drawn.some((x) => parseFloat(getComputedStyle(x).strokeWidth) >= 3)]"
        )
        assert seen
        parts.append(part)
    assert parts == sorted(parts)
    assert set(parts) >= {-1, 0, 1, 2}, "the link to the content, navigation, summary, charts"
