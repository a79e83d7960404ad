"""Hostile command lines and files: no traceback, no status 0 without a verdict, no process and no file left behind.

``python -m pytest tests/cli/test_hostile.py -m ''`` runs all of them; the ordinary test line runs a part.
"""

from __future__ import annotations

from pathlib import Path

import hostile_files
import hostile_kernels
import hostile_options
import hostile_tasks
import pytest
from hostile_case import Hostile, check

CASES: dict[str, Hostile] = {
    **hostile_options.CASES, **hostile_files.CASES, **hostile_tasks.CASES, **hostile_kernels.CASES
}  # fmt: skip
WALLED = hostile_tasks.WALLED_CASES


def params(cases: dict[str, Hostile]) -> list[object]:
    return [pytest.param(case, id=name, marks=() if case.daily else pytest.mark.slow) for name, case in cases.items()]


@pytest.mark.parametrize("case", params(CASES))
def test_it_ends_with_a_sentence_and_leaves_nothing(case: Hostile, tmp_path: Path) -> None:
    check(case, tmp_path)


@pytest.mark.parametrize("case", params(WALLED))
def test_a_task_cannot_leave_its_process(case: Hostile, tmp_path: Path) -> None:
    check(case, tmp_path)


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 100
