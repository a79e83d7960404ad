"""``torch.compile``: Inductor's kernels for a graph, with the libraries' kernels between them.

Pointwise operators, reductions, softmax and normalizations fuse into loops that read what comes from outside of the
group and write what is used outside of it.  Matrix products, attention, 3D pooling and convolutions stay the
libraries' kernels; around 2D convolutions Inductor asks for channels-last tensors and converts what it gets and gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from cupilot.evaluation.pytorch.boards import board
from cupilot.evaluation.pytorch.convolutions import library_s, shape_of
from cupilot.evaluation.pytorch.kernels import Graph, Kernel, integers
from cupilot.evaluation.pytorch.products import product
from cupilot.evaluation.pytorch.rules import kernels_of
from cupilot.evaluation.pytorch.run import Run, Step, timeline
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Op, Task
from cupilot.tasks.operators import base_name, operator

KERNEL_WEIGHT = 1.5
"""The host's time for a compiled kernel, in pointwise operators of eager mode (recorded)."""
EXTERN_WEIGHT = 3.0
"""The same for a library's kernel that compiled code calls (recorded)."""
DOUBT = 1.7
"""How much less sure compiled times are: what Inductor generates varies by version and by tuning (recorded)."""
PERSISTENT_ROW = 1024
"""Reductions keep rows of up to this many elements in registers (source: triton_heuristics.py)."""
SMALL_POOL = 25
"""Windows of fewer elements are generated code, larger ones the library's (source: lowering.py)."""
LONG_ROW = 65536
"""Longer rows of a normalization are split over blocks, which reads them once more (recorded)."""
DEPTHWISE_FACTOR = 8.0
"""How much slower channels-last depthwise convolutions are whose window is not square (recorded)."""


def compiled_run(task: Task, spec: GpuSpec) -> Run:
    """One call of the compiled module, after compilation."""
    on = board(spec)
    graph = Graph(task, spec, on)
    steps = []
    groups = groups_of(task)
    for group in groups:
        if group.library:
            kernels = _library(graph, group.ops[0], last=group is groups[-1])
            weight = EXTERN_WEIGHT * len(kernels)
        else:
            kernels = _generated(graph, group)
            weight = KERNEL_WEIGHT * len(kernels)
        steps.append(Step(weight * on.host.op_s, tuple(kernels)))
    return replace(timeline(steps, on.host.compiled_s, spec), doubt=DOUBT)


@dataclass
class Group:
    """Operators that become one or a few generated kernels, or one operator that a library computes."""

    library: bool
    ops: list[Op] = field(default_factory=list)


def groups_of(task: Task) -> list[Group]:
    """Generated operators between two library calls are one group."""
    found: list[Group] = []
    for op in task.graph:
        if operator(op.target).is_view or base_name(op.target) in ("getitem", "lift_fresh_copy", "detach"):
            continue
        library = is_library(op)
        if library or not found or found[-1].library:
            found.append(Group(library))
        found[-1].ops.append(op)
    return found


def is_library(op: Op) -> bool:
    about = operator(op.target)
    if about.kind in ("product", "convolution", "attention"):
        return True
    if about.kind == "pooling" and not base_name(op.target).startswith("adaptive_avg"):
        window = integers(op, "kernel_size")
        stretched = any(each > 1 for each in integers(op, "dilation"))
        return len(window) == 3 or stretched or prod(window) >= SMALL_POOL
    return False


def _library(graph: Graph, op: Op, *, last: bool) -> list[Kernel]:
    """The library's kernel; around a 2D convolution what converts its input, and its result unless others read it."""
    about = operator(op.target)
    if about.kind == "product":
        return product(graph, op)
    if not about.is_convolution:
        return kernels_of(graph, op)
    # the bias is left to the next group, which reads the result anyway
    eager, shape = kernels_of(graph, op)[0], shape_of(graph, op)
    if shape.dimensions != 2:
        return [eager]
    given, result = op.operands[0], float(op.output.bytes)
    if eager.family == "depthwise":
        slow = 1.0 if shape.square else DEPTHWISE_FACTOR
        found = [Kernel(op.name, eager.family, eager.time_s * slow, eager.limit)]
    else:
        busy = {"tensor": library_s(graph, shape, converts=False)}
        found = [graph.kernel(op, eager.family, {given: graph.bytes(given)}, result, busy=busy)]
    made_by_library = any(other.name == given and is_library(other) for other in graph.task.graph)
    if not made_by_library:
        found.insert(0, graph.kernel(op, "copy", {given: graph.bytes(given)}, graph.bytes(given), output=given))
    if last:
        found.append(graph.kernel(op, "copy", {op.name: result}, result))
    return found


def _generated(graph: Graph, group: Group) -> list[Kernel]:
    """Loops over what the group reads from outside; a reduction ends one, and what follows it reads that again."""
    inside = {op.name for op in group.ops}
    outside = {
        source for op in graph.task.graph if op.name not in inside for source in _sources(graph, op.operands)
    }  # fmt: skip
    used = outside | {source for op in group.ops for source in _sources(graph, op.operands)}
    found: list[Kernel] = []
    reads: dict[str, float] = {}
    written = 0.0
    for op in group.ops:
        sources = [each for each in _sources(graph, op.operands) if each in graph.known and each not in inside]
        reads |= {source: graph.bytes(source) for source in sources}
        for _ in range(_rereads(op)):
            found.append(graph.kernel(op, "generated", reads, 0.0))
        if _ends_loop(op):
            found.append(graph.kernel(op, "generated", reads, float(op.output.bytes)))
            if op is not group.ops[-1] and _shrinks(graph, op):
                reads = {op.name: float(op.output.bytes)} if not _read_again(group, op) else reads
        elif op.name in outside or op.name not in used:
            written += float(op.output.bytes)
    if written or not found:
        last = group.ops[-1]
        found.append(graph.kernel(last, "generated", reads, written or float(last.output.bytes)))
    return found


def _ends_loop(op: Op) -> bool:
    about = operator(op.target)
    return about.is_statistic or about.kind in ("loss", "scan")


def _shrinks(graph: Graph, op: Op) -> bool:
    return any(graph.known[name].elements > op.output.elements for name in op.operands if name in graph.known)


def _read_again(group: Group, op: Op) -> bool:
    """Whether operators after this one take more than its result."""
    after = group.ops[group.ops.index(op) + 1 :]
    made = {op.name} | {each.name for each in after}
    return any(operand not in made for each in after for operand in each.operands)


def _rereads(op: Op) -> int:
    """Loops over the input before the one that gives the result."""
    about = operator(op.target)
    if about.kind == "normalization":
        return 2 if prod(integers(op, "normalized_shape")) > LONG_ROW else 1
    if about.kind != "softmax":
        return 0
    dim = op.attribute("dim", -1)
    row = op.output.shape[dim] if isinstance(dim, int) and op.output.shape else 1
    return 1 if row > PERSISTENT_ROW else 0


def _sources(graph: Graph, operands: Sequence[str]) -> Iterator[str]:
    for name in operands:
        yield graph.sources.get(name, name)
