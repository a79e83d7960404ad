"""What the page starts: stopped as by Ctrl-C, one at a time, and never left behind."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from ui_site import begin_run, is_alive, start_stand_in, wait_for

from cupilot.errors import MachineError, UserError
from cupilot.evolution.store import open_store
from cupilot.ui import process_manager
from cupilot.ui.process_manager import DetachedProcess, ProcessManager, last_line, tail
from cupilot.ui.runs import RunsFolder


class FakeProcess:
    """Ends at the given signal, counted from one."""

    def __init__(self, ends_at: int) -> None:
        self.ends_at = ends_at
        self.signals: list[int] = []
        self.waits: list[float] = []

    def poll(self) -> int | None:
        return 0 if len(self.signals) >= self.ends_at else None

    def wait(self, timeout_s: float) -> bool:
        self.waits.append(timeout_s)
        return self.poll() is not None

    def signal(self, number: int) -> None:
        if self.poll() is None:
            self.signals.append(number)


class Started:
    """A function that starts nothing, and remembers."""

    def __init__(self, *fakes: FakeProcess) -> None:
        self.fakes = list(fakes)
        self.arguments: list[tuple[str, ...]] = []

    def __call__(self, arguments: Sequence[str], log: Path) -> FakeProcess:
        self.arguments.append(tuple(arguments))
        return self.fakes[len(self.arguments) - 1]


@pytest.fixture
def real_jobs() -> Iterator[ProcessManager]:
    """Real fakes; none is left behind by a test that fails."""
    processes = ProcessManager(start_stand_in, time.monotonic)
    yield processes
    processes.close()


def test_a_job_from_its_start_to_its_end(tmp_path: Path) -> None:
    fake = FakeProcess(1)
    started = Started(fake)
    processes = ProcessManager(started, lambda: 77.0)
    assert processes.status("run") is None
    processes.start("run", tmp_path, ("optimize", "x.py"))
    (tmp_path / "ui.log").write_text("first\nlast\n\n")
    process = processes.status("run")
    assert process is not None
    assert (process.running, process.stopping, process.last_line, process.started_s) == (True, False, "last", 77.0)
    assert processes.stop("run")
    process = processes.status("run")
    assert process is not None
    assert (process.status, process.stopping) == (0, False)
    assert fake.signals == [signal.SIGINT]
    assert not processes.stop("run"), "there is nothing left to stop"
    assert not processes.stop("other")


def test_a_run_has_one_process_at_a_time(tmp_path: Path) -> None:
    processes = ProcessManager(Started(FakeProcess(1), FakeProcess(1)), lambda: 0.0)
    processes.start("run", tmp_path, ("optimize",))
    with pytest.raises(UserError, match="already running"):
        processes.start("run", tmp_path, ("resume",))
    processes.stop("run")
    processes.start("run", tmp_path, ("resume",))
    assert processes.names() == ("run",)


def test_at_the_end_all_are_asked_twice_and_then_killed(tmp_path: Path) -> None:
    fakes = [FakeProcess(1), FakeProcess(2), FakeProcess(3)]
    processes = ProcessManager(Started(*fakes), lambda: 0.0)
    for number in range(3):
        processes.start(str(number), tmp_path, ("optimize",))
    processes.close()
    assert [fake.signals for fake in fakes] == [
        [signal.SIGINT],
        [signal.SIGINT] * 2,
        [signal.SIGINT, signal.SIGINT, signal.SIGKILL],
    ]
    assert fakes[2].waits == list(process_manager.STOP_TIMEOUTS_S)
    with pytest.raises(UserError, match="shutting down"):
        processes.start("late", tmp_path, ("optimize",))


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="cannot be started"):
        DetachedProcess((sys.executable,), tmp_path / "missing" / "ui.log")


def test_a_program_is_in_a_group_of_its_own_and_stops_as_by_ctrl_c(tmp_path: Path, real_jobs: ProcessManager) -> None:
    (tmp_path / "task.py").write_text("# a task\n")
    processes = real_jobs
    processes.start("run", tmp_path, ("optimize", str(tmp_path / "task.py"), "--out", str(tmp_path)))
    wait_for(lambda: "stand-in" in tail(tmp_path / "ui.log"))
    pid = int(tail(tmp_path / "ui.log").split()[1])
    assert int(Path(f"/proc/{pid}/stat").read_text().split()[4]) == pid, "the leader of its process group"
    runs = RunsFolder(tmp_path.parent)
    wait_for(lambda: (run := runs.summary(tmp_path.name)) is not None and run.individuals == 1)
    processes.stop("run")
    wait_for(lambda: (process := processes.status("run")) is not None and not process.running)
    process = processes.status("run")
    assert process is not None
    assert (process.status, process.last_line) == (0, "interrupted")
    with closing(open_store(tmp_path)) as store:
        result = store.result()
        assert result is not None
        assert result.stopped == "interrupted"
    assert not is_alive(pid)


def test_what_does_not_listen_is_killed_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_manager, "STOP_TIMEOUTS_S", (0.2, 0.2, 20.0))
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    processes = ProcessManager(lambda arguments, log: DetachedProcess((sys.executable, "-c", code), log), lambda: 0.0)
    processes.start("run", tmp_path, ())
    wait_for(lambda: last_line(tmp_path / "ui.log") == "deaf")
    processes.close()
    process = processes.status("run")
    assert process is not None
    assert process.status == -signal.SIGKILL


def test_the_end_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert (tail(path), last_line(path)) == ("", "")
    path.write_bytes(b"x" * 100 + "ä end".encode())
    assert tail(path, 5) == "\ufffd end"
    assert last_line(path).endswith("ä end")


def test_a_store_that_is_held_is_not_disturbed(tmp_path: Path, real_jobs: ProcessManager) -> None:
    with closing(begin_run(tmp_path / "run")):
        (tmp_path / "log").mkdir()
        processes = real_jobs
        processes.start("run", tmp_path / "log", ("resume", str(tmp_path / "run")))
        wait_for(lambda: (process := processes.status("run")) is not None and not process.running)
        process = processes.status("run")
        assert process is not None
        assert "another process is at work" in process.last_line
