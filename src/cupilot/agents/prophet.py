"""The Roofline Prophet's numbers: zone, limit and headroom are computed, never asked of a model."""

from __future__ import annotations

from cupilot.gpu.spec import GpuSpec
from cupilot.numbers import duration
from cupilot.records import Evaluation, Guidance, Task
from cupilot.tasks.roofline_position import roofline_position


def compute_guidance(task: Task, evaluation: Evaluation, spec: GpuSpec) -> Guidance:
    """The guidance without a sentence about what to aim for."""
    at = roofline_position(task, evaluation, spec)
    bound = f"the task has {at.intensity:.3g} operations per byte and takes at least {at.least}"
    timing = evaluation.timing
    if timing is None:
        return Guidance(at.zone, at.limit, at.headroom, f"On {spec.name}, {bound}.")
    sentence = f"On {spec.name}, {bound}; the kernel takes {duration(timing.time_s)}, {at.headroom:.2f} times that."
    return Guidance(at.zone, at.limit, at.headroom, sentence)
