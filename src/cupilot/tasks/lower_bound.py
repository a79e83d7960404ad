"""The least time that a task can take on a GPU: its bytes and its operations against the roofline.

Search, prompts, commands, pages and benchmarks all take it from `task_limit`.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.gpu.roofline import Bound, ceilings
from cupilot.gpu.spec import GpuSpec
from cupilot.numbers import duration
from cupilot.records import Task
from cupilot.tasks.flop import needed_flop
from cupilot.tasks.second_read import second_read_bytes

SPLIT_PRODUCTS = 3.0
"""Products of tf32 numbers that make one of float32: of the two parts of each factor, all but the two small ones."""


@dataclass(frozen=True)
class TaskLimit:
    """The least time of a task on a GPU, with its arithmetic.

    ``attainable`` is at the bandwidth that streaming kernels reach, and is what a search aims at, stops near and is
    measured against; ``datasheet`` is at the peak of the datasheet, and no kernel of this task reaches it.  Where
    operations bind the two are the same.
    """

    attainable: Bound
    datasheet: Bound

    @property
    def time_s(self) -> float:
        return self.attainable.time_s

    def __str__(self) -> str:
        """Such as ``0.158 ms (0.132 ms at the datasheet's bandwidth)``."""
        text, datasheet = duration(self.time_s), duration(self.datasheet.time_s)
        return text if datasheet == text else f"{text} ({datasheet} at the datasheet's bandwidth)"


def task_limit(spec: GpuSpec, task: Task, flop: float | None = None) -> TaskLimit:
    """What a task takes at least: bytes that must move, operations that must be done (``flop``: another count of them).

    fp32 counts against the CUDA cores, or, of matrix products, against three products of tf32 numbers where those are
    faster; other precisions against the tensor cores.  Data that is already in the L2 is not considered, what no chip
    could hold until it is needed again is.
    """
    needed, peak = needed_flop(task) if flop is None else flop, _peak(spec, task)
    read_bytes = task.input_bytes + second_read_bytes(task, spec)
    moved = read_bytes + task.output_bytes
    reached = moved / spec.dram_s(read_bytes, task.output_bytes) if moved else spec.dram_read_bytes_per_s
    return TaskLimit(Bound(moved, reached, needed, peak), Bound(moved, spec.dram_bytes_per_s, needed, peak))


def product_precision(task: Task) -> str:
    """What tensor cores take the task's factors for: tensors of 16-bit numbers as they are, whatever the precision."""
    stored = {argument.tensor.dtype for argument in task.arguments if argument.tensor is not None}
    narrow = {"float16": "fp16", "bfloat16": "bf16"}
    return narrow.get(stored.pop(), task.precision) if len(stored) == 1 else task.precision


def _peak(spec: GpuSpec, task: Task) -> float:
    core, tensor = ceilings(spec, task.precision)
    if task.precision != "fp32":
        return max(tensor, ceilings(spec, product_precision(task))[1])
    if not needed_flop(task):
        return core
    precision = product_precision(task)
    if precision != "fp32":
        return ceilings(spec, precision)[1]
    return max(core, spec.tf32_tensor_flop_per_s / SPLIT_PRODUCTS)
