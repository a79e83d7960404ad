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
from cupilot.ui import processes
from cupilot.ui.processes import Jobs, OwnGroup, last_line, tail
from cupilot.ui.runs import RunsFolder


class FakeProgram:
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

    def __init__(self, *programs: FakeProgram) -> None:
        self.programs = list(programs)
        self.arguments: list[tuple[str, ...]] = []

    def __call__(self, arguments: Sequence[str], said: Path) -> FakeProgram:
        self.arguments.append(tuple(arguments))
        return self.programs[len(self.arguments) - 1]


@pytest.fixture
def real_jobs() -> Iterator[Jobs]:
    """Real programs; none is left behind by a test that fails."""
    jobs = Jobs(start_stand_in, time.monotonic)
    yield jobs
    jobs.close()


def test_a_job_from_its_start_to_its_end(tmp_path: Path) -> None:
    program = FakeProgram(1)
    started = Started(program)
    jobs = Jobs(started, lambda: 77.0)
    assert jobs.job("run") is None
    jobs.start("run", tmp_path, ("optimize", "x.py"))
    (tmp_path / "ui.log").write_text("first\nlast\n\n")
    job = jobs.job("run")
    assert job is not None
    assert (job.running, job.stopping, job.said, job.started_s) == (True, False, "last", 77.0)
    assert jobs.stop("run")
    job = jobs.job("run")
    assert job is not None
    assert (job.status, job.stopping) == (0, False)
    assert program.signals == [signal.SIGINT]
    assert not jobs.stop("run"), "there is nothing left to stop"
    assert not jobs.stop("other")


def test_a_run_has_one_program_at_a_time(tmp_path: Path) -> None:
    jobs = Jobs(Started(FakeProgram(1), FakeProgram(1)), lambda: 0.0)
    jobs.start("run", tmp_path, ("optimize",))
    with pytest.raises(UserError, match="running already"):
        jobs.start("run", tmp_path, ("resume",))
    jobs.stop("run")
    jobs.start("run", tmp_path, ("resume",))
    assert jobs.names() == ("run",)


def test_at_the_end_all_are_asked_twice_and_then_killed(tmp_path: Path) -> None:
    programs = [FakeProgram(1), FakeProgram(2), FakeProgram(3)]
    jobs = Jobs(Started(*programs), lambda: 0.0)
    for number in range(3):
        jobs.start(str(number), tmp_path, ("optimize",))
    jobs.close()
    assert [program.signals for program in programs] == [
        [signal.SIGINT],
        [signal.SIGINT] * 2,
        [signal.SIGINT, signal.SIGINT, signal.SIGKILL],
    ]
    assert programs[2].waits == list(processes.PATIENCE_S)
    with pytest.raises(UserError, match="ending"):
        jobs.start("late", tmp_path, ("optimize",))


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="cannot be started"):
        OwnGroup((sys.executable,), tmp_path / "missing" / "ui.log")


def test_a_program_is_in_a_group_of_its_own_and_stops_as_by_ctrl_c(tmp_path: Path, real_jobs: Jobs) -> None:
    (tmp_path / "task.py").write_text("# a task\n")
    jobs = real_jobs
    jobs.start("run", tmp_path, ("optimize", str(tmp_path / "task.py"), "--out", str(tmp_path)))
    wait_for(lambda: "stand-in" in tail(tmp_path / "ui.log"))
    pid = int(tail(tmp_path / "ui.log").split()[1])
    assert int(Path(f"/proc/{pid}/stat").read_text().split()[4]) == pid, "the leader of its process group"
    runs = RunsFolder(tmp_path.parent)
    wait_for(lambda: (run := runs.summary(tmp_path.name)) is not None and run.individuals == 1)
    jobs.stop("run")
    wait_for(lambda: (job := jobs.job("run")) is not None and not job.running)
    job = jobs.job("run")
    assert job is not None
    assert (job.status, job.said) == (0, "interrupted")
    with closing(open_store(tmp_path)) as store:
        result = store.result()
        assert result is not None
        assert result.stopped == "interrupted"
    assert not is_alive(pid)


def test_what_does_not_listen_is_killed_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PATIENCE_S", (0.2, 0.2, 20.0))
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    jobs = Jobs(lambda arguments, said: OwnGroup((sys.executable, "-c", code), said), lambda: 0.0)
    jobs.start("run", tmp_path, ())
    wait_for(lambda: last_line(tmp_path / "ui.log") == "deaf")
    jobs.close()
    job = jobs.job("run")
    assert job is not None
    assert job.status == -signal.SIGKILL


def test_the_end_of_what_was_said(tmp_path: Path) -> None:
    path = tmp_path / "said"
    assert (tail(path), last_line(path)) == ("", "")
    path.write_bytes(b"x" * 100 + "ä end".encode())
    assert tail(path, 5) == "\ufffd end"
    assert last_line(path).endswith("ä end")


def test_a_store_that_is_held_is_not_disturbed(tmp_path: Path, real_jobs: Jobs) -> None:
    with closing(begin_run(tmp_path / "run")):
        (tmp_path / "log").mkdir()
        jobs = real_jobs
        jobs.start("run", tmp_path / "log", ("resume", str(tmp_path / "run")))
        wait_for(lambda: (job := jobs.job("run")) is not None and not job.running)
        job = jobs.job("run")
        assert job is not None
        assert "another process is at work" in job.said
