"""Suites: the 100 problems of level 1 and folders of anybody's tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from cupilot.errors import UserError
from cupilot.tasks import load_task
from cupilot.tasks.suite import LEVEL1, SuiteTask, chosen, open_suite, recorded

PROBLEMS = open_suite(LEVEL1)
SOME = (5, 14, 33, 47, 75, 86, 92, 95, 97)
TASK = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
TASK += "N = {n}\ndef get_inputs():\n    return [torch.rand(N, 393216)]\n"


def test_level1_is_whole() -> None:
    assert [problem.number for problem in PROBLEMS] == list(range(1, 101))
    assert all(problem.recorded is not None for problem in PROBLEMS)
    assert sum("pytorch" in each.times_s for each in recorded().values()) == 87
    assert sorted(int(each.name.split("_")[0]) for each in recorded().values() if each.broken) == [
        4, 23, 37, 39, 49, 53, 96, 98, 99,
    ]  # fmt: skip


def shapes_are_those_recorded(problem: SuiteTask) -> None:
    task = load_task(problem.path)
    assert task.graph, "the module must be exportable"
    assert problem.recorded is not None
    assert problem.recorded.fits(task)


@pytest.mark.parametrize("problem", [each for each in PROBLEMS if each.number in SOME], ids=lambda each: each.name)
def test_shapes_are_those_that_times_were_recorded_of(problem: SuiteTask) -> None:
    shapes_are_those_recorded(problem)


@pytest.mark.slow
@pytest.mark.parametrize("problem", [each for each in PROBLEMS if each.number not in SOME], ids=lambda each: each.name)
def test_all_other_shapes_too(problem: SuiteTask) -> None:
    shapes_are_those_recorded(problem)


def test_problems_are_chosen_by_numbers_and_ranges() -> None:
    assert [each.number for each in chosen(PROBLEMS, "23, 1,40-42")] == [1, 23, 40, 41, 42]
    assert chosen(PROBLEMS, None) == PROBLEMS
    with pytest.raises(UserError, match="no problem 101"):
        chosen(PROBLEMS, "99-101")
    with pytest.raises(UserError, match="'1-' is no problem"):
        chosen(PROBLEMS, "1-")


def test_any_folder_is_a_suite_and_keeps_records_only_of_the_same_shapes(tmp_path: Path) -> None:
    (tmp_path / "19_ReLU.py").write_text(TASK.format(n=4096))
    (tmp_path / "3_mine.py").write_text(TASK.format(n=4096))
    (tmp_path / "helper.py").write_text("")
    mine, relu = open_suite(str(tmp_path))
    assert (mine.number, mine.category, mine.recorded) == (3, "other", None)
    assert relu.recorded is not None
    assert relu.recorded.fits(load_task(relu.path))
    relu.path.write_text(TASK.format(n=2048))
    assert not relu.recorded.fits(load_task(relu.path))


def test_what_is_no_suite_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"suites are .*kernelbench_level1"):
        open_suite("level9")
    with pytest.raises(UserError, match="holds no tasks"):
        open_suite(str(tmp_path))
    for name in ("1_one.py", "1_other.py"):
        (tmp_path / name).write_text("")
    with pytest.raises(UserError, match="two tasks of number 1"):
        open_suite(str(tmp_path))
