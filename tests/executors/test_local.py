"""Threads of this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from cupilot.contracts import ExecutorOptions
from cupilot.executors import local, open_executor
from cupilot.testing import ExecutorContract
from cupilot.testing.executor import ECHO, SCRIPTED, answer, scripted_request


class TestLocalExecutor(ExecutorContract):
    open_executor = staticmethod(local.open_executor)


def test_needs_a_slot(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one thread"):
        local.open_executor(ExecutorOptions(slots=0, cache=tmp_path, evaluator=SCRIPTED))


def test_is_opened_by_name(tmp_path: Path) -> None:
    executor = open_executor("local", ExecutorOptions(slots=1, cache=tmp_path, evaluator=SCRIPTED))
    assert executor.submit(scripted_request(ECHO)).result(10) == answer(scripted_request(ECHO))
    executor.close()
