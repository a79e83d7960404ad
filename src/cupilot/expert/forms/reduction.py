"""Reductions over neighbouring dimensions: sums, means, products, extreme values and where they are.

Pointwise operators before and behind are fused.  Not covered: sums and means of a whole tensor, which are another form;
tasks that return values and indices both.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from cupilot.expert.form import Form, Graph, axis
from cupilot.expert.forms._fused import before, behind, complete, titled
from cupilot.expert.pointwise import chain
from cupilot.expert.storage import FLOATING
from cupilot.records import Op
from cupilot.tasks.operators import base_name

FACTS = {
    "operation": "sum, mean, prod, max, min, argmax or argmin",
    "outer": "product of the sizes before the reduced dimensions",
    "length": "elements of one result",
    "inner": "product of the sizes behind the reduced dimensions",
    "rows": "whether the reduced dimensions are the last ones, so that the elements of a result are neighbours",
    "vector": "whether the elements are multiplied by those of a vector (a product of a matrix and a vector)",
}
TITLES = {
    "sum": "Sum", "mean": "Mean", "prod": "Product", "max": "Largest value", "min": "Smallest value",
    "argmax": "Place of the largest value", "argmin": "Place of the smallest value",
}  # fmt: skip
NAMES = {**{name: name for name in TITLES}, "amax": "max", "amin": "min"}


def read(graph: Graph) -> Form | str:
    """Templates see ``operands``, ``before`` and ``pointwise`` as C, and the host's ``sizes``."""
    main = graph.only(*NAMES)
    if main is None or len(main.operands) != 1 or main.output.dtype not in (*FLOATING, "int64"):
        return ""
    made, taken = before(graph, main.operands[0]), _taken(graph, main)
    shape = graph.spec(main.operands[0]).shape
    dims = reduced(main, len(shape))
    if dims is None or main.attribute("dtype") not in (None, *FLOATING):
        return "a reduction is known over neighbouring dimensions and of floating types only"
    if made is None or taken is None:
        return ""
    result, operation, ignored = taken
    steps = behind(graph, result, ignored)
    first, last = dims
    outer, length, inner = (prod(part) for part in (shape[:first], shape[first:last], shape[last:]))
    used = [*ignored, main.name, result, *(op.name for op in (*made.steps, *(steps or ())))]
    if steps is None or not complete(graph, used, made.sources) or 0 in shape:
        return ""
    if (outer * inner == 1 and operation in ("sum", "mean")) or (operation.startswith("arg") and steps):
        return ""
    facts = {
        "operation": operation,
        "outer": outer,
        "length": length,
        "inner": inner,
        "rows": last == len(shape),
        "vector": False,
    }
    code = {
        "operands": made.operands(graph),
        "before": made.code(),
        "pointwise": chain(steps, {result: "x"}),
        "sizes": sizes(len(shape), first, last, bool(main.attribute("keepdim"))),
        "rank": len(shape),
    }
    over = f"dimension {first}" if last == first + 1 else f"dimensions {first} to {last - 1}"
    title = titled(f"{TITLES[operation]} over {over}", made.steps, steps)
    return Form("reduction", title, facts, made.names(), code)


def reduced(main: Op, rank: int) -> tuple[int, int] | None:
    """The first reduced dimension and the one behind the last; None when they are not neighbours."""
    given: Any = main.attribute("dim")
    if given is None or given == ():
        return (0, rank) if rank else None
    dims = sorted({axis(dim, rank) for dim in (given if isinstance(given, tuple) else (given,))})
    return (dims[0], dims[-1] + 1) if rank and dims[-1] - dims[0] + 1 == len(dims) else None


def sizes(rank: int, first: int, last: int, keep: bool) -> dict[str, str]:
    """C of the host for the three sizes, and for the result's shape."""

    def product(dims: Sequence[int]) -> str:
        return " * ".join(f"x.size({dim})" for dim in dims) or "1"

    kept = [
        ("1" if first <= dim < last else f"x.size({dim})") for dim in range(rank) if keep or not first <= dim < last
    ]
    return {
        "outer": product(range(first)),
        "length": product(range(first, last)),
        "inner": product(range(last, rank)),
        "shape": "{" + ", ".join(kept) + "}" if kept else "at::IntArrayRef()",
    }


def _taken(graph: Graph, main: Op) -> tuple[str, str, tuple[str, ...]] | None:
    """Which of the operator's results is wanted, what it is, and what nobody reads."""
    operation = NAMES[base_name(main.target)]
    items = [op for op in graph.task.graph if base_name(op.target) == "getitem" and op.operands == (main.name,)]
    if not items:
        return main.name, operation, ()
    read_by_others = {name for op in graph.task.graph for name in op.operands}
    wanted = [op for op in items if op.name in read_by_others]
    if not wanted:
        wanted = [op for op in items if [op.output] == list(graph.task.outputs)]
    if len(wanted) != 1:
        return None
    ignored = (main.name, *(op.name for op in items if op is not wanted[0]))
    return wanted[0].name, operation if wanted[0].attribute("index") == 0 else f"arg{operation}", ignored
