"""Ending without waiting; the rest is in the contract of executors."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import pytest

from cupilot.threads import DaemonThreads


def test_nothing_is_abandoned_when_all_is_done() -> None:
    threads = DaemonThreads(2)
    assert threads.submit(int, "7").result() == 7
    assert threads.abandon() is False


def test_what_is_running_is_not_waited_for_and_the_rest_is_dropped() -> None:
    threads, gate, begun = DaemonThreads(1), threading.Event(), threading.Event()
    running = threads.submit(lambda: (begun.set(), gate.wait()))
    begun.wait()
    late = threads.submit(int, "7")
    assert threads.abandon() is True
    assert late.cancelled()
    assert not running.done()
    gate.set()
    assert running.result() == (None, True)
    with pytest.raises(RuntimeError, match="closed"):
        threads.submit(int, "7")


def test_the_program_ends_while_work_is_left() -> None:
    program = textwrap.dedent(
        """
        import threading
        from cupilot.threads import DaemonThreads
        threads, begun = DaemonThreads(2), threading.Event()
        threads.submit(lambda: (begun.set(), threading.Event().wait()))
        begun.wait()
        assert threads.abandon()
        print("done")
        """
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
