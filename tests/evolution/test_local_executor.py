"""Ending without waiting; the rest of the executor is in its contract."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import pytest

from cupilot.evolution.executor import LocalExecutor


def test_nothing_is_abandoned_when_all_is_done() -> None:
    executor = LocalExecutor(2)
    assert executor.submit(int, "7").result() == 7
    assert executor.abandon() is False


def test_what_is_running_is_not_waited_for_and_the_rest_is_dropped() -> None:
    executor, gate, begun = LocalExecutor(1), threading.Event(), threading.Event()
    running = executor.submit(lambda: (begun.set(), gate.wait()))
    begun.wait()
    late = executor.submit(int, "7")
    assert executor.abandon() is True
    assert late.cancelled()
    assert not running.done()
    gate.set()
    assert running.result() == (None, True)
    with pytest.raises(RuntimeError, match="closed"):
        executor.submit(int, "7")


def test_the_program_ends_while_work_is_left() -> None:
    program = textwrap.dedent(
        """
        import threading
        from cupilot.evolution.executor import LocalExecutor
        executor, begun = LocalExecutor(2), threading.Event()
        executor.submit(lambda: (begun.set(), threading.Event().wait()))
        begun.wait()
        assert executor.abandon()
        print("done")
        """
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
