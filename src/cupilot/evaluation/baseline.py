"""PyTorch eager's time for a task, modelled: one library kernel per operator of the graph.

Covers pointwise operators and simple reductions (a pass over memory), matrix products (the vendor's
library), attention (one kernel, its products at the library's rate for large ones), softmax over the last
dimension, and views (free).  Convolutions go by their operations at the rate that most recorded ones have,
which single ones miss by a factor of up to five either way; norms, pooling, scans and whatever else is not
listed by their bytes alone.  The note says so.  Not covered: operators that eager mode runs as several
kernels, the host's own time per call, and data that stays in the L2 between operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from cupilot.evaluation.speed_of_light import speed_of_light
from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.timing import GAP_S, Parts, combine, with_minimum
from cupilot.records import ITEM_BYTES, Op, Task, TensorSpec, Timing
from cupilot.tasks.flop import op_flop, tensors
from cupilot.tasks.operators import base_name, operator

MODELLED = frozenset({"pointwise", "copy", "reduction", "product", "softmax", "convolution", "attention"})
"""Kinds of operators whose time is more than a guess from their bytes."""
SOFTMAX_WARP_ROW = 1024
"""Rows of up to this many elements are kept in the registers of one warp."""
PRODUCT_TILES = ((128, 1.0), (64, 0.8), (32, 0.5))
"""Edges of the library's tiles, and the share of its large-product speed that a kernel with them has."""
SPLIT_K = 256
"""The library splits long inner dimensions into pieces of at least this length when tiles are few."""
TENSOR_SHARE = 0.75
"""Share of the tensor cores' peak that library products in half precision reach."""

CONVOLUTION_SHARE = 0.16
"""Share of the tensor cores' peak that PyTorch's convolutions reach, which use tf32 unless told otherwise (A100: six
of twenty recorded ones have 24 to 28 of 156 Tflop/s, the others 1.5 to 112)."""


UNKNOWN = "PyTorch's time is unknown: the module's graph could not be exported"
SPREAD = {"pointwise": 0.15, "copy": 0.15, "reduction": 0.3, "product": 0.25, "softmax": 0.3, "attention": 0.4}
CONVOLUTION_SPREAD, GUESSED_SPREAD = 1.0, 0.5
"""How far off an operator's time may be in nine of ten cases, as a share of it; judged from the recorded times of level
1 on an A100 (within 1.25x for half of the problems, convolutions up to five times off)."""


def baseline(task: Task, spec: GpuSpec, device: str) -> Timing | None:
    """The sum of the operators' kernel times and the gaps between them; the breakdown is by operator.

    None where nothing is known of the operators.  Never less than the speed of light: what the task must move and
    multiply takes PyTorch as long as anybody.
    """
    if not task.graph:
        return None
    known, sizes = tensors(task), read_bytes(task)
    steps = [(op, op_parts(op, known, sizes, spec)) for op in task.graph if not operator(op.target).is_view]
    breakdown = [(f"{op.name} ({op.target})", sum(parts.values())) for op, parts in steps]
    if len(steps) != 1:
        # a graph of nothing but views still costs a call
        breakdown.append(("launch", GAP_S * (len(steps) - 1) if steps else spec.launch_overhead_s))
    limits: Parts = {"launch": 0.0}
    for _, parts in steps:
        for name, time_s in parts.items():
            limits[name] = limits.get(name, 0.0) + time_s
    guessed = sorted({op.target for op, _ in steps if not is_modelled(op)})
    note = "PyTorch eager, modelled" + (f"; from bytes alone: {', '.join(guessed)}" if guessed else "")
    if any(operator(op.target).is_convolution for op, _ in steps):
        note += "; convolutions at their most usual rate, up to five times off"
    limit = max(limits, key=lambda name: limits[name])
    time_s = sum(t for _, t in breakdown)
    bound = speed_of_light(task, spec)
    if time_s < bound.time_s:
        breakdown.append((bound.reason, bound.time_s - time_s))
    return Timing(max(time_s, bound.time_s), "modelled", device, limit, tuple(breakdown), note, _uncertainty(steps))


def _uncertainty(steps: Sequence[tuple[Op, Parts]]) -> float:
    """The mean of what its operators have, by their times."""
    total = sum(sum(parts.values()) for _, parts in steps)
    return sum(_spread(op) * sum(parts.values()) for op, parts in steps) / total if total else GUESSED_SPREAD


