"""A device whose times are measured, in turns with PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from cupilot.contracts.device import Built, Call, Output
from cupilot.records import (
    Failure,
)
from cupilot.records.measurement import State


@dataclass(frozen=True)
class Reference:
    """PyTorch in place of a candidate: a task file's text, its precision, and whether torch.compile is used."""

    source: str
    precision: str = "fp32"
    compiled: bool = False


@dataclass(frozen=True)
class Sample:
    """One turn: the time between the events, whether the host was ahead of the GPU, and what ran on after the end."""

    time_s: float
    ahead: bool
    after_s: float


@dataclass(frozen=True)
class Timed:
    """All turns of a process: a sample each, and (excerpts of) the results of the turns that were kept."""

    samples: tuple[Sample, ...]
    kept: tuple[Output, ...] = ()
    failure: Failure | None = None


class TimedProcess(Protocol):
    """A process that runs one call at each turn that it is given."""

    def turn(self, rotation: int, keep: bool = False) -> bool:
        """Let it run once on inputs rotated by ``rotation``; False when it cannot go on."""

    def finish(self) -> Timed:
        """End the process and take what it measured; later calls return the same."""


@runtime_checkable
class Measuring(Protocol):
    """A device whose times are measured.

    Not thread-safe but for `lock`, which holds for all processes that share the cache: whoever times a kernel holds it.
    """

    flush_bytes: int
    note: str

    @property
    def torch_cuda(self) -> str:
        """The CUDA release that the installed PyTorch is built for; empty when it cannot use the GPU."""

    def counters(self, built: Built) -> str:
        """Where a kernel's counters are from, in words."""

    def state(self) -> State:
        """Clocks, temperature and power, where the GPU tells them."""

    def lock(self) -> AbstractContextManager[None]: ...

    def timed_process(
        self, built: Built, call: Call, timeout_s: float, reference: Reference | None = None
    ) -> AbstractContextManager[TimedProcess]:
        """A process for the call, or for PyTorch on the call's arguments; it ends with the block."""

    def repeat(
        self, built: Built, call: Call, rotations: Sequence[int], timeout_s: float
    ) -> tuple[tuple[Output, ...], ...] | Failure:
        """Excerpts of the results for each rotation of the inputs, from a fresh process."""
