"""The speed of light: a time in which a task's bytes cannot be moved, or its operations be done, is not believed."""

from __future__ import annotations

from cupilot.gpu.roofline import Bound
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Failure, Op, Task, TensorSpec, Timing
from cupilot.tasks.flop import dense_products
from cupilot.tasks.lower_bound import product_precision
from cupilot.tasks.operators import operator

TOLERANCE = 0.97
"""How far below its bound a time may lie: clocks and bandwidths of datasheets are rounded."""
BOOST = 1.25
"""How far above the datasheet's clock a real GPU may run."""
SPLIT_PRODUCTS = 3.0
"""Products of half-width numbers that it takes to multiply two of full width."""
WINOGRAD = 4.0
"""What clever convolutions save at most in practice (tiles of 4x4 for filters of 3x3)."""
STRASSEN = 8.0 / 7.0


def least_operations(task: Task) -> float:
    """Operations of matrix products and convolutions of dense operands, as cleverly as they can be done."""
    return sum(
        flop / (WINOGRAD if operator(op.target).is_convolution else STRASSEN) for op, flop in dense_products(task)
    )


PARTS = frozenset({"slice", "select", "narrow", "index", "index_select", "gather", "take", "embedding", "diagonal"})
"""Operators that need no more of their first operand than they give back."""
TRIANGLES = {"tril": 0.5, "triu": 0.5}


def least_bytes(task: Task) -> int:
    """Bytes that must move: of arguments that only operators on parts of them use, what these need."""
    total = float(task.output_bytes)
    for argument in task.arguments:
        if argument.tensor is None:
            continue
        users = [op for op in task.graph if argument.name in op.operands]
        needed = sum(_needed(op, argument.name, argument.tensor) for op in users)
        total += min(argument.tensor.bytes, needed) if users else argument.tensor.bytes
    return round(total)


def _needed(op: Op, name: str, tensor: TensorSpec) -> float:
    about = operator(op.target).name
    if op.operands[0] != name or op.operands.count(name) > 1:
        return float(tensor.bytes)
    if about in PARTS:
        return tensor.bytes / max(tensor.elements, 1) * op.output.elements
    return TRIANGLES.get(about, 1.0) * tensor.bytes


def fastest_flop_per_s(spec: GpuSpec, precision: str) -> float:
    """The fastest unit that reaches a precision: tensor cores too, with several products for one of float32."""
    if precision in ("fp16", "bf16"):
        return spec.fp16_tensor_flop_per_s
    if precision == "tf32":
        return max(spec.tf32_tensor_flop_per_s, spec.fp32_flop_per_s)
    return max(spec.fp32_flop_per_s, spec.fp16_tensor_flop_per_s / SPLIT_PRODUCTS)


def speed_of_light(task: Task, spec: GpuSpec) -> Bound:
    """The shortest time that a task can take on a modelled GPU."""
    return Bound(
        least_bytes(task), spec.dram_bytes_per_s, least_operations(task),
        fastest_flop_per_s(spec, product_precision(task)),
    )  # fmt: skip


def speed_of_light_failure(task: Task, timing: Timing, spec: GpuSpec) -> Failure | None:
    """A failure with the arithmetic in its message, or None."""
    measured = timing.source == "measured"
    # the results of a call may still be in the L2 when it is over
    moved = least_bytes(task) - (min(task.output_bytes, spec.l2_bytes) if measured else 0)
    rate = fastest_flop_per_s(spec, product_precision(task)) * (BOOST if measured else 1.0)
    bound = Bound(moved, spec.dram_bytes_per_s, least_operations(task), rate)
    if timing.time_s >= TOLERANCE * bound.time_s:
        return None
    message = f"{timing.time_s * 1e3:.4g} ms is impossible: {bound.reason} takes {bound.time_s * 1e3:.4g} ms"
    return Failure("time", "faster-than-light", message)
