"""Frozen dataclasses: every concept that crosses a module boundary, one record each."""

from cupilot.records.codec import from_plain, to_plain
from cupilot.records.evaluation import (
    Check,
    Counter,
    Evaluation,
    Failure,
    Launch,
    LineCost,
    MemoryOperation,
    Profile,
    Resources,
    Timing,
)
from cupilot.records.kernel import Kernel
from cupilot.records.run import Individual, RunInfo, RunResult
from cupilot.records.strategy import Card, Guidance, Move, Parameter, Strategy, Value
from cupilot.records.task import ITEM_BYTES, Argument, Op, Scalar, Task, TensorSpec

__all__ = [
    "ITEM_BYTES", "Argument", "Card", "Check", "Counter", "Evaluation", "Failure", "Guidance",
    "Individual", "Kernel", "Launch", "LineCost", "MemoryOperation", "Move", "Op", "Parameter",
    "Profile", "Resources", "RunInfo", "RunResult", "Scalar", "Strategy", "Task", "TensorSpec",
    "Timing", "Value", "from_plain", "to_plain",
]  # fmt: skip
