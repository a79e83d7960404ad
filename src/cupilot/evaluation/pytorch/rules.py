"""Which kernels an operator is in eager mode, by its kind, and how each of them uses the GPU.

Each rule says where it is from.  "Source" is PyTorch's own CUDA code (ATen/native/cuda), which anybody can read;
"recorded" means that the constant was fitted on recorded times and checked on problems that were left out
(docs/baseline.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, prod

from cupilot.evaluation.pytorch.convolutions import convolution
from cupilot.evaluation.pytorch.kernels import Graph, Kernel, integer, integers, item_bytes
from cupilot.evaluation.pytorch.products import attention, product
from cupilot.records import Op
from cupilot.tasks.operators import base_name, operator

# Kernels that keep all SMs busy run at the clock that the board sustains ("issue"), those that wait in few blocks at
# its boost clock ("latency").

Rule = Callable[[Graph, Op], list[Kernel]]

WARP_ROW = 1024
"""Softmax keeps rows of up to this many elements in a warp's registers (source: PersistentSoftmax.cuh)."""
SOFTMAX_PASSES = 3
"""Reads of a longer row that does not fit into shared memory: maximum, sum, result (source: SoftMax.cu)."""
MOMENTS_THREADS = 512
"""Threads of a block that computes one row's mean and variance (source: kCUDANumThreads, group_norm_kernel.cu)."""
MOMENTS_CYCLES = 1100.0
"""Cycles of one step of that loop, a load that is waited for and Welford's update with its division (recorded)."""
LAYER_NORM_THREADS = 128
LAYER_NORM_CYCLES = 1900.0
"""Cycles in which a thread of the vectorised layer norm does four elements, in both of its passes (recorded)."""
POOL_CYCLES, POOL_TAP_CYCLES = 1.6, 0.25
"""SM-cycles of one result of a pooling kernel, one thread each, and of one element of its window (recorded)."""
REDUCE_CYCLES, RESULT_CYCLES = 0.3, 20.0
"""SM-cycles of one element of a reduction, and of one result (recorded)."""
PLACE_CYCLES, SHORT_REDUCTION = 1.1, 256
"""SM-cycles more of one element of a short reduction that keeps places, and what is short (recorded)."""
SPATIAL_SOFTMAX_CYCLES = 3.8
"""SM-cycles of one element of a softmax over another dimension than the last (recorded)."""
SCAN_CYCLES = 1.1
"""SM-cycles of one element of a scan along rows (recorded; source: ScanUtils.cuh, rows in shared memory by steps)."""
SCAN_STEP_CYCLES = 6.5
"""Cycles per element of a row, which one block scans from step to step (recorded)."""
STATISTICS_BYTES_PER_CYCLE = 5.0
"""What an SM that computes a channel's mean and variance reads per cycle (recorded)."""


def pointwise(graph: Graph, op: Op) -> list[Kernel]:
    """One vectorised pass, four elements a thread (source: CUDALoops.cuh)."""
    return [graph.kernel(op, "pointwise", graph.operands(op), op.output.bytes)]


def copy(graph: Graph, op: Op) -> list[Kernel]:
    return [graph.kernel(op, "copy", graph.operands(op), op.output.bytes)]


def reduction(graph: Graph, op: Op) -> list[Kernel]:
    """One kernel that reads everything once (source: Reduce.cuh); log-sum-exp has passes of its own before."""
    reads = graph.operands(op)
    name = base_name(op.target)
    writes = op.output.bytes * (3.0 if name in ("max", "min") and op.attribute("dim") is not None else 1.0)
    if op.target.endswith(".other"):
        return pointwise(graph, op)
    found = []
    if name == "logsumexp":
        found += [graph.kernel(op, "reduction", reads, op.output.bytes)]
        found += [graph.kernel(op, "pointwise", reads, sum(reads.values()))] * 2
    return [*found, graph.kernel(op, "reduction", reads, writes, busy={"latency": _reduction_s(graph, op)})]


def _reduction_s(graph: Graph, op: Op) -> float:
    """Short reductions cost more per element than long ones, those that look for a place most."""
    elements = max(graph.known[name].elements for name in graph.operands(op))
    length = max(1.0, elements / max(1, op.output.elements))
    name = base_name(op.target)
    indexed = name in ("argmax", "argmin") or (name in ("max", "min") and op.attribute("dim") is not None)
    short = PLACE_CYCLES if indexed and length < SHORT_REDUCTION else RESULT_CYCLES / length
    cycles = elements * (REDUCE_CYCLES + short)
    return cycles / graph.spec.sms / graph.spec.sustained_clock_hz


