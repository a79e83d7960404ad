"""The Roofline Prophet's numbers: zone, limit and headroom are computed, never asked of a model."""

from __future__ import annotations

from cupilot.gpu.roofline import achieved_fraction, limit_s, place, zone_of
from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.work import task_flop
from cupilot.records import Evaluation, Guidance, Task

# what most likely binds in a zone, where the timing does not say
LIKELY = {"memory-bound": "dram", "between": "l2", "compute-bound": "fp32", "latency-bound": "latency"}


def computed(task: Task, evaluation: Evaluation, spec: GpuSpec) -> Guidance:
    """Zone by the task's least traffic, or latency-bound when the kernel is near no ceiling; limit as timed.

    ``headroom`` is the kernel's time over the task's lower bound, infinite when it has no time.
    """
    flop = task_flop(task)
    where = place(spec, flop, task.minimal_bytes, task.precision)
    bound_s = limit_s(spec, task, flop)
    bound = f"the task has {where.intensity:.3g} operations per byte and takes at best {bound_s * 1e3:.4g} ms"
    timing = evaluation.timing
    if timing is None:
        return Guidance(where.zone, LIKELY[where.zone], float("inf"), f"On {spec.name}, {bound}.")
    fraction = achieved_fraction(spec, where, flop, task.minimal_bytes, timing.time_s)
    zone = zone_of(spec, where, fraction)
    limit = timing.limit or LIKELY[zone]
    headroom = timing.time_s / bound_s
    sentence = f"On {spec.name}, {bound}; the kernel takes {timing.time_s * 1e3:.4g} ms, {headroom:.2f} times that."
    return Guidance(zone, limit, headroom, sentence)
