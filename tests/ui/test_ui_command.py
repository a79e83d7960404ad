"""``cupilot ui`` as it is typed: what it says, what it refuses, and how it ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from ui_site import TOKEN, begin_run, field, is_alive, make_run, wait_for

from cupilot.cli import main
from cupilot.evolution.progress import WHY
from cupilot.ui.process_manager import tail
from cupilot.ui.runs import RunsFolder, RunSummary

ROOT = Path(__file__).parents[2]


class Command:
    """The program as a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.said = folder.parent / "said"
        with self.said.open("w") as file:
            self.process = subprocess.Popen(
                (sys.executable, "-m", "cupilot", "ui", str(folder), "--port", "0", *options),
                stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        wait_for(lambda: "Ctrl-C ends it" in self.text or self.process.poll() is not None, 60)
        found = re.search(r"http://\S+/", self.text)
        assert found is not None, self.text
        self.address = found[0]

    @property
    def text(self) -> str:
        return self.said.read_text()

    def get(self, path: str) -> str:
        with urlopen(self.address + path, timeout=20) as answer:
            return str(answer.read().decode())

    def post(self, path: str, **fields: str) -> str:
        form = {"form_secret": field(self.get("new"), "form_secret")} | fields
        headers = {"origin": self.address.rstrip("/")}
        with urlopen(Request(self.address + path, urlencode(form).encode(), headers), timeout=20) as answer:
            return str(answer.url)

    def is_ready(self) -> bool:
        try:
            return bool(self.get("static/page.css"))
        except OSError:
            return False

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def typed(folder: Path, *options: str) -> Iterator[Command]:
    command = Command(folder, *options)
    try:
        wait_for(command.is_ready, 60)
        yield command
    finally:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(["ui", *arguments])
    return status, capsys.readouterr().err


def test_there_must_be_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "missing")
    assert complaint(capsys, missing) == (2, f"cupilot: there is no folder {missing}\n")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--port", "70000"), "there is no port 70000"),
        (("--token", "short"), "at least 16 characters"),
        (("--host", "no.such.host.invalid"), "--host no.such.host.invalid"),
        (("--host", "192.0.2.1"), "cannot be used"),
    ],
)
def test_what_cannot_be_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], why: str
) -> None:
    status, said = complaint(capsys, str(tmp_path), *options)
    assert status == 2
    assert why in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_without_the_extra_it_says_what_to_install(tmp_path: Path, package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from cupilot.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        (sys.executable, "-c", code, "ui", str(tmp_path)), capture_output=True, text=True, check=False, timeout=60
    )
    said = f"cupilot: the live page needs the Python package {package}: install cupilot[web]\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_serves_until_it_is_told_to_end(tmp_path: Path, number: int) -> None:
    make_run(tmp_path / "runs" / "relu-1")
    with typed(tmp_path / "runs") as command:
        assert command.address.startswith("http://127.0.0.1:")
        assert "relu-1" in command.get("")
        page = command.get("new")
        assert "virtual:a100-80gb" in page
        assert 'name="population" min="1" max="1000" value="8"' in page
        stream = urlopen(command.address + "events", timeout=20)
        assert command.end(number) in (0, -number)
        assert stream.read().startswith(b"retry:"), "streams are ended in order"
        stream.close()
        assert command.text.count("\n") == 1, "an orderly end has nothing to say"


def test_a_second_server_on_the_same_port_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs").mkdir()
    with typed(tmp_path / "runs") as command:
        port = command.address.rstrip("/").rpartition(":")[2]
        status, said = complaint(capsys, str(tmp_path), "--port", port)
        assert status == 2
        assert "--port 0 picks a free port" in said
        command.end(signal.SIGTERM)


def test_elsewhere_than_on_loopback_a_token_is_printed_once_and_needed(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with typed(tmp_path / "runs", "--host", "0.0.0.0") as command:
        wait_for(lambda: "or open" in command.text)
        found = re.search(r"token, shown only now: (\S+)", command.text)
        assert found is not None
        local = re.sub(r"//[^:]+:", "//127.0.0.1:", command.address)
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{local}new", timeout=20)
        assert refused.value.code == 401
        bearer = Request(f"{local}new", headers={"authorization": f"Bearer {found[1]}"})
        with urlopen(bearer, timeout=20) as answer:
            assert answer.status == 200
        command.end(signal.SIGINT)


def test_a_token_that_was_given_is_not_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.setenv("CUPILOT_UI_TOKEN", TOKEN)
    with typed(tmp_path / "runs") as command:
        assert TOKEN not in command.text
        with pytest.raises(HTTPError):
            command.get("new")
        assert "form_secret" in command.get("login")
        command.end(signal.SIGINT)


@pytest.mark.slow
def test_a_real_search_is_started_stopped_resumed_and_ends_with_the_server(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    (runs / "tasks").mkdir(parents=True)
    (runs / "tasks" / "relu.py").write_bytes((ROOT / "examples" / "relu.py").read_bytes())
    listing = RunsFolder(runs)

    def summary(name: str) -> RunSummary:
        return listing.summary(name) or RunSummary(name, "")

    with typed(runs) as command:
        assert command.post("new", file="tasks/relu.py", seed="3").endswith("/run/relu-1")
        wait_for(lambda: summary("relu-1").individuals >= 1, 120)
        assert "▶</span> running" in command.get("run/relu-1")
        command.post("stop/relu-1")
        wait_for(lambda: 'id="resume"' in command.get("run/relu-1"), 120)
        assert summary("relu-1").why == WHY["interrupted"]
        assert (runs / "relu-1" / "best.cu").exists()

        command.post("resume/relu-1")
        wait_for(lambda: summary("relu-1").state == "finished", 120)
        assert "seed 3" in tail(runs / "relu-1" / "ui.log")
        assert "<title>" in command.get("report/relu-1")

        command.post("new", file="tasks/relu.py", seed="4")
        wait_for(lambda: summary("relu-2").individuals >= 1, 120)
        assert command.end(signal.SIGINT) == 0
        assert summary("relu-2").why == WHY["interrupted"], "it has kept its best before the server ended"


def test_what_was_started_elsewhere_goes_on_when_the_server_ends(tmp_path: Path) -> None:
    with closing(begin_run(tmp_path / "runs" / "run")), typed(tmp_path / "runs") as command:
        assert "started elsewhere" in command.get("run/run")
        command.end(signal.SIGTERM)
        assert RunsFolder(tmp_path / "runs").summaries()[0].state == "running"
    assert not is_alive(command.process.pid)
