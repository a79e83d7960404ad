"""What a worker process is asked and what it answers: records in JSON files, arrays beside them.

Arguments are raw bytes, so that a worker can map them as device memory.  Outputs are ``.npy`` files:
``answerN.I.npy`` with the whole output, or, when parts of it were not written, ``answerN.I.part.npy``
with the written elements and ``answerN.I.where.npy`` with their flat positions.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.records import ITEM_BYTES, Failure, Profile, Resources, Scalar, TensorSpec
from cupilot.records.evaluation import SassFunction


@dataclass(frozen=True)
class JobArgument:
    """A tensor in a file, or a scalar."""

    file: str = ""
    tensor: TensorSpec | None = None
    value: Scalar | None = None


@dataclass(frozen=True)
class JobCall:
    label: str
    arguments: tuple[JobArgument, ...]
    outputs: tuple[TensorSpec, ...]
    sample_budget: int | None


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
    sass: tuple[SassFunction, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The result of one call."""

    failure: Failure | None = None
    profile: Profile | None = None
    outputs: tuple[TensorSpec, ...] = ()


# bfloat16 has no NumPy type; its bits travel as uint16
NUMPY = {name: name for name in ITEM_BYTES} | {"bfloat16": "uint16"}
