"""A run on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from cupilot.records import (
    Individual,
    Outline,
    RunInfo,
    RunResult,
)

T = TypeVar("T")


class Store(Protocol):
    """A run on disk, complete at every moment.

    One writer at a time: `create_store` and `repeat` take a lock that ends with `close` or with the process, however
    it ends; readers never wait for it.  A store is used by one thread at a time.  What `begin`, `add`, `note`, `once`
    and `finish` were given is durable when they return: a killed run loses at most the candidates in flight.
    """

    @property
    def begun(self) -> bool:
        """Whether the run has been begun, by this process or an earlier one."""

    def begin(self, info: RunInfo) -> None:
        """State what the run is asked to do; of a repeated run, check that it is the same."""

    def repeat(self) -> tuple[Individual, ...]:
        """Resume the run by repeating it; returns what it has so far.

        From now on, what the store already holds is compared instead of added again.
        """

    def add(self, individual: Individual) -> None:
        """Keep one individual."""

    def note(self, kind: str, text: str) -> None:
        """Keep one decision with its reason."""

    def once(self, name: str, kind: type[T], ask: Callable[[], tuple[T, ...]]) -> tuple[T, ...]:
        """What the outside (the pool, the user) answered the first time; a repeated run gets the same answer."""

    def inherit(self, other: Any) -> None:
        """Take over the answers of `once` that another store of the same kind holds, so that the runs are alike."""

    def finish(self, result: RunResult) -> None: ...

    def info(self) -> RunInfo: ...

    def result(self) -> RunResult | None:
        """The outcome; None while the run is under way, or when it was killed."""

    def individuals(self) -> Iterator[Individual]:
        """All individuals in the order they were added."""

    def individual(self, number: int) -> Individual:
        """The individual with this id."""

    def outlines(self) -> tuple[Outline, ...]:
        """All individuals in the order they were added, without their records."""

    def counts(self) -> tuple[int, int]:
        """How many individuals and notes there are; every addition changes it."""

    def notes(self) -> Iterator[tuple[str, str]]:
        """Kind and text of all notes in the order they were added."""

    def close(self) -> None: ...
