"""Convolutions: PyTorch's own kernel for depthwise ones, cuDNN for the others, the bias as a pass of its own.

cuDNN chooses by heuristics that are not public.  The rule: the faster of two ways, either tensor cores in tf32 (what
PyTorch allows for convolutions by default) between conversions to channels-last and back, or fp32 arithmetic on the
tensors as they are.  What share of its peak each reaches is known from recorded times, by generation of GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from cupilot.evaluation.pytorch.kernels import Graph, Kernel, integer, integers, joint
from cupilot.records import Op
from cupilot.tasks.flop import op_flop

WIDE_EXPONENT = 0.6
"""How the rate of transposed 3D convolutions grows with the filters, of which 64 are the reference (recorded)."""
CHANNEL_STEP, FILTER_STEP = 8, 32
"""Channels are padded to the depth of a tensor-core instruction, filters to the width of the narrowest tile."""
LARGE_WINDOW = 27
"""Windows of more elements fill the depth of the instruction without padding (recorded)."""
POINTWISE_LAYOUT = 0.3
"""Share of the conversions that convolutions of 1x1 need, which are matrix products (recorded)."""
DEPTHWISE_CYCLES, DEPTHWISE_TAP_CYCLES = 1.4, 0.12
"""SM-cycles of one result of the depthwise kernel, and of one tap, for filters of 1x1, 3x3 and 5x5, whose loops are
unrolled (source: DepthwiseConv2d.cu; recorded)."""
DEPTHWISE_LANES = 32
"""Load/store lanes of the SMs that these cycles are of."""
GENERAL_CYCLES = 1.2
"""SM-cycles more where the loop over the filter is not unrolled (recorded)."""


@dataclass(frozen=True)
class Shape:
    """What the rule needs to know of a convolution."""

    flop: float
    input_bytes: float
    output_bytes: float
    channels: int
    filters: int
    taps: int
    dimensions: int
    stride: int
    transposed: bool
    groups: int
    square: bool
    half: bool


def convolution(graph: Graph, op: Op) -> list[Kernel]:
    shape = shape_of(graph, op)
    reads = dict(list(graph.operands(op).items())[:2])
    if shape.groups > 1 and shape.channels == 1 and shape.dimensions == 2 and not shape.transposed:
        found = [graph.kernel(op, "depthwise", reads, op.output.bytes, busy={"issue": depthwise_s(graph, op, shape)})]
    else:
        family = f"convolution {shape.dimensions}d{' transposed' * shape.transposed}"
        found = [graph.kernel(op, family, reads, op.output.bytes, busy={"tensor": library_s(graph, shape)})]
    if len(op.operands) > 2:
        found.append(graph.kernel(op, "pointwise", {op.name: float(op.output.bytes)}, op.output.bytes))
    return found


def shape_of(graph: Graph, op: Op) -> Shape:
    _given, weight = graph.known[op.operands[0]], graph.known[op.operands[1]]
    transposed = "transpose" in op.target or bool(op.attribute("transposed", False))
    groups, window = integer(op, "groups", 1), weight.shape[2:]
    channels = weight.shape[0] // groups if transposed else weight.shape[1]
    filters = weight.shape[1] if transposed else weight.shape[0] // groups
    return Shape(
        op_flop(op, graph.known), graph.bytes(op.operands[0]), float(op.output.bytes), channels, filters, prod(window),
        len(window), prod(integers(op, "stride")), transposed, groups,
        len(set(window)) == 1 and window[0] in (1, 3, 5), op.output.dtype in ("float16", "bfloat16"),
    )  # fmt: skip


def depthwise_s(graph: Graph, op: Op, shape: Shape) -> float:
    cycles = DEPTHWISE_CYCLES + DEPTHWISE_TAP_CYCLES * shape.taps + (0.0 if shape.square else GENERAL_CYCLES)
    # each tap is two loads, so half as many load/store lanes take twice as long
    lanes = DEPTHWISE_LANES / graph.spec.lsu_lanes_per_sm
    return op.output.elements * cycles * lanes / graph.spec.sms / graph.spec.sustained_clock_hz


def library_s(graph: Graph, shape: Shape, *, converts: bool = True) -> float:
    """The faster of the two ways; without conversions where the tensors are channels-last already."""
    rates = graph.board.rates
    tensor, plain, layout = rates.of(shape.dimensions, shape.transposed)
    if shape.taps == 1 or not converts:
        layout *= POINTWISE_LAYOUT if converts else 0.0
    few = rates.few_channels if shape.channels <= 4 and shape.dimensions == 3 and not shape.transposed else 1.0
    spec = graph.spec
    moved_s = graph.board.dram_s(shape.input_bytes, shape.output_bytes)
    wide = max(1.0, FILTER_STEP / shape.filters)
    if shape.transposed and shape.dimensions == 3:
        wide = min(2.0, (64 / shape.filters) ** WIDE_EXPONENT)
    fed = max(1.0, 32 / shape.channels) if shape.transposed and shape.stride > 1 else 1.0
    ways = [joint((shape.flop * wide * fed / (few * plain * spec.sgemm_flop_per_s), moved_s))]
    peak = spec.fp16_tensor_flop_per_s if shape.half else spec.tf32_tensor_flop_per_s
    if peak:
        deep = max(1.0, CHANNEL_STEP / shape.channels) ** min(1.0, LARGE_WINDOW / shape.taps)
        if shape.transposed:
            deep = max(1.0, 32 / shape.channels) ** (1.5 if shape.stride > 1 else 1.0)
        conversions_s = (
            2.0
            * layout
            * graph.board.dram_s(
                (shape.input_bytes + shape.output_bytes) / 2, (shape.input_bytes + shape.output_bytes) / 2
            )
        )
        ways.append(conversions_s + joint((shape.flop * wide * deep / (few * tensor * peak), moved_s)))
    return min(ways)
