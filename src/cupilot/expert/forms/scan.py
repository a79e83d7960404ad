"""Running sums and products along one dimension, forwards or backwards, with or without the element itself.

What goes in may be made by pointwise operators of several tensors (a mask, say), what comes out may go through further
ones.  Read as such are: flips of the scanned dimension before and behind; neutral elements (zeros for sums, ones for
products) put in front, which makes an exclusive scan; ends cut off the scanned or the first dimension.
Not covered: flips together with neutral elements, and scans that also return indices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from cupilot.expert.form import Form, Graph, axis
from cupilot.expert.forms._fused import before, behind, complete, titled
from cupilot.expert.pointwise import chain
from cupilot.expert.storage import FLOATING
from cupilot.records import Op
from cupilot.tasks.operators import base_name

FACTS = {
    "operation": "sum or product",
    "outer": "product of the sizes before the scanned dimension, as far as they are in the result",
    "taken": "elements of a line that are scanned",
    "stored": "elements of a line of the result",
    "inner": "product of the sizes behind the scanned dimension",
    "rows": "whether the scanned dimension is the last one, so that the elements of a line are neighbours",
    "lead": "neutral elements in front of each line of the result",
    "cut": "whether the ends of lines are not scanned",
    "read_mirrored": "whether lines are read from the end",
    "write_mirrored": "whether lines are written from the end",
}
MAIN = {"cumsum": "sum", "cumprod": "product"}
NEUTRAL = {"sum": ("zeros_like", "zeros", "new_zeros"), "product": ("ones_like", "ones", "new_ones")}


@dataclass
class _Peeled:
    """What stands between the scan and the pointwise operators before it."""

    name: str
    mirrored: bool = False
    lead: int = 0
    rows_cut: int = 0
    used: list[str] = field(default_factory=list)


def read(graph: Graph) -> Form | str:
    """Templates see ``operands``, ``before`` and ``pointwise`` as C, and the host's ``sizes``."""
    main = graph.only(*MAIN)
    if main is None or len(main.operands) != 1 or main.output.dtype not in FLOATING or not main.output.elements:
        return ""
    if main.attribute("dtype") not in (None, *FLOATING):
        return "a scan with a conversion of the element type is not known"
    rank = len(main.output.shape)
    dim, operation = axis(main.attribute("dim"), rank), MAIN[base_name(main.target)]
    peeled = _peel(graph, main, dim, operation)
    made = before(graph, peeled.name) if peeled is not None and rank else None
    if peeled is None or made is None:
        return "what goes into the scan is not arranged as it is known"
    result, write_mirrored = main.name, False
    after = [op for op in graph.task.graph if op.operands == (main.name,) and _flips(op, dim, rank)]
    if len(after) == 1:
        result, write_mirrored = after[0].name, True
    steps = behind(graph, result)
    used = [*peeled.used, main.name, result, *(op.name for op in (*made.steps, *(steps or ())))]
    if steps is None or not complete(graph, used, made.sources):
        return ""
    shape, source = main.output.shape, graph.spec(peeled.name).shape
    taken = shape[dim] - peeled.lead
    if peeled.lead and (peeled.mirrored or write_mirrored):
        return "flips together with neutral elements are not known"
    facts = {
        "operation": operation,
        "outer": prod(shape[:dim]),
        "taken": taken,
        "stored": shape[dim],
        "inner": prod(shape[dim + 1 :]),
        "rows": dim == rank - 1,
        "lead": peeled.lead,
        "cut": taken < source[dim],
        "read_mirrored": peeled.mirrored,
        "write_mirrored": write_mirrored,
    }
    code = {
        "operands": made.operands(graph),
        "before": made.code(),
        "pointwise": chain(steps, {result: "x"}),
        "sizes": _sizes(rank, dim, peeled, source[dim] - taken),
        "rank": rank,
    }
    manner = (
        "Reverse running" if peeled.mirrored and write_mirrored else "Exclusive running" if peeled.lead else "Running"
    )
    title = titled(f"{manner} {operation} along dimension {dim}", made.steps, steps)
    return Form("scan", title, facts, made.names(), code)


