"""What a worker process is asked and what it answers.

Arguments are files of raw bytes, so that a worker can map them as device memory.  Answers come over the channel of
`process`: the record in JSON, then for each output where its written elements stand (`Runs`), unless all are
there, and the elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cupilot.places import Slices
from cupilot.records import Failure, Profile, Resources, Scalar, TensorSpec
from cupilot.records.evaluation import SassFunction


@dataclass(frozen=True)
class JobArgument:
    """A tensor in a file (which repeats when it is shorter), a list of arguments, a scalar, or nothing at all."""

    file: str = ""
    tensor: TensorSpec | None = None
    value: Scalar | None = None
    items: tuple[JobArgument, ...] | None = None


@dataclass(frozen=True)
class JobCall:
    label: str
    arguments: tuple[JobArgument, ...]
    outputs: tuple[TensorSpec, ...]
    sample_budget: int | None
    order: int = 0
    lenient: bool = False
    sample_seed: int = 0
    looked_at: Slices | None = None


@dataclass(frozen=True)
class Job:
    """All calls of one candidate, to be run in one process."""

    library: str
    entry: str
    runtime: str
    gpu: str
    device: str
    resources: tuple[tuple[str, Resources], ...]
    calls: tuple[JobCall, ...]
    timeout_s: float
    sass: tuple[SassFunction, ...]
    language: str
    host: str
    """The program that candidates' host code runs in."""

    def files(self) -> Iterator[Path]:
        """The files that arguments are in."""
        waiting = [argument for call in self.calls for argument in call.arguments]
        while waiting:
            argument = waiting.pop()
            waiting += argument.items or ()
            if argument.file:
                yield Path(argument.file)


@dataclass(frozen=True)
class Answer:
    """The result of one call; ``whole`` says of which outputs all elements were written, ``aliases`` where they lie,
    ``launches`` how many launches stored to them, ``stored`` how many of their elements were stored to.

    Of a lenient call that did something wrong there are both a failure and a profile.
    """

    failure: Failure | None = None
    profile: Profile | None = None
    outputs: tuple[TensorSpec, ...] = ()
    whole: tuple[bool, ...] = ()
    aliases: tuple[str, ...] = ()
    launches: tuple[int, ...] = ()
    stored: tuple[int, ...] = ()
