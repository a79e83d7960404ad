"""What is shown and done, without a server: rows, forms, comparisons, words."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from test_ui_process_manager import FakeProcess, Started
from ui_site import CHOICES, begin_run, individual, make_run

from cupilot.errors import UserError
from cupilot.testing.samples import INFO
from cupilot.ui.comparison import TimePart, compare
from cupilot.ui.dashboard import CACHED_REPORTS, Dashboard, RunRow
from cupilot.ui.new_run_form import prepare, read_new_run, task_files
from cupilot.ui.pages import EDGE, HEIGHT, ago, moment, polyline
from cupilot.ui.process_manager import ProcessManager
from cupilot.ui.runs import RunsFolder

FORM = {"source": "text", "name": "relu", "text": "one\r\ntwo\r\n"}


class Bench:
    """A dashboard whose processes are fakes and whose reports are counted."""

    def __init__(self, root: Path, *programs: FakeProcess) -> None:
        self.started = Started(*programs)
        self.reported: list[str] = []
        self.dashboard = Dashboard(
            RunsFolder(root), ProcessManager(self.started, lambda: 5.0), CHOICES, self.report, self.report
        )

    def report(self, folder: Path) -> str:
        self.reported.append(folder.name)
        return f"report of {folder.name}"

    def row(self, name: str) -> RunRow:
        row = self.dashboard.row(name)
        assert row is not None
        return row


# --- rows ----------------------------------------------------------------------------------------


def test_a_run_is_shown_before_it_has_a_store(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeProcess(1))
    name = bench.dashboard.start(read_new_run(FORM, CHOICES))
    assert name == "relu-1"
    (row,) = bench.dashboard.rows()
    assert (row.run.state, row.note, row.can_stop, row.can_resume) == ("running", "starting", True, False)
    assert bench.started.arguments[0][:2] == ("optimize", str(tmp_path / "tasks" / "relu.py"))


def test_a_run_that_failed_before_it_had_one_says_why(tmp_path: Path) -> None:
    process = FakeProcess(1)
    bench = Bench(tmp_path, process)
    name = bench.dashboard.start(read_new_run(FORM, CHOICES))
    (tmp_path / name / "ui.log").write_text("cupilot: the task is no good\n")
    process.poll = lambda: 2  # type: ignore[method-assign]
    row = bench.row(name)
    assert (row.run.state, row.note) == ("stopped", "cupilot: the task is no good")
    assert (row.can_stop, row.can_resume) == (False, False), "there is nothing to go on with"


def test_a_run_from_elsewhere_cannot_be_stopped_here(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    with closing(begin_run(tmp_path / "run")):
        row = bench.row("run")
        assert (row.run.state, row.can_stop, row.can_resume) == ("running", False, False)
        assert "started elsewhere" in row.note
        with pytest.raises(UserError, match="started elsewhere"):
            bench.dashboard.stop("run")


def test_stopping_takes_a_while(tmp_path: Path) -> None:
    make_run(tmp_path / "run", stopped="interrupted")
    bench = Bench(tmp_path, FakeProcess(2))
    assert bench.row("run").can_resume
    bench.dashboard.resume("run")
    assert bench.started.arguments == [("resume", str(tmp_path / "run"))]
    assert bench.row("run").run.state == "running"
    with pytest.raises(UserError, match="cannot be resumed"):
        bench.dashboard.resume("run")
    bench.dashboard.stop("run")
    row = bench.row("run")
    assert (row.run.state, row.can_stop) == ("running", True)
    assert row.note.startswith("stopping")
    bench.dashboard.stop("run")
    assert bench.row("run").run.state == "stopped"


@pytest.mark.parametrize("stopped", ["generations", "limit"])
def test_a_finished_run_is_not_resumed(tmp_path: Path, stopped: str) -> None:
    make_run(tmp_path / "run", stopped=stopped)
    with pytest.raises(UserError, match="cannot be resumed"):
        Bench(tmp_path).dashboard.resume("run")


def test_a_report_is_made_once_for_each_state_of_a_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    with closing(begin_run(tmp_path / "run", (8e-6,))) as store:
        assert bench.dashboard.report("run") == bench.dashboard.report("run") == "report of run"
        assert bench.reported == ["run"]
        store.add(individual(1, 4e-6))
        bench.dashboard.report("run")
        assert bench.reported == ["run", "run"]
    assert bench.dashboard.report("missing") is None


def test_only_a_few_reports_are_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(CACHED_REPORTS + 1):
        make_run(tmp_path / f"run-{number}")
        bench.dashboard.report(f"run-{number}")
    bench.dashboard.report("run-0")
    assert bench.reported.count("run-0") == 2
    assert len(bench.dashboard._reports) == CACHED_REPORTS


# --- the form ------------------------------------------------------------------------------------


def test_a_text_is_saved_and_an_equal_one_is_not_saved_again(tmp_path: Path) -> None:
    new_run = read_new_run(FORM | {"device": "virtual:other", "population": "3", "seed": "9"}, CHOICES)
    folder, arguments = prepare(tmp_path, new_run)
    task = tmp_path / "tasks" / "relu.py"
    assert task.read_text() == "one\ntwo\n"
    assert folder == tmp_path / "relu-1"
    assert " ".join(arguments) == (
        f"optimize {task} --device virtual:other --population 3 --generations 4 --epochs 1 --seed 9 --out {folder}"
    )
    assert prepare(tmp_path, new_run)[1][1] == str(task)
    other = prepare(tmp_path, read_new_run(FORM | {"text": "three"}, CHOICES))[1][1]
    assert other == str(tmp_path / "tasks" / "relu-2.py")
    assert task.read_text() == "one\ntwo\n", "what was there stays"


def test_a_task_is_not_saved_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "tasks").symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match="cannot be saved"):
        prepare(tmp_path / "runs", read_new_run(FORM, CHOICES))
    (tmp_path / "runs" / "tasks").unlink()
    (tmp_path / "runs" / "tasks").mkdir()
    (tmp_path / "runs" / "tasks" / "relu.py").symlink_to(tmp_path / "outside" / "new.py")
    assert prepare(tmp_path / "runs", read_new_run(FORM, CHOICES))[1][1].endswith("relu-2.py")
    assert list((tmp_path / "outside").iterdir()) == []


def test_files_that_a_run_can_be_started_from(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    (tmp_path / "tasks").mkdir()
    for name in ("a.py", "tasks/b.py", "run/task.py", "c.txt", ".hidden.py"):
        (tmp_path / name).write_text("x = 1\n")
    assert list(task_files(tmp_path)) == ["a.py", "tasks/b.py"]
    _, arguments = prepare(tmp_path, read_new_run({"source": "file", "file": "tasks/b.py"}, CHOICES))
    assert arguments[1] == str(tmp_path / "tasks" / "b.py")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"population": "0"}, "population must be a whole number from 1 to 1000"),
        ({"generations": "x"}, "generations must be"),
        ({"epochs": "1001"}, "epochs must be"),
        ({"seed": "-1"}, "seed must be"),
        ({"seed": "9" * 5000}, "seed must be"),
        ({"population": "\u0663"}, "population must be"),
        ({"device": "cuda:0; rm"}, "there is no device"),
        ({"device": "--help"}, "there is no device"),
        ({"text": " \n"}, "is empty"),
        ({"name": "../x"}, "a task's name"),
        ({"source": "file", "file": ""}, "choose a task file"),
        ({"other": "x"}, "no field 'other'"),
    ],
)
def test_what_is_wrong_with_a_form(change: dict[str, str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        read_new_run(FORM | change, CHOICES)


# --- comparing -----------------------------------------------------------------------------------


def rows(root: Path, times_s: Sequence[float | None] = (8e-6, 2e-6), **changes: object) -> tuple[RunRow, RunRow]:
    make_run(root / "one")
    make_run(root / "two", times_s, info=replace(INFO, **changes))  # type: ignore[arg-type]
    bench = Bench(root)
    return bench.row("one"), bench.row("two")


def test_the_faster_of_two(tmp_path: Path) -> None:
    found = compare(*rows(tmp_path))
    assert found.verdict == "The best kernel of two is 2.00× as fast as the other (modelled)."
    assert found.parts == (TimePart("dram", 3e-6, 1.5e-6), TimePart("launch", 1e-6, 5e-7))
    assert found.longest_s == 3e-6


@pytest.mark.parametrize(
    ("times_s", "change", "verdict"),
    [
        ((8e-6, 4e-6), {}, "equally fast"),
        ((None,), {}, "nothing to compare"),
        ((2e-6,), {"task_source": "another"}, "different tasks"),
        ((2e-6,), {"precision": "tf32"}, "compute in fp32 and tf32"),
    ],
)
def test_what_cannot_be_compared_is_not(
    tmp_path: Path, times_s: tuple[float | None, ...], change: dict[str, object], verdict: str
) -> None:
    assert verdict in compare(*rows(tmp_path, times_s, **change)).verdict


def test_modelled_and_measured_times_do_not_compare(tmp_path: Path) -> None:
    one, two = rows(tmp_path)
    assert two.run.best is not None
    timing = replace(two.run.best.timing, source="measured")
    two = replace(two, run=replace(two.run, best=replace(two.run.best, timing=timing)))
    verdict = compare(one, two).verdict
    assert verdict.startswith("One time is modelled for sample, the other measured")
    assert "fast" not in verdict


# --- words ---------------------------------------------------------------------------------------


def test_how_long_ago() -> None:
    assert [ago(s) for s in (-3, 0, 59, 60, 3599, 7200, 2 * 86400)] == [
        "just now", "just now", "just now", "1 min ago", "59 min ago", "2 h ago", "2 d ago",
    ]  # fmt: skip
    assert moment(0) == "1970-01-01T00:00:00Z"


def test_the_line_of_the_best_so_far_steps_down() -> None:
    assert polyline((1.0,)) == ""
    points = [tuple(map(float, point.split(","))) for point in polyline((8e-6, 4e-6, 4e-6, 1e-6)).split()]
    assert points[0] == (0.0, EDGE)
    assert points[-1] == (240.0, HEIGHT - EDGE)
    assert [y for _, y in points] == sorted(y for _, y in points)
    assert {y for _, y in (tuple(map(float, p.split(","))) for p in polyline((1.0, 1.0)).split())} == {EDGE}
