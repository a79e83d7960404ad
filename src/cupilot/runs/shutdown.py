"""End a search at once when the user insists, and leave no process behind."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cupilot.contracts import Executor
from cupilot.threads import DaemonThreads


@contextmanager
def shut_down(pool: Executor | DaemonThreads) -> Iterator[None]:
    """Close threads or an executor after the block.

    After an ordinary end nothing is running.  Work is left only after a second Ctrl-C, when the end is to come at
    once: then its processes are killed, and the program ends without waiting for its threads.  After an error
    processes are killed as well.
    """
    try:
        yield
    except BaseException:
        end_children()
        pool.close(cancel=True)
        raise
    if pool.abandon():
        end_children()
        atexit.register(_leave, pool)


def _leave(pool: Executor | DaemonThreads) -> None:
    """End the program while threads are at work.

    The interpreter would end such threads wherever they are, and C++ code below them would abort.
    """
    if pool.busy:
        atexit.unregister(_leave)
        atexit._run_exitfuncs()  # temporary folders, above all
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def end_children() -> None:
    """Kill the compilers and workers that were left running, each with its process group; needs Linux's /proc."""
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, listed.read_text().split()):
                with suppress(OSError):
                    # children in our own group were not started by us
                    if os.getpgid(child) == child:
                        os.killpg(child, signal.SIGKILL)
