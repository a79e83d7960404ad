"""A real Ray cluster on this machine; it takes seconds to start."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="needs cupilot[ray], 240 MB that the test line does not install")

from cupilot.contracts import ExecutorOptions
from cupilot.executors import ray
from cupilot.testing import ExecutorContract
from cupilot.testing.executor import SCRIPTED, TIMEOUT_S, Held, answer

pytestmark = pytest.mark.slow


class TestRayExecutor(ExecutorContract):
    open_executor = staticmethod(ray.open_executor)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[ray.ClusterExecutor]:
    executor = ray.open_executor(ExecutorOptions(slots=1, cache=tmp_path, evaluator=SCRIPTED))
    yield executor
    executor.close()


def test_what_a_killed_worker_was_evaluating_is_evaluated_again(executor: ray.ClusterExecutor, tmp_path: Path) -> None:
    held = Held(tmp_path, "held")
    future = executor.submit(held.request)
    first = held.wait_until_started()
    os.kill(first, signal.SIGKILL)
    assert held.wait_until_started() != first
    held.release()
    assert future.result(TIMEOUT_S) == answer(held.request)
