"""The processes of the runs that the page starts, each in a process group of its own.

The server stops them when it ends.  If the server is killed, its runs continue, and count as started elsewhere.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Protocol

from cupilot.errors import MachineError, UserError

LOG_NAME = "ui.log"
STOP_TIMEOUTS_S = (10.0, 5.0, 5.0)
"""When the server ends: after the first SIGINT, after the second, and after SIGKILL."""
TAIL_BYTES = 16_384


class RunProcess(Protocol):
    """A process of a run."""

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Whether it ends within that time."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal to its process group; does nothing when it has ended."""
        ...


Start = Callable[[Sequence[str], Path], RunProcess]
"""Starts ``python -m cupilot`` with arguments; its output is appended to a file."""


RESET_SIGINT = ("env", "--default-signal=INT")
"""A server that a shell starts in the background ignores SIGINT; its runs must not inherit that."""


class DetachedProcess:
    """A process in a session of its own, so that Ctrl-C in the server's terminal does not reach it."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        try:
            with log.open("ab") as file:
                self._process = subprocess.Popen(
                    (*RESET_SIGINT, *command), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise MachineError(f"the run cannot be started: {error}") from error
        self._lock = Lock()

    def poll(self) -> int | None:
        with self._lock:
            return self._process.poll()

    def wait(self, timeout_s: float) -> bool:
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def signal(self, number: int) -> None:
        # the lock keeps poll() from reaping the process, so its id cannot be reused meanwhile
        with self._lock:
            if self._process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)


def start_cupilot(arguments: Sequence[str], log: Path) -> RunProcess:
    """See `Start`."""
    return DetachedProcess((sys.executable, "-m", "cupilot", *arguments), log)


@dataclass(frozen=True)
class ProcessStatus:
    """The state of a process that the page started.

    ``status`` is its exit status, None while it runs; ``stopping``: it was asked to end; ``last_line`` is the last line
    of its output.
    """

    status: int | None
    stopping: bool
    last_line: str
    started_s: float

    @property
    def running(self) -> bool:
        return self.status is None


@dataclass
class _Entry:
    process: RunProcess
    log: Path
    started_s: float
    stopping: bool = False


class ProcessManager:
    """The processes, by the name of their run; thread-safe."""

    def __init__(self, start: Start, clock: Callable[[], float]) -> None:
        self._start = start
        self._clock = clock
        self._lock = Lock()
        self._entries: dict[str, _Entry] = {}
        self._closed = False

    def start(self, name: str, folder: Path, arguments: Sequence[str]) -> None:
        """Start a process for a run, which must not have one already."""
        with self._lock:
            entry = self._entries.get(name)
            if self._closed:
                raise UserError("the server is shutting down and starts no more runs")
            if entry is not None and entry.process.poll() is None:
                raise UserError(f"{name} is already running")
            log = folder / LOG_NAME
            self._entries[name] = _Entry(self._start(arguments, log), log, self._clock())

    def stop(self, name: str) -> bool:
        """Interrupt a run, which keeps its best kernel; a second time it gives up the candidates in flight.

        False when there is nothing to stop.
        """
        with self._lock:
            entry = self._entries.get(name)
            if entry is None or entry.process.poll() is not None:
                return False
            entry.stopping = True
            entry.process.signal(signal.SIGINT)
            return True

    def status(self, name: str) -> ProcessStatus | None:
        with self._lock:
            entry = self._entries.get(name)
            if entry is None:
                return None
            status = entry.process.poll()
            return ProcessStatus(status, entry.stopping and status is None, last_line(entry.log), entry.started_s)

    def names(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._entries)

    def close(self) -> None:
        """Stop all processes: two interrupts, then a kill."""
        with self._lock:
            self._closed = True
            left = [entry.process for entry in self._entries.values() if entry.process.poll() is None]
        for number, timeout_s in zip((signal.SIGINT, signal.SIGINT, signal.SIGKILL), STOP_TIMEOUTS_S, strict=True):
            for process in left:
                process.signal(number)
            deadline_s = self._clock() + timeout_s
            left = [process for process in left if not process.wait(max(0.0, deadline_s - self._clock()))]


def tail(path: Path, size: int = TAIL_BYTES) -> str:
    """The end of a log; empty when there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size).decode("utf-8", "replace")
    except OSError:
        return ""


def last_line(path: Path) -> str:
    lines = tail(path, 2000).split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
