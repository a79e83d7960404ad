"""One evaluate(): guard, build, verify, measure, profile."""

from __future__ import annotations

from pathlib import Path

from cupilot.contracts import Watch
from cupilot.evaluation.evaluator import Evaluator
from cupilot.records import Task

__all__ = ["Evaluator", "open_evaluator"]


def open_evaluator(*, cache: Path, sandbox: str, slots: int, watch: Watch, tasks: tuple[Task, ...]) -> Evaluator:
    """The evaluator of a machine or of one worker; executors open it by name (`ExecutorOptions.evaluator`)."""
    from cupilot import devices

    return Evaluator(lambda name: devices.open_device(name, cache, sandbox), slots=slots, watch=watch, tasks=tasks)