def _peel(graph: Graph, main: Op, dim: int, operation: str) -> _Peeled | None:
    """Go back from the scan's operand as long as operators only move elements."""
    peeled = _Peeled(main.operands[0])
    rank = len(main.output.shape)
    while (op := graph.ops.get(peeled.name)) is not None:
        name = base_name(op.target)
        if _flips(op, dim, rank) and not (peeled.mirrored or peeled.lead or peeled.rows_cut):
            peeled.mirrored = True
            peeled.name = op.operands[0]
        elif name == "cat" and not (peeled.lead or peeled.mirrored):
            front = _front(graph, op, dim, operation)
            if front is None:
                return None
            peeled.lead, more = front
            peeled.used += more
            peeled.name = op.operands[1]
        elif name == "slice" and not peeled.mirrored:
            cut = _end_cut(graph, op)
            if cut is None or cut[0] not in (0, dim):
                return None
            peeled.rows_cut += cut[1] if cut[0] != dim else 0
            peeled.name = op.operands[0]
        else:
            break
        peeled.used.append(op.name)
    return peeled


def _flips(op: Op, dim: int, rank: int) -> bool:
    dims = op.attribute("dims")
    return base_name(op.target) == "flip" and isinstance(dims, tuple) and [axis(d, rank) for d in dims] == [dim]


def _front(graph: Graph, op: Op, dim: int, operation: str) -> tuple[int, list[str]] | None:
    """How many neutral elements a concatenation puts in front, and the operators that make them."""
    if len(op.operands) != 2 or axis(op.attribute("dim", 0), len(op.output.shape)) != dim:
        return None
    neutral = graph.ops.get(op.operands[0])
    if neutral is None or base_name(neutral.target) not in NEUTRAL[operation]:
        return None
    used, waiting = list[str](), [neutral.name]
    while waiting:  # the shape of the neutral elements may come from the tensor itself
        name = waiting.pop()
        if name in graph.ops and name not in used:
            used.append(name)
            waiting += graph.ops[name].operands
    if any(
        base_name(graph.ops[name].target) not in (*NEUTRAL[operation], "select", "unsqueeze", "slice") for name in used
    ):
        return None
    return neutral.output.shape[dim], used


def _end_cut(graph: Graph, op: Op) -> tuple[int, int] | None:
    """The dimension and how many entries a slice cuts off its end, counted from there; None for other slices."""
    source = graph.spec(op.operands[0]).shape
    dim = axis(op.attribute("dim", 0), len(source))
    end = op.attribute("end")
    from_end = end is None or (isinstance(end, int) and (end < 0 or end >= source[dim]))
    if op.attribute("start") not in (None, 0) or op.attribute("step", 1) != 1 or not from_end:
        return None
    return dim, source[dim] - op.output.shape[dim]


def _sizes(rank: int, dim: int, peeled: _Peeled, cut: int) -> dict[str, str]:
    """C of the host: sizes of lines, and the result's shape."""

    def size(at: int) -> str:
        less = peeled.rows_cut if at == 0 and at != dim else 0
        return f"x.size({at}) - {less}" if less else f"x.size({at})"

    def product(first: int, last: int) -> str:
        factors = [size(at) for at in range(first, last)]
        return " * ".join(f"({factor})" if "-" in factor and len(factors) > 1 else factor for factor in factors) or "1"

    return {
        "outer": product(0, dim),
        "read": f"x.size({dim})",
        "taken": f"x.size({dim})" + (f" - {cut}" if cut else ""),
        "inner": product(dim + 1, rank),
        "shape": "{" + ", ".join("stored" if at == dim else size(at) for at in range(rank)) + "}",
    }
