"""Inputs and references that are made in the process of a task, as ours sees them.

They stand for what `case` and `slices` have: arguments are arrays whose memory is a file (which candidates' workers map
as it is), and expectations are fetched when results are compared.  Comparing stays in our process, and the task never
learns what a candidate computed.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from cupilot.arrays import Array, Filed
from cupilot.devices.job import JobArgument
from cupilot.places import Runs
from cupilot.tasks.case import Case, Drawn, Value
from cupilot.tasks.expectation import Expectation
from cupilot.tasks.slices import SlicedCase
from cupilot.tasks.stored import mapped, taken_expectation


class Source(Protocol):
    """The process, as far as it is needed here."""

    def bound(self, handle: int, expressions: str) -> tuple[JobArgument, ...]: ...

    def prepare(self, handle: int) -> None: ...

    def expectation(self, handle: int, output: int, where: Runs | None) -> Expectation: ...


@dataclass(frozen=True, eq=False)
class RemoteDrawn(Drawn):
    """Its module and inputs are in the other process, under ``handle``."""

    model: Any = None
    inputs: tuple[Any, ...] = ()
    process: Source | None = None
    handle: int = 0
    _filed: dict[str, Filed] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def bound(self, expressions: str) -> tuple[Value, ...]:
        assert self.process is not None
        with self._lock:
            if expressions not in self._bound:
                self._bound[expressions] = tuple(map(self._argument, self.process.bound(self.handle, expressions)))
            return self._bound[expressions]

    def _argument(self, stored: JobArgument) -> Value:
        """The same array for the same file; the file goes with its array."""
        if stored.items is not None:
            return tuple(map(self._argument, stored.items))
        if stored.tensor is None:
            return stored.value
        if stored.file not in self._filed:
            self._filed[stored.file] = array = mapped(stored)
            weakref.finalize(array, Path(stored.file).unlink, missing_ok=True)
        return self._filed[stored.file]


@dataclass(frozen=True, eq=False)
class RemoteCase(Case):
    """``stored`` has what each output should be."""

    expected: tuple[Array, ...] = ()
    native: tuple[Array, ...] = ()
    stored: tuple[tuple[JobArgument, ...], ...] = ()

    @cached_property
    def _whole(self) -> tuple[Expectation, ...]:
        return tuple(map(taken_expectation, self.stored))


@dataclass(eq=False)
class RemoteSlicedCase(SlicedCase):
    """References of slices are made in the other process, which also keeps them."""

    def prepare(self) -> None:
        drawn = self.drawn
        assert isinstance(drawn, RemoteDrawn)
        assert drawn.process is not None
        drawn.process.prepare(drawn.handle)

    def _expectation(self, output: int, where: Runs | None) -> Expectation:
        drawn = self.drawn
        assert isinstance(drawn, RemoteDrawn)
        assert drawn.process is not None
        return drawn.process.expectation(drawn.handle, output, where)