def _spread(op: Op) -> float:
    found = operator(op.target)
    return CONVOLUTION_SPREAD if found.is_convolution else SPREAD.get(found.kind, GUESSED_SPREAD)


def is_modelled(op: Op) -> bool:
    return operator(op.target).kind in MODELLED


def read_bytes(task: Task) -> dict[str, float]:
    """What reading each tensor costs: a view has no more bytes than the tensor it looks at."""
    sizes = {a.name: float(a.tensor.bytes) for a in task.arguments if a.tensor is not None}
    for op in task.graph:
        sources = [sizes[o] for o in op.operands if o in sizes]
        is_view = operator(op.target).is_view and sources
        sizes[op.name] = min(float(op.output.bytes), sources[0]) if is_view else float(op.output.bytes)
    return sizes


def op_parts(op: Op, known: dict[str, TensorSpec], sizes: dict[str, float], spec: GpuSpec) -> Parts:
    """Parts of one operator's kernel time: arithmetic, memory, and the fixed cost of a launch."""
    kind = operator(op.target).kind
    read = sum(sizes[o] for o in dict.fromkeys(op.operands) if o in sizes)
    if kind == "softmax":
        read *= softmax_reads(op.output, spec)
    times = {"dram": spec.dram_s(read, op.output.bytes)}
    if kind == "product":
        half = op.output.dtype in ("float16", "bfloat16")
        times["tensor" if half else "fp32"] = product_s(op, known, spec, half)
    elif kind == "attention":
        half = op.output.dtype in ("float16", "bfloat16")
        times["tensor" if half else "fp32"] = op_flop(op, known) / product_rate(spec, half)
    elif kind == "convolution":
        tensor = spec.tf32_tensor_flop_per_s if op.output.dtype == "float32" else spec.fp16_tensor_flop_per_s
        rate = CONVOLUTION_SHARE * tensor or spec.sgemm_flop_per_s
        times["tensor" if tensor else "fp32"] = op_flop(op, known) / rate
    return with_minimum(combine(times), spec)


def softmax_reads(tensor: TensorSpec, spec: GpuSpec) -> int:
    """PyTorch reads a row once if it can keep it in registers or shared memory, else for maximum, sum and result."""
    row = tensor.shape[-1] if tensor.shape else 1
    fits = row <= SOFTMAX_WARP_ROW or row * ITEM_BYTES[tensor.dtype] < spec.shared_bytes_per_block
    return 1 if fits else 3


def product_rate(spec: GpuSpec, half: bool) -> float:
    """Operations per second of the library's large products."""
    return spec.fp16_tensor_flop_per_s * TENSOR_SHARE if half else spec.sgemm_flop_per_s


def product_s(op: Op, known: dict[str, TensorSpec], spec: GpuSpec, half: bool) -> float:
    """A matrix product at the library's speed for large ones, less where tiles do not fill the SMs."""
    flop = op_flop(op, known)
    rows, columns = rows_and_columns(op, known)
    inner = flop / (2.0 * op.output.elements)
    batch = op.output.elements / (rows * columns)
    peak = product_rate(spec, half)

    def tiled_s(edge: int, share: float) -> float:
        pieces = max(1, int(inner // SPLIT_K))
        tiles = batch * ceil(rows / edge) * ceil(columns / edge) * pieces
        tile_flop = 2.0 * edge * edge * inner / pieces
        return ceil(tiles / spec.sms) * tile_flop / (peak * share / spec.sms)

    # a dimension thinner than a tile is a matrix-vector product in disguise: arithmetic does not bind
    if min(rows, columns) < 8:
        return flop / peak
    return min(tiled_s(edge, share) for edge, share in PRODUCT_TILES)


def rows_and_columns(op: Op, known: dict[str, TensorSpec]) -> tuple[int, int]:
    """The two outer dimensions of a product's result; batches of one right-hand matrix count as rows."""
    shape = op.output.shape
    if len(shape) < 2:
        return 1, op.output.elements
    right = known[op.operands[-1]] if op.operands and op.operands[-1] in known else None
    if base_name(op.target) == "linear" or (right is not None and len(right.shape) == 2):
        return op.output.elements // shape[-1], shape[-1]
    return shape[-2], shape[-1]
