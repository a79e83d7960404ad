"""A device: builds and runs kernels, and knows their time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cupilot.arrays import Array
from cupilot.gpu.spec import GpuSpec
from cupilot.places import Runs, Slices
from cupilot.records import (
    Failure,
    Kernel,
    Profile,
    Resources,
    Scalar,
    TensorSpec,
    Timing,
)


@dataclass(frozen=True)
class Built:
    """A kernel compiled for a device: its shared library, its PTX, and what ptxas says of it."""

    kernel: Kernel
    library: Path
    ptx: str
    resources: tuple[tuple[str, Resources], ...]


@dataclass(frozen=True, eq=False)
class Call:
    """One call of the wrapper: arguments in order, arrays for tensors, tuples for lists.

    ``sample_budget`` bounds the lane instructions that are executed per launch (None: all blocks
    run); blocks that ``sample_seed`` draws run until it is spent, counters are scaled to the whole grid, and
    output elements that no executed block wrote stay unwritten.  Kernels must not know the seed: nothing that a
    candidate can read while it runs may hold it.
    ``outputs`` are the tensors the reference returns, so that the device can check their form.
    ``order`` other than zero asks for another order of blocks, where the device can choose.
    Of outputs that are large, the slices ``looked_at`` are enough.
    ``lenient`` is for who only wants the profile: what a kernel does wrong without stopping comes with the outcome,
    which then has no outputs.
    """

    label: str
    arguments: tuple[Array | Scalar | tuple[Any, ...] | None, ...]
    outputs: tuple[TensorSpec, ...]
    sample_budget: int | None = None
    order: int = 0
    lenient: bool = False
    sample_seed: int = 0
    looked_at: Slices | None = None


@dataclass(frozen=True, eq=False)
class Output:
    """One result: the values of all its elements, or of those that were stored to, at the flat positions ``where``
    (in ascending order).

    ``alias`` names the input or the output before it in whose memory it lies, if any; ``launches`` is how many launches
    stored to it: what only some blocks of a single one stored has its final value.  ``stored`` is of how many elements
    it is known that they were stored to, where not all of those are here.
    """

    shape: tuple[int, ...]
    values: Array
    where: Array | Runs | None = None
    alias: str = ""
    launches: int = 1
    stored: int | None = None

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def written_elements(self) -> int:
        return int(self.values.size) if self.stored is None else self.stored

    @cached_property
    def runs(self) -> Runs | None:
        """Where the elements stand; None where all are there."""
        return Runs.of(self.where) if isinstance(self.where, np.ndarray) else self.where

    @property
    def array(self) -> Array:
        """The whole result; elements that were not stored to are zero."""
        if self.runs is None:
            return self.values.reshape(self.shape)
        whole = np.zeros(self.elements, self.values.dtype)
        whole[self.runs.positions] = self.values
        return whole.reshape(self.shape)

    @property
    def written(self) -> Array:
        """Which elements were stored to."""
        if self.runs is None:
            return np.ones(self.shape, np.bool_)
        mask = np.zeros(self.elements, np.bool_)
        mask[self.runs.positions] = True
        return mask.reshape(self.shape)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one call produced; ``finding`` is what a lenient call overlooked."""

    outputs: tuple[Output, ...]
    profile: Profile
    finding: Failure | None = None


class Device(Protocol):
    """Something that builds and runs kernels in a process of its own, and knows their time."""

    @property
    def name(self) -> str: ...

    @property
    def spec(self) -> GpuSpec: ...

    def build(self, kernel: Kernel) -> Built | Failure:
        """Compile for this device; repeated builds of the same kernel come from a cache."""

    def run(self, built: Built, calls: Sequence[Call], timeout_s: float) -> tuple[Outcome | Failure, ...]:
        """Run the calls in one worker process, one result each.

        A call that fails does not hinder the next; after a crash or a time-out the calls that are
        left carry the same failure.
        """

    def time(self, profile: Profile) -> Timing:
        """Time of one call: measured, or modelled from the profile's counters."""


@runtime_checkable
class Preparing(Protocol):
    """A device that makes something before its first use on a machine, which takes a while."""

    def unprepared(self) -> str:
        """What has to be made first, in words; empty when nothing has."""

    def prepare(self, tell: Callable[[int, int], None]) -> None:
        """Make it; ``tell`` is given how many parts are done, and of how many."""
