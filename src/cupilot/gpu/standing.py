"""Where a kernel stands on the roofline: the numbers behind the Prophet's words."""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.gpu.roofline import achieved_fraction, limit_s, place, zone_of
from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.work import task_flop
from cupilot.records import Evaluation, Task

# what most likely binds in a zone, where the timing does not say
LIKELY = {"memory-bound": "dram", "between": "l2", "compute-bound": "fp32", "latency-bound": "latency"}


@dataclass(frozen=True)
class Standing:
    """``task_zone`` is the task's, ``zone`` the kernel's, ``limit`` what binds it.

    ``bound_s`` is the task's lower bound and ``headroom`` the kernel's time over it, infinite when the
    kernel has no time.
    """

    task_zone: str
    zone: str
    limit: str
    intensity: float
    bound_s: float
    headroom: float


def stand(task: Task, evaluation: Evaluation, spec: GpuSpec) -> Standing:
    """Zone by the task's intensity, or latency-bound when the kernel is near no ceiling; limit as timed.

    Bytes are the task's least possible traffic: what a kernel wastes shows in its limit, not in its zone.
    """
    flop = task_flop(task)
    where = place(spec, flop, task.minimal_bytes, task.precision)
    bound_s = limit_s(spec, task, flop)
    timing = evaluation.timing
    if timing is None:
        return Standing(where.zone, where.zone, LIKELY[where.zone], where.intensity, bound_s, float("inf"))
    fraction = achieved_fraction(spec, where, flop, task.minimal_bytes, timing.time_s)
    zone = zone_of(spec, where, fraction)
    limit = timing.limit or LIKELY[zone]
    return Standing(where.zone, zone, limit, where.intensity, bound_s, timing.time_s / bound_s)
