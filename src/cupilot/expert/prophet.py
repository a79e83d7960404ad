"""The expert as Roofline Prophet: where a kernel stands, in numbers and in one sentence."""

from __future__ import annotations

from cupilot.gpu.roofline import achieved_fraction, limit_s, place, zone_of
from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.work import task_flop
from cupilot.records import Evaluation, Guidance, Task
from cupilot.strategies import LIMITS

# what most likely binds in a zone, where the timing does not say
LIKELY = {"memory-bound": "dram", "between": "l2", "compute-bound": "fp32", "latency-bound": "latency"}

WORDS = {
    "dram": "traffic to DRAM", "l2": "traffic to L2", "l1": "global accesses through L1", "shared": "shared memory",
    "fp32": "the fp32 units", "int": "integer arithmetic", "sfu": "the special function units",
    "issue": "instruction issue", "latency": "latency that nothing hides", "launch": "the cost of launching",
}  # fmt: skip


def foresee(task: Task, evaluation: Evaluation, spec: GpuSpec) -> Guidance:
    """Zone by the task's intensity, or latency-bound when the kernel is near no ceiling.

    Bytes are the task's least possible traffic: what a kernel wastes shows in its limit, not in its
    zone.  ``headroom`` is the kernel's time over the task's lower bound (infinite when untimed).
    """
    flop = task_flop(task)
    where = place(spec, flop, task.minimal_bytes, task.precision)
    bound_s = limit_s(spec, task, flop)
    task_text = (
        f"The task is {where.zone} on {spec.name}: {where.intensity:.3g} operations per byte, "
        f"at best {bound_s * 1e3:.4g} ms."
    )
    timing = evaluation.timing
    if timing is None:
        limit = LIKELY[where.zone]
        return Guidance(where.zone, limit, float("inf"), f"{task_text} The kernel has no time yet; {_aim(limit)}")
    fraction = achieved_fraction(spec, where, flop, task.minimal_bytes, timing.time_s)
    zone = zone_of(spec, where, fraction)
    limit = timing.limit if timing.limit in LIMITS else LIKELY[zone]
    headroom = timing.time_s / bound_s
    kernel_text = (
        f"The kernel takes {timing.time_s * 1e3:.4g} ms ({timing.source}), {headroom:.2f} times that, "
        f"and is held back by {WORDS[limit]}; {_aim(limit)}"
    )
    return Guidance(zone, limit, headroom, f"{task_text} {kernel_text}")


def _aim(limit: str) -> str:
    return f"aim at moves that relieve {limit}."
