"""The expert as Roofline Prophet: where a kernel stands, in numbers and in one sentence."""

from __future__ import annotations

from cupilot.gpu.spec import GpuSpec
from cupilot.numbers import duration
from cupilot.records import Evaluation, Guidance, Task
from cupilot.strategies import LIMITS
from cupilot.tasks.roofline_position import LIKELY, roofline_position

WORDS = {
    "dram": "traffic to DRAM", "l2": "traffic to L2", "l1": "global accesses through L1", "shared": "shared memory",
    "fp32": "the fp32 units", "tensor": "the tensor cores", "int": "integer arithmetic",
    "sfu": "the special function units", "issue": "instruction issue", "latency": "latency that nothing hides",
    "launch": "the cost of launching",
}  # fmt: skip


def foresee(task: Task, evaluation: Evaluation, spec: GpuSpec) -> Guidance:
    """Where the kernel stands, and which moves would help."""
    at = roofline_position(task, evaluation, spec)
    task_text = (
        f"The task is {at.task_zone} on {spec.name}: {at.intensity:.3g} operations per byte, at least {at.least}."
    )
    # cards know only some limits; for the others, what the zone makes likely
    limit = at.limit if at.limit in LIMITS else LIKELY[at.zone]
    timing = evaluation.timing
    if timing is None:
        return Guidance(at.zone, limit, at.headroom, f"{task_text} The kernel has no time yet; {_aim(limit)}")
    kernel_text = (
        f"The kernel takes {duration(timing.time_s)} ({timing.source}), {at.headroom:.2f} times that, "
        f"and is held back by {WORDS[limit]}; {_aim(limit)}"
    )
    return Guidance(at.zone, limit, at.headroom, f"{task_text} {kernel_text}")


def _aim(limit: str) -> str:
    return f"aim at moves that relieve {limit}."