def softmax(graph: Graph, op: Op) -> list[Kernel]:
    """A row in registers, in shared memory, or read three times; over another dimension, one thread per column."""
    shape = op.output.shape
    dim = op.attribute("dim", -1)
    axis = dim % len(shape) if isinstance(dim, int) and shape else 0
    row = shape[axis] if shape else 1
    inner = prod(shape[axis + 1 :])
    size = graph.operands(op)
    total = sum(size.values())
    busy = {}
    if inner > 1:
        again = (SOFTMAX_PASSES - 1) * total
        busy = {"issue": op.output.elements * SPATIAL_SOFTMAX_CYCLES / graph.spec.sms / graph.spec.sustained_clock_hz}
    else:
        held = row <= WARP_ROW or row * item_bytes(op.output) < graph.spec.shared_bytes_per_block
        again = 0.0 if held else (SOFTMAX_PASSES - 1) * total
    return [graph.kernel(op, "softmax", size, op.output.bytes, busy=busy, passes=again)]


def moments_s(graph: Graph, rows: int, row: int) -> float:
    """Blocks that each compute one row's moments, in waves (source: RowwiseMomentsCUDAKernel)."""
    threads = MOMENTS_THREADS if row >= MOMENTS_THREADS else 32
    steps = ceil(row / threads)
    resident = graph.spec.sms * max(1, min(graph.spec.threads_per_sm // threads, graph.spec.blocks_per_sm))
    return rows / min(rows, resident) * steps * MOMENTS_CYCLES / graph.spec.clock_hz


def group_norm(graph: Graph, op: Op) -> list[Kernel]:
    """Moments by group, their product with the weights, one pointwise pass (source: group_norm_kernel.cu)."""
    whole = graph.known[op.operands[0]]
    rows = whole.shape[0] * integer(op, "num_groups", 1)
    reads = {op.operands[0]: graph.bytes(op.operands[0])}
    busy = {"latency": moments_s(graph, rows, whole.elements // rows)}
    return [
        graph.kernel(op, "statistics", reads, 8.0 * rows, busy=busy, output=f"{op.name}.moments"),
        graph.kernel(op, "pointwise", {}, 8.0 * whole.shape[0] * whole.shape[1], output=f"{op.name}.scale"),
        graph.kernel(op, "pointwise", reads, op.output.bytes),
    ]


def batch_norm(graph: Graph, op: Op) -> list[Kernel]:
    """In training a pass for the statistics, one block per channel, then one for the result.

    Source: Normalization.cuh.
    """
    whole = graph.known[op.operands[0]]
    reads = {op.operands[0]: graph.bytes(op.operands[0])}
    found = []
    if base_name(op.target) == "instance_norm" or op.attribute("training", True):
        channels = whole.shape[1] * (whole.shape[0] if base_name(op.target) == "instance_norm" else 1)
        busy = {"latency": statistics_s(graph, channels, sum(reads.values()))}
        found.append(graph.kernel(op, "statistics", reads, 8.0 * channels, busy=busy, output=f"{op.name}.moments"))
    return [*found, graph.kernel(op, "pointwise", reads, op.output.bytes)]


def statistics_s(graph: Graph, channels: int, total: float) -> float:
    """One block per channel: with fewer blocks than SMs hold, memory is not kept busy."""
    rate = STATISTICS_BYTES_PER_CYCLE * graph.spec.sustained_clock_hz
    return total / (min(channels, graph.spec.sms) * rate)


def layer_norm(graph: Graph, op: Op) -> list[Kernel]:
    """One block of 128 threads per row does both passes, four elements at a time (source: layer_norm_kernel.cu)."""
    row = prod(integers(op, "normalized_shape"))
    rows = op.output.elements // max(1, row)
    steps = ceil(row / (4 * LAYER_NORM_THREADS))
    resident = graph.spec.sms * min(graph.spec.blocks_per_sm, graph.spec.threads_per_sm // LAYER_NORM_THREADS)
    cycles = max(1.0, rows / resident) * steps * LAYER_NORM_CYCLES
    busy = {"latency": cycles / graph.spec.clock_hz}
    again = graph.bytes(op.operands[0]) if row * item_bytes(op.output) > 65536 else 0.0
    return [graph.kernel(op, "statistics", graph.operands(op), op.output.bytes, busy=busy, passes=again)]


def pooling(graph: Graph, op: Op) -> list[Kernel]:
    """One thread per result; maxima are stored with their places, eight bytes each (source: DilatedMaxPool2d.cu)."""
    taps = prod(integers(op, "kernel_size"))
    name = base_name(op.target)
    if name.startswith("adaptive_avg"):
        # to a single result per channel it is a mean (source: AdaptiveAveragePooling.cpp)
        return [graph.kernel(op, "reduction", graph.operands(op), op.output.bytes)]
    cycles = op.output.elements * (POOL_CYCLES + POOL_TAP_CYCLES * taps)
    places = 8.0 * op.output.elements if name.startswith("max") else 0.0
    busy = {"issue": cycles / graph.spec.sms / graph.spec.sustained_clock_hz}
    return [graph.kernel(op, "pooling", graph.operands(op), op.output.bytes + places, busy=busy)]


def scan(graph: Graph, op: Op) -> list[Kernel]:
    cycles = op.output.elements * SCAN_CYCLES
    dim, shape = op.attribute("dim", -1), op.output.shape
    inner = isinstance(dim, int) and shape and dim % len(shape) == len(shape) - 1
    row = shape[-1] if shape and inner else 0
    busy = {
        "issue": cycles / graph.spec.sms / graph.spec.sustained_clock_hz,
        "latency": row * SCAN_STEP_CYCLES / graph.spec.clock_hz,
    }
    return [graph.kernel(op, "scan", graph.operands(op), op.output.bytes, busy=busy)]


def loss(graph: Graph, op: Op) -> list[Kernel]:
    """What each loss is made of: pointwise passes and a mean, or log-softmax and a gather (source: Loss.cpp)."""
    name = base_name(op.target)
    reads = graph.operands(op)
    largest = max(reads, key=lambda each: reads[each])
    whole = reads[largest]
    if name == "cross_entropy_loss":
        rows = {largest: whole}
        few = 4.0 * graph.known[largest].shape[0]
        return [
            graph.kernel(op, "softmax", rows, whole, output=f"{op.name}.log"),
            graph.kernel(op, "loss", {f"{op.name}.log": 8.0 * few}, 4.0, busy={"latency": nll_s(graph, few / 4.0)}),
        ]
    passes = LOSS_PASSES.get(name, (1, 1))
    found = [graph.kernel(op, "pointwise", reads, whole, output=f"{op.name}.each")]
    found += [
        graph.kernel(op, "pointwise", {f"{op.name}.each": whole}, whole, output=f"{op.name}.each")
        for _ in range(passes[0] - 1)
    ]
    if op.attribute("reduction", 1) != 0:
        found.append(graph.kernel(op, "reduction", {f"{op.name}.each": whole}, 4.0))
    return found


NLL_ROW_CYCLES = 30.0
"""Cycles per row of the one block that averages a negative log-likelihood (source: NLLLoss.cu; recorded)."""


def nll_s(graph: Graph, rows: float) -> float:
    return rows * NLL_ROW_CYCLES / graph.spec.clock_hz


LOSS_PASSES: Mapping[str, tuple[int, int]] = {
    "mse_loss": (1, 1), "huber_loss": (1, 1), "smooth_l1_loss": (1, 1), "l1_loss": (1, 1), "kl_div": (4, 1),
    "triplet_margin_loss": (7, 3),
}  # fmt: skip


def dropout(graph: Graph, op: Op) -> list[Kernel]:
    """In training one kernel draws, scales and writes the result and a mask of bytes (source: Dropout.cu)."""
    if not op.attribute("train", False):
        return []
    return [graph.kernel(op, "pointwise", graph.operands(op), op.output.bytes + op.output.elements)]


def other(graph: Graph, op: Op) -> list[Kernel]:
    return [graph.kernel(op, "other", graph.operands(op), op.output.bytes)]


def nothing(graph: Graph, op: Op) -> list[Kernel]:
    return []


def cosine_similarity(graph: Graph, op: Op) -> list[Kernel]:
    """Norms of both, both divided by theirs, their product and its sum (source: Distance.cpp)."""
    reads = graph.operands(op)
    found = []
    for name, size in reads.items():
        found.append(graph.kernel(op, "reduction", {name: size}, op.output.bytes))
        found.append(graph.kernel(op, "pointwise", {}, op.output.bytes))
        found.append(graph.kernel(op, "pointwise", {name: size}, size))
    whole = max(reads.values())
    found.append(graph.kernel(op, "pointwise", reads, whole, output=f"{op.name}.product"))
    found.append(graph.kernel(op, "reduction", {f"{op.name}.product": whole}, op.output.bytes))
    return found


KINDS: Mapping[str, Rule] = {
    "view": nothing, "broadcast": nothing, "pointwise": pointwise, "copy": copy, "reduction": reduction,
    "norm": reduction, "softmax": softmax, "product": product, "convolution": convolution, "attention": attention,
    "scan": scan, "pooling": pooling, "loss": loss,
}  # fmt: skip
NAMES: Mapping[str, Rule] = {
    "group_norm": group_norm, "native_group_norm": group_norm, "batch_norm": batch_norm, "instance_norm": batch_norm,
    "cudnn_batch_norm": batch_norm, "native_batch_norm": batch_norm, "layer_norm": layer_norm,
    "native_layer_norm": layer_norm, "cosine_similarity": cosine_similarity, "dropout": dropout, "getitem": nothing,
    "assert_tensor_metadata": nothing, "lift_fresh_copy": nothing,
}  # fmt: skip


def kernels_of(graph: Graph, op: Op) -> list[Kernel]:
    """The launches of one operator, in order."""
    found = operator(op.target)
    rule = NAMES.get(base_name(op.target)) or KINDS.get(found.kind) or other
    return rule(graph, op)
