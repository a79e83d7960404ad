"""Inputs and references that are made in the process of a task, as ours sees them.

They stand for what `case` and `slices` have: arguments are arrays whose memory is a file (which candidates' workers map
as it is), and expectations are fetched when results are compared.  Comparing stays in our process, and the task never
learns what a candidate computed.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
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
from cupilot.threads import wait_for


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
    """References of slices are made in the other process, which also keeps them.

    They can be asked for ahead, so that the other process works on the next ones while these are compared.
    """

    _ahead: dict[tuple[int, int], tuple[Future[Expectation], Runs | None]] = field(default_factory=dict)
    """By output and the identity of what is asked for, which is kept alive."""

    def ask_ahead(self, output: int, where: Runs | None) -> Callable[[], None]:
        """Gives what makes them; until that has run, who asks for them waits."""
        future = Future[Expectation]()
        self._ahead[output, id(where)] = future, where

        def make() -> None:
            try:
                future.set_result(super(RemoteSlicedCase, self).expectation(output, where))
            except BaseException as error:
                future.set_exception(error)

        return make

    def expectation(self, output: int, where: Runs | None) -> Expectation:
        known = self._ahead.pop((output, id(where)), None)
        if known is None:
            return super().expectation(output, where)
        wait_for(known[0])
        return known[0].result()

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
