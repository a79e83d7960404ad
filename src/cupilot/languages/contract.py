"""The contract of a language: what a folder of `cupilot.languages`, or a package of somebody else's, has to offer.

`cupilot.testing.LanguageContract` tests it.  Nothing here assumes a compiler, a shared library or a host language.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cupilot.contracts import Built, Outcome
from cupilot.errors import CupilotError
from cupilot.records import Failure, Kernel, Launch, MemoryOperation
from cupilot.records.evaluation import SassFunction
from cupilot.toolchain.abi import TensorValue
from cupilot.toolchain.signature import Parameter

if TYPE_CHECKING:
    from cupilot.vgpu.machine import Machine

# --- how a kernel is called ----------------------------------------------------------------------


@dataclass(frozen=True)
class FunctionCall:
    """The entry is a function.  Its parameters are bound to the task's inputs and tensors by name and order.

    ``parameters`` is None where the source does not show them.  A function that fills its outputs returns nothing and
    takes them last.
    """

    parameters: tuple[Parameter, ...] | None
    fills_outputs: bool = False


@dataclass(frozen=True)
class ModuleCall:
    """The entry is a class that is constructed like the task's ``Model`` and then called with the task's inputs.

    The values of a call are the constructor's arguments as Python text, the inputs, the names of the task's parameters
    and buffers, those tensors, and the text of the task in the version that is run.
    """


Convention = FunctionCall | ModuleCall


# --- building ------------------------------------------------------------------------------------

Results = tuple[Outcome | Failure, ...]
Attempt = Callable[[Built], Results]
"""Runs a build in a worker process: one result for each call."""


@dataclass(frozen=True)
class Target:
    """What kernels are built for.

    ``arch`` is the compilers' name of the GPU, such as ``sm_80``.  Builds are kept below ``cache``, by content.
    ``runtime`` is the CUDA runtime of a real GPU; None for a virtual one, whose worker process has its own.
    ``sandbox`` is how compilers are confined: auto, bubblewrap or landlock.
    """

    arch: str
    cache: Path
    runtime: Path | None = None
    sandbox: str = "auto"


class CandidateFailed(CupilotError):
    """A candidate failed in a worker process, where a `Failure` cannot be returned; it is reported as it is."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Program(Protocol):
    """A candidate in a worker process; untrusted host code in native libraries runs in the machine's `host` process.

    `Language.program` makes it while the process still has its rights; all other methods are called after the process
    has given them up.  They raise `CandidateFailed`, or `WrapperError` where findings of the virtual GPU explain more
    than the error itself.
    """

    def files(self) -> tuple[Path, ...]:
        """Files and folders that must stay readable, such as modules that are imported later."""

    def load(self, machine: Machine, seconds_left: float) -> None:
        """Load the candidate's code.  Work on the device that a call should pay for is a failure."""

    def entries(self) -> tuple[tuple[str, str], ...]:
        """Functions and their signatures, such as ``("forward", "(Tensor, int) -> Tensor")``; empty if not known."""

    def prepare(self, values: Sequence[Any], seconds_left: float) -> None:
        """What has to be done before a call with these values and is not counted."""

    def call(self, entry: str, values: Sequence[Any]) -> tuple[TensorValue, ...]:
        """Call it once; launches and operations on the virtual GPU are counted."""

    def operations(self) -> tuple[MemoryOperation, ...]:
        """Operations of the last call that the virtual GPU has not seen."""

    def release(self) -> None:
        """Drop the results of the last call."""


# --- languages -----------------------------------------------------------------------------------


class Language(Protocol):
    """A language that kernels are written in.

    Thread-safe and without state.  Methods read sources as text and never run them: a candidate's own code runs in
    worker processes alone, in `program`.
    """

    name: str
    """As `Kernel.language` has it."""
    suffix: str
    """Of its files, such as ``.cu``."""
    fences: tuple[str, ...]
    """Words after the fence of a block of code in Markdown; the first stands in prompts."""
    options: tuple[str, ...]
    """What `Kernel.options` may hold."""
    on_real_gpus: bool
    """Whether `build` with a runtime gives a library for `cupilot.toolchain.abi`, which real GPUs can run."""
    prompts: Path
    """A folder with ``contract.j2`` and ``rules.j2``: what a file must offer, and how to write it."""

    def detect(self, source: str) -> float:
        """How certain it is that a source is in this language, from 0 to 1; of several languages the surest wins."""

    def kernels_in(self, source: str) -> tuple[str, ...]:
        """Names of the kernels in a source; comments do not count."""

    def fault(self, kernel: Kernel) -> Failure | None:
        """A mistake that the text alone shows, such as that there is no kernel in it; None when nothing is found."""

    def convention(self, kernel: Kernel) -> Convention:
        """How the entry is called."""

    def source_lines(self, kernel: Kernel, launch: Launch) -> list[str]:
        """The lines that a launch's costs refer to, from line 1; empty where the file does not have the line."""

    def extension(self, kernel: Kernel) -> Kernel | None:
        """The same kernel as a torch extension in CUDA, for export; None where there is none."""

    def build(self, kernel: Kernel, target: Target, load: Attempt) -> Built | Failure:
        """Compile, or take what the cache has.  ``load`` loads an unfinished build in a worker, with an empty call."""

    def run(self, built: Built, target: Target, attempt: Attempt) -> Results:
        """The results of ``attempt``; of a build made larger, where the calls themselves show what is missing."""

    def sass(self, built: Built, target: Target) -> tuple[SassFunction, ...]:
        """How the machine code makes the PTX's loads and stores; nothing where that is not known."""

    def program(self, library: Path, folder: Path) -> Program:
        """A build's `Built.library` in a worker process; ``folder`` is the worker's own."""
