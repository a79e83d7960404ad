"""The least time that a task can take on a GPU: its bytes and its operations against the roofline."""

from __future__ import annotations

from cupilot.gpu.roofline import Bound, ceilings
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Task
from cupilot.tasks.flop import needed_flop
from cupilot.tasks.second_read import second_read_bytes

SPLIT_PRODUCTS = 3.0
"""Products of tf32 numbers that make one of float32: of the two parts of each factor, all but the two small ones."""


def lower_bound(spec: GpuSpec, task: Task, flop: float) -> Bound:
    """What a task takes at least: bytes that must move, operations that must be done, at peak.

    fp32 counts against the CUDA cores, or, of matrix products, against three products of tf32 numbers where those are
    faster; other precisions against the tensor cores.  Data that is already in the L2 is not considered, what no chip
    could hold until it is needed again is.
    """
    return Bound(task.minimal_bytes + second_read_bytes(task, spec), spec.dram_bytes_per_s, flop, _peak(spec, task))


def reachable_s(spec: GpuSpec, task: Task, flop: float) -> float:
    """The least time with the bandwidth that streaming kernels reach: what a search may hope for."""
    read_bytes = task.input_bytes + second_read_bytes(task, spec)
    return max(spec.dram_s(read_bytes, task.output_bytes), flop / _peak(spec, task))


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
