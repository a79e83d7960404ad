"""Matrix products and attention: fp32 without tensor cores (PyTorch's default), half precision with them."""

from __future__ import annotations

from math import ceil

from cupilot.evaluation.pytorch.kernels import Graph, Kernel
from cupilot.records import Op
from cupilot.tasks.flop import op_flop
from cupilot.tasks.operators import base_name, operator

TILES = ((128, 128, 1.0), (128, 64, 0.88), (64, 64, 0.75), (32, 32, 0.4))
"""The library's tiles and the share of its large-product speed that a kernel with them has."""
SPLIT_K = 256
"""Long inner dimensions are split into pieces of at least this length when tiles are few."""
TENSOR_SHARE = 0.75
"""Share of the tensor cores' peak that library products in half precision reach."""
FLASH_WIDTH = 256
"""Flash attention takes heads of up to this width; the memory-efficient kernel takes wider ones."""
ATTENTION_SHARE, WIDE_ATTENTION_SHARE = 0.75, 0.22
"""Share of what `mma.sync` sustains that the two kernels reach (the second: recorded for heads of 1024)."""
TRANSPOSED = {8.6: 1.28, 8.9: 1.4, 7.5: 1.15}
"""How much longer products take whose right factor is transposed, as in linear layers, by capability (recorded)."""
OVERLAP = 1.7
"""The norm that joins a product's arithmetic and memory: storing results follows the arithmetic of a tile."""
BOOST_S = 1e-3
"""How long a board whose power is limited holds its boost clock in products (recorded)."""
TILE_START = 4.0
"""Steps of the inner dimension that starting and ending a tile cost."""


def product(graph: Graph, op: Op) -> list[Kernel]:
    """One kernel of the library; in tf32 where the task allows it."""
    half = op.output.dtype in ("float16", "bfloat16")
    flop = op_flop(op, graph.known)
    rows, columns = rows_and_columns(op, graph)
    inner = flop / (2.0 * max(1, op.output.elements))
    reads = graph.operands(op)
    unit = "tensor" if half else "fp32"
    if min(rows, columns) < 8:
        return [graph.kernel(op, "matvec", reads, op.output.bytes)]
    peak = graph.spec.fp16_tensor_flop_per_s * TENSOR_SHARE if half else graph.spec.sgemm_flop_per_s
    if not half and graph.task.precision == "tf32" and graph.spec.tf32_tensor_flop_per_s * TENSOR_SHARE > peak:
        unit, peak = "tensor", graph.spec.tf32_tensor_flop_per_s * TENSOR_SHARE
    batch = op.output.elements / (rows * columns)
    time_s = min(tiled_s(graph, (rows, columns, inner, batch), tile, peak) for tile in TILES)
    if unit == "fp32" and transposed_right(graph, op):
        time_s *= TRANSPOSED.get(graph.spec.capability, 1.0)
    return [graph.kernel(op, "product", reads, op.output.bytes, busy={unit: time_s}, norm=OVERLAP)]


def transposed_right(graph: Graph, op: Op) -> bool:
    """Linear layers multiply by their weight's transpose."""
    if base_name(op.target) == "linear":
        return True
    made = {each.name: each for each in graph.task.graph}
    right = op.operands[-1] if op.operands else ""
    return right in made and base_name(made[right].target) in ("t", "transpose", "numpy_T", "permute")


def tiled_s(graph: Graph, size: tuple[int, int, float, float], tile: tuple[int, int, float], peak: float) -> float:
    rows, columns, inner, batch = size
    high, wide, share = tile
    tiles = batch * ceil(rows / high) * ceil(columns / wide)
    sms = graph.spec.sms
    pieces = 1.0 if tiles >= sms else min(max(1.0, inner // SPLIT_K), ceil(sms / tiles))
    flop = 2.0 * high * wide * (inner / pieces + TILE_START)
    waves = tiles * pieces / sms
    waves = ceil(waves) if waves < 4 else waves + 0.5
    return throttled_s(graph, waves * flop / (peak * share / sms))


def throttled_s(graph: Graph, sustained_s: float) -> float:
    """Short products are over before the board's power limit lowers its clock."""
    ratio = graph.spec.clock_hz / graph.spec.sustained_clock_hz
    boost_s = sustained_s / ratio
    return min(boost_s, BOOST_S) + max(0.0, boost_s - BOOST_S) * ratio


def attention(graph: Graph, op: Op) -> list[Kernel]:
    half = op.output.dtype in ("float16", "bfloat16")
    wide = graph.known[op.operands[0]].shape[-1] > FLASH_WIDTH
    share = (WIDE_ATTENTION_SHARE if wide else ATTENTION_SHARE) * graph.spec.mma_share
    rate = graph.spec.fp16_tensor_flop_per_s * share if half else 0.5 * graph.spec.sgemm_flop_per_s
    busy = {"tensor" if half else "fp32": op_flop(op, graph.known) / rate}
    return [graph.kernel(op, "attention", graph.operands(op), op.output.bytes, busy=busy)]


def rows_and_columns(op: Op, graph: Graph) -> tuple[int, int]:
    """The two outer dimensions of a product's result; batches of one right-hand matrix count as rows."""
    shape = op.output.shape
    if len(shape) < 2:
        return 1, op.output.elements
    place = 2 if operator(op.target).bias_first else 1
    right = graph.known.get(op.operands[place]) if len(op.operands) > place else None
    if base_name(op.target) in ("linear", "einsum") or (right is not None and len(right.shape) == 2):
        return op.output.elements // shape[-1], shape[-1]
    return shape[-2], shape[-1]
