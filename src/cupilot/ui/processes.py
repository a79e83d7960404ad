"""The runs that the page starts: each a program of its own, in a process group of its own.

What is started here is stopped here.  A server that is killed (not ended) leaves its runs going; they then count as
started elsewhere.
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

SAID = "ui.log"
PATIENCE_S = (10.0, 5.0, 5.0)
"""At the server's end: after the first Ctrl-C, after the second, and after the kill."""
TAIL_BYTES = 16_384


class Program(Protocol):
    """A program that was started."""

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended within that time."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal to its process group; nothing when it has ended."""
        ...


Start = Callable[[Sequence[str], Path], Program]
"""Start ``python -m cupilot`` with arguments; what it says is appended to a file."""


LISTENING = ("env", "--default-signal=INT")
"""A server that was started in the background may have been told not to listen to Ctrl-C; its runs have to."""


class OwnGroup:
    """A Python process in a session of its own, so that Ctrl-C in the server's terminal does not reach it."""

    def __init__(self, command: Sequence[str], said: Path) -> None:
        try:
            with said.open("ab") as file:
                self._process = subprocess.Popen(
                    (*LISTENING, *command), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
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
        # its id stays its own until the status has been fetched, which the lock holds off
        with self._lock:
            if self._process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)


def start_cupilot(arguments: Sequence[str], said: Path) -> Program:
    """See `Start`."""
    return OwnGroup((sys.executable, "-m", "cupilot", *arguments), said)


@dataclass(frozen=True)
class Job:
    """What the page knows of a program it started; ``said`` is the last line of what it wrote.

    ``status`` is its exit status, None while it runs; ``stopping``: it was asked to end.
    """

    status: int | None
    stopping: bool
    said: str
    started_s: float

    @property
    def running(self) -> bool:
        return self.status is None


@dataclass
class _Entry:
    program: Program
    said: Path
    started_s: float
    stopping: bool = False


class Jobs:
    """The programs, by the name of their run.  For any thread."""

    def __init__(self, start: Start, clock: Callable[[], float]) -> None:
        self._start = start
        self._clock = clock
        self._lock = Lock()
        self._entries: dict[str, _Entry] = {}
        self._closed = False

    def start(self, name: str, folder: Path, arguments: Sequence[str]) -> None:
        """Start a program for a run; one at a time."""
        with self._lock:
            entry = self._entries.get(name)
            if self._closed:
                raise UserError("the server is ending; nothing is started any more")
            if entry is not None and entry.program.poll() is None:
                raise UserError(f"{name} is running already")
            said = folder / SAID
            self._entries[name] = _Entry(self._start(arguments, said), said, self._clock())

    def stop(self, name: str) -> bool:
        """What Ctrl-C does: the run keeps its best.  Whether there was anything to stop; a second time gives up
        the candidates in flight."""
        with self._lock:
            entry = self._entries.get(name)
            if entry is None or entry.program.poll() is not None:
                return False
            entry.stopping = True
            entry.program.signal(signal.SIGINT)
            return True

    def job(self, name: str) -> Job | None:
        with self._lock:
            entry = self._entries.get(name)
            if entry is None:
                return None
            status = entry.program.poll()
            return Job(status, entry.stopping and status is None, last_line(entry.said), entry.started_s)

    def names(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._entries)

    def close(self) -> None:
        """End everything that was started: asked twice, then killed."""
        with self._lock:
            self._closed = True
            left = [entry.program for entry in self._entries.values() if entry.program.poll() is None]
        for number, patience_s in zip((signal.SIGINT, signal.SIGINT, signal.SIGKILL), PATIENCE_S, strict=True):
            for program in left:
                program.signal(number)
            deadline_s = self._clock() + patience_s
            left = [program for program in left if not program.wait(max(0.0, deadline_s - self._clock()))]


def tail(path: Path, size: int = TAIL_BYTES) -> str:
    """The end of what a program said; nothing where there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size).decode("utf-8", "replace")
    except OSError:
        return ""


def last_line(path: Path) -> str:
    lines = tail(path, 2000).split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
