"""The seams of the program: what a plug-in has to offer, and nothing about how.

Every protocol here has a reusable test class in `cupilot.testing`; a new device, executor, store,
model or set of agents is right when that class passes on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import prod
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from cupilot.arrays import Array
from cupilot.gpu.spec import GpuSpec
from cupilot.records import (
    Evaluation,
    Failure,
    Guidance,
    Individual,
    Kernel,
    PoolRecord,
    Profile,
    Resources,
    RunInfo,
    RunResult,
    Scalar,
    Strategy,
    Task,
    TensorSpec,
    Timing,
)

T = TypeVar("T")


# --- devices -------------------------------------------------------------------------------


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
    run); evenly spread blocks run until it is spent, counters are scaled to the whole grid, and
    output elements that no executed block wrote stay unwritten.
    ``outputs`` are the tensors the reference returns, so that the device can check their form.
    ``order`` other than zero asks for another order of blocks, where the device can choose.
    ``lenient`` is for who only wants the profile: what a kernel does wrong without stopping comes with the outcome,
    which then has no outputs.
    """

    label: str
    arguments: tuple[Array | Scalar | tuple[Any, ...] | None, ...]
    outputs: tuple[TensorSpec, ...]
    sample_budget: int | None = None
    order: int = 0
    lenient: bool = False


@dataclass(frozen=True, eq=False)
class Output:
    """One result: the values of all its elements, or of those that were stored to, at the flat positions ``where``.

    ``alias`` names the input in whose memory it lies, if any.
    """

    shape: tuple[int, ...]
    values: Array
    where: Array | None = None
    alias: str = ""

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def array(self) -> Array:
        """The whole result; elements that were not stored to are zero."""
        if self.where is None:
            return self.values.reshape(self.shape)
        whole = np.zeros(self.elements, self.values.dtype)
        whole[self.where] = self.values
        return whole.reshape(self.shape)

    @property
    def written(self) -> Array:
        """Which elements were stored to."""
        if self.where is None:
            return np.ones(self.shape, np.bool_)
        mask = np.zeros(self.elements, np.bool_)
        mask[self.where] = True
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


# --- watching ------------------------------------------------------------------------------

STAGES = ("writing", "waiting", "building", "checking", "timing")
REFERENCE, DONE = "reference", "done"


@dataclass(frozen=True)
class Step:
    """Work has come to a stage: one of `STAGES`, or ``done``; ``what`` says more in words.

    ``who`` tells pieces of work apart: a kernel's digest while it is evaluated, a name of its own while a role writes.
    ``reference`` is what all kernels of a task share; without words it is over.
    """

    stage: str
    who: str
    what: str = ""


Watch = Callable[[Step], None]
"""Told of steps, from several threads; it looks on and changes nothing."""


# --- agents --------------------------------------------------------------------------------

ROLES = ("generator", "prophet", "manager", "translator", "revisor")


@dataclass(frozen=True)
class Brief:
    """What a role is told about the work at hand.

    ``guidance`` is None when it is switched off (for ablations).  ``parents`` are the individuals to
    start from, the fastest first; before there are any, it is empty.  ``tried`` are attempts on this
    lineage that failed or did not pay, the newest last; ``similar`` is what worked on similar
    kernels.  ``sample`` tells apart several answers to one and the same question.
    """

    task: Task
    spec: GpuSpec
    guidance: Guidance | None = None
    parents: tuple[Individual, ...] = ()
    tried: tuple[Individual, ...] = ()
    similar: tuple[PoolRecord, ...] = ()
    sample: int = 0


@dataclass(frozen=True)
class Revision:
    """A repaired kernel, and the strategy that it realises."""

    kernel: Kernel
    strategy: Strategy


class Agents(Protocol):
    """The five roles of the method; the expert and the LLM agents both implement this.

    A role never sees a device, only records.  All randomness comes from the generator passed in.
    Roles are called from several threads at a time.
    """

    @property
    def name(self) -> str: ...

    def generate(self, brief: Brief) -> Kernel:
        """Kernel Generator: a plain, correct first kernel."""

    def foresee(self, task: Task, evaluation: Evaluation, spec: GpuSpec) -> Guidance:
        """Roofline Prophet: the zone a kernel is in, and what to aim for."""

    def initialize(self, brief: Brief, count: int, rng: Random) -> tuple[Strategy, ...]:
        """SCE Manager: up to ``count`` first strategies, no two alike."""

    def cross(self, brief: Brief, rng: Random) -> Strategy:
        """SCE Manager: one strategy out of those of the parents (one parent: a mutation)."""

    def translate(self, brief: Brief, strategy: Strategy) -> Kernel | Failure:
        """Strategy Translator: the kernel that realises the strategy, from the first parent's."""

    def align(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Strategy:
        """Strategy Translator: the strategy re-worded to what the code does."""

    def revise(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Revision | Failure:
        """Kernel Revisor: a repaired kernel with its strategy, or a failure of kind ``given-up`` with the reason."""


# --- language models -----------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    """One turn of a conversation; ``role`` is system, user or assistant."""

    role: str
    text: str


@dataclass(frozen=True)
class Request:
    """What a model is asked; ``sample`` tells apart several answers to one prompt."""

    messages: tuple[Message, ...]
    schema: str = ""
    temperature: float = 0.0
    max_tokens: int = 4096
    sample: int = 0


@dataclass(frozen=True)
class Reply:
    """What a model answered, and the tokens it took.

    ``cut``: the reply ended at its token limit (None: the model does not say).  ``estimated``: the tokens are an
    estimate, because the server did not count them.
    """

    text: str
    input_tokens: int
    output_tokens: int
    model: str
    cut: bool | None = None
    estimated: bool = False


class Model(Protocol):
    """A language model: one method."""

    @property
    def name(self) -> str: ...

    def complete(self, request: Request) -> Reply:
        """Answer, or raise `cupilot.errors.ModelError`."""


# --- running and keeping -------------------------------------------------------------------


class Executor(Protocol):
    """Where evaluations run; the only place with concurrency."""

    @property
    def slots(self) -> int: ...

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]: ...

    def close(self, *, cancel: bool = False) -> None:
        """Wait for what is running; with ``cancel``, drop what has not started."""


class Store(Protocol):
    """A run on disk, complete at every moment."""

    def begin(self, info: RunInfo) -> None: ...

    def add(self, individual: Individual) -> None:
        """Keep one individual; durable when this returns."""

    def note(self, kind: str, text: str) -> None:
        """Keep one decision with its reason."""

    def finish(self, result: RunResult) -> None: ...

    def info(self) -> RunInfo: ...

    def individuals(self) -> Iterator[Individual]:
        """All individuals in the order they were added."""

    def notes(self) -> Iterator[tuple[str, str]]: ...

    def close(self) -> None: ...
