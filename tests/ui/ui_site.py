"""A runs folder with stores in it, the real server on a free port, and a plain client that sends what it is told."""

from __future__ import annotations

import http.client
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

from cupilot.evolution.bench_results import BenchRow, write_bench_rows
from cupilot.evolution.store import SqliteStore, create_store
from cupilot.records import Individual, Kernel, RunInfo, Strategy, Timing
from cupilot.runs.bench import RUNS
from cupilot.testing.samples import EVALUATION, FAILED, INDIVIDUAL, INFO, RESULT, STRATEGY
from cupilot.ui.new_run_form import FormChoices
from cupilot.ui.process_manager import DetachedProcess, RunProcess
from cupilot.ui.server import LiveServer, Settings

CHOICES = FormChoices(("virtual:sample", "virtual:other"), "virtual:sample", 8, 4, 1, 0)
DEADLINE_S = 20.0
STAND_IN = Path(__file__).parent / "stand_in.py"
TOKEN = "a token that is long enough"


def individual(number: int, time_s: float | None, *, source: str = "modelled", generation: int = 0) -> Individual:
    """One of a run; None for a time is a failure."""
    kernel = Kernel(f"// kernel {number}\n")
    evaluation = FAILED
    if time_s is not None:
        timing = Timing(time_s, source, "sample", "dram", (("dram", time_s * 0.75), ("launch", time_s * 0.25)))
        evaluation = replace(EVALUATION, kernel=kernel.digest, timing=timing)
    strategy = STRATEGY if number else Strategy()
    return replace(
        INDIVIDUAL, id=number, generation=generation, strategy=strategy, kernel=kernel, evaluation=evaluation
    )


def begin_run(folder: Path, times_s: Sequence[float | None] = (8e-6, None, 4e-6), info: RunInfo = INFO) -> SqliteStore:
    """A run that is going on: its lock is held until the store is closed."""
    store = create_store(folder)
    store.begin(info)
    for number, time_s in enumerate(times_s):
        store.add(individual(number, time_s))
    return store


def make_run(
    folder: Path,
    times_s: Sequence[float | None] = (8e-6, None, 4e-6),
    stopped: str = "generations",
    info: RunInfo = INFO,
) -> None:
    """A run that has ended; with no word for why, it was killed."""
    with closing(begin_run(folder, times_s, info)) as store:
        if stopped:
            store.finish(replace(RESULT, info=info, stopped=stopped))


def make_suite(folder: Path, *rows: BenchRow) -> None:
    """A benchmark with these problems, and a run of its own for each."""
    folder.mkdir(parents=True, exist_ok=True)
    write_bench_rows(folder, rows)
    for each in rows:
        if not (folder / RUNS / each.name).exists():
            make_run(folder / RUNS / each.name)


def row(number: int, speedup: float | None = 2.0) -> BenchRow:
    """None for a speed-up is a problem without a kernel."""
    time_ms, name = None if speedup is None else 4.0 / speedup, f"{number}_relu"
    return BenchRow(
        number, name, "pointwise", speedup is not None, time_ms, 4.0, speedup, "fp32", None, 3, f"kernels/{name}.cu",
        "recorded", "modelled",
    )  # fmt: skip


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str


@dataclass(frozen=True)
class Site:
    """A server that runs, and what its pages would send."""

    server: LiveServer
    root: Path

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def address(self) -> str:
        return f"http://{self.host}"

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Exactly these headers, a Host apart; underscores are dashes, and an empty one is left out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=DEADLINE_S)
        sent = {"host": self.host} | {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            if value:
                connection.putheader(name, value)
        if method == "POST":
            connection.putheader("content-length", str(len(body)))
        try:
            connection.endheaders(body if method == "POST" else None)
            response = connection.getresponse()
            got = {name.lower(): value for name, value in response.getheaders()}
            endless = got.get("content-type", "").startswith("text/event-stream")
            return Answer(response.status, got, "" if endless else response.read().decode())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> Answer:
        """As a form of ours; the keywords replace headers."""
        form = {"form_secret": self.server.access.form_secret} | (fields or {})
        usual = {"origin": self.address, "content_type": "application/x-www-form-urlencoded"}
        return self.ask("POST", path, urlencode(form).encode(), **(usual | headers))


@contextmanager
def site(
    root: Path,
    start: Callable[[Sequence[str], Path], RunProcess] | None = None,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    report: Callable[[Path], str] = lambda folder: (
        f"<!doctype html><title>report</title><p>report of {folder.name}</p>"
    ),
) -> Iterator[Site]:
    """The real server, in a thread."""
    settings = Settings(root, host, 0, token, ("sample-machine",))
    server = LiveServer(settings, CHOICES, start or start_stand_in, time.time, report, interval_s=0.05)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.is_ready)
        yield Site(server, root)
    finally:
        server.stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), "the server did not end"


def start_stand_in(arguments: Sequence[str], log: Path) -> RunProcess:
    """A program that does to the store what a search would, without one."""
    return DetachedProcess((sys.executable, str(STAND_IN), *arguments), log)


def wait_for(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Until the condition holds; fails at the deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"still not so after {deadline_s} s"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def field(text: str, name: str) -> str:
    """The value of a hidden field in a page."""
    found = re.search(rf'name="{name}" value="([^"]*)"', text)
    assert found is not None, f"no field {name}"
    return found[1]
