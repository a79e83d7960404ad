"""PyTorch's time for a task: recorded where the task is a known problem on that GPU, else modelled.

The model lists the kernels that eager mode and ``torch.compile`` launch (`cupilot.evaluation.pytorch`), each with its
bytes, its arithmetic and how it fills the GPU; docs/baseline.md says how near it comes to recorded times.
"""

from __future__ import annotations

from collections.abc import Mapping

from cupilot.evaluation.pytorch.boards import board
from cupilot.evaluation.pytorch.eager import eager_run
from cupilot.evaluation.pytorch.inductor import compiled_run
from cupilot.evaluation.pytorch.recorded import SPREAD, find_recorded
from cupilot.evaluation.pytorch.run import Run
from cupilot.evaluation.pytorch.uncertainty import uncertainty
from cupilot.evaluation.speed_of_light import speed_of_light
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Task, Timing
from cupilot.tasks.operators import operator

UNKNOWN = "PyTorch's time is unknown: the module's graph could not be exported"
UNCERTAIN = 0.5
"""Modelled times with more uncertainty than this say so in their note."""


DEVICE_SHARE = 0.8
"""Recorded times count the host's own time as well; they are used where the device's share is at least this."""


def baseline(task: Task, spec: GpuSpec, device: str) -> Timing | None:
    """PyTorch's time in eager mode, or None where nothing is known of the operators."""
    if not task.graph:
        return None
    run, known = eager_run(task, spec), find_recorded(task, spec)
    if known is not None and run.device_share >= DEVICE_SHARE:
        return recorded(known.eager_s, known.problem, device, "PyTorch eager")
    return modelled(task, spec, device, run, "PyTorch eager")


def compiled_baseline(task: Task, spec: GpuSpec, device: str) -> Timing | None:
    """The time of the module after ``torch.compile``, or None where nothing is known of the operators."""
    if not task.graph:
        return None
    run, known = compiled_run(task, spec), find_recorded(task, spec)
    if known is not None and known.compiled_s is not None and run.device_share >= DEVICE_SHARE:
        return recorded(known.compiled_s, known.problem, device, "torch.compile")
    return modelled(task, spec, device, run, "torch.compile")


def recorded(time_s: float, problem: str, device: str, what: str) -> Timing:
    return Timing(time_s, "recorded", device, note=f"{what}, recorded: {problem}", uncertainty=SPREAD)


def modelled(task: Task, spec: GpuSpec, device: str, run: Run, what: str) -> Timing:
    """A run as a timing; the breakdown is by operator.

    Never less than the speed of light: what the task must move and multiply takes PyTorch as long as anybody.
    """
    parts: dict[str, float] = {}
    limits: dict[str, float] = {}
    targets: Mapping[str, str] = {op.name: op.target for op in task.graph}
    for kernel in run.kernels:
        name = f"{kernel.op} ({targets.get(kernel.op, kernel.family)})"
        parts[name] = parts.get(name, 0.0) + kernel.time_s
        limits[kernel.limit] = limits.get(kernel.limit, 0.0) + kernel.time_s
    busy_s = sum(parts.values())
    launch_s = max(0.0, run.time_s - busy_s)
    breakdown = [*parts.items(), ("launch", launch_s)] if launch_s > 0 or not parts else [*parts.items()]
    limits["launch"] = launch_s
    time_s = sum(t for _, t in breakdown)
    bound = speed_of_light(task, spec)
    if time_s < bound.time_s:
        breakdown.append((bound.reason, bound.time_s - time_s))
    unsure = uncertainty(run, board(spec))
    return Timing(
        max(time_s, bound.time_s), "modelled", device, max(limits, key=lambda name: limits[name]), tuple(breakdown),
        _note(task, run, what, unsure), unsure,
    )  # fmt: skip


def _note(task: Task, run: Run, what: str, unsure: float) -> str:
    guessed = sorted({
        op.target for op in task.graph for kernel in run.kernels if kernel.op == op.name and kernel.family == "other"
    })  # fmt: skip
    note = f"{what}, modelled" + (f"; from bytes alone: {', '.join(guessed)}" if guessed else "")
    if unsure > UNCERTAIN:
        slow = max(run.kernels, key=lambda kernel: kernel.time_s, default=None)
        found = next(
            (operator(op.target).name for op in task.graph if slow is not None and op.name == slow.op), "launch"
        )
        note += f"; nine of ten lie within {1.0 + unsure:.2g}x, because of {found}"
    return note
