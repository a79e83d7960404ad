"""Frozen dataclasses: every concept that crosses a module boundary, one record each."""

from cupilot.records.codec import from_plain, to_plain
from cupilot.records.evaluation import (
    INTENSIVE,
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
from cupilot.records.finding import Access, Finding, OtherAccess, access_text
from cupilot.records.kernel import Kernel
from cupilot.records.measurement import Comparison, Interval, Measurement
from cupilot.records.pool import PoolRecord, Sizes
from cupilot.records.proof import Proof
from cupilot.records.request import EvaluationRequest, TaskSource
from cupilot.records.run import Budget, Individual, Outline, RunInfo, RunResult
from cupilot.records.scope import Difference, Scope
from cupilot.records.strategy import Card, CounterRatio, Evidence, Guidance, Move, Parameter, Strategy, Value
from cupilot.records.task import ITEM_BYTES, PRECISIONS, Argument, Op, Scalar, Task, TensorSpec
from cupilot.records.turn import ToolBudget, ToolTotals, ToolUse, Turn

__all__ = [
    "INTENSIVE", "ITEM_BYTES", "PRECISIONS", "Access", "Argument", "Budget", "Card", "Check", "Comparison",
    "Counter", "CounterRatio", "Difference", "Evaluation", "EvaluationRequest", "Evidence", "Failure", "Finding",
    "Guidance", "Individual", "Interval", "Kernel", "Launch", "LineCost", "Measurement", "MemoryOperation",
    "Move", "Op", "OtherAccess", "Outline", "Parameter", "PoolRecord", "Profile", "Proof", "Resources", "RunInfo",
    "RunResult", "Scalar", "Scope", "Sizes", "Strategy", "Task", "TaskSource", "TensorSpec", "Timing",
    "ToolBudget", "ToolTotals", "ToolUse", "Turn", "Value", "access_text", "from_plain", "to_plain",
]  # fmt: skip
