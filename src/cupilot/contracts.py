"""The seams of the program: what a plug-in has to offer, and nothing about how.

Every protocol here has a reusable test class in `cupilot.testing`; a new device, executor, store,
model or set of agents is right when that class passes on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
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
    EvaluationRequest,
    Failure,
    Guidance,
    Individual,
    Kernel,
    Outline,
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
from cupilot.records.measurement import State

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


# --- measuring -----------------------------------------------------------------------------


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
    """Where evaluations run: threads of this process, or workers on many machines.

    Thread-safe: any thread may submit, cancel or wait.  Requests and results are plain records, so an executor may
    send them to another process.  Whoever opened an executor closes it, once.  An executor keeps nothing: a result
    exists when its future is done, and storing it is the caller's business.
    """

    @property
    def slots(self) -> int:
        """Evaluations that can run at the same time now; 0 while no worker is there."""

    def submit(self, request: EvaluationRequest) -> Future[Evaluation]:
        """Queue one evaluation; requests start in the order they were submitted.

        A candidate that fails is an `Evaluation` with a failure.  The future raises a `CupilotError` when the request
        itself cannot be carried out.  It can be cancelled until it starts.  When a worker dies, its requests are
        evaluated again elsewhere; a future is completed once.
        """

    def close(self, *, cancel: bool = False) -> None:
        """Wait for what was submitted; with ``cancel``, drop what has not started and wait for the rest."""

    def abandon(self) -> bool:
        """Drop what has not started and do not wait for the rest; returns whether anything is still running."""

    @property
    def busy(self) -> bool:
        """After `abandon`: whether anything is still running in this process."""


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """What an executor is opened with; each kind of executor takes what concerns it.

    ``slots`` is how many evaluations run at a time on this machine.  ``scheduler`` is the address of a cluster; empty
    starts one here.  Builds are cached below ``cache``, and candidates are confined by ``sandbox``.  ``tasks`` were
    loaded already and need not be loaded again in this process.  ``watch`` sees the steps of evaluations that run in
    this process; ``notify`` gets a sentence when the user should know something, such as that no worker is left.

    ``evaluator`` is ``module:function`` of what opens the evaluator where evaluations run: it takes the keywords
    ``cache``, ``sandbox``, ``slots``, ``watch`` and ``tasks`` and returns a function of one request.  It is named
    rather than passed, because workers are other processes.
    """

    slots: int
    cache: Path
    sandbox: str = "auto"
    scheduler: str = ""
    tasks: tuple[Task, ...] = ()
    watch: Watch = lambda step: None
    notify: Callable[[str], None] = lambda sentence: None
    evaluator: str = "cupilot.evaluation:open_evaluator"


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
