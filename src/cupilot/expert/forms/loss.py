"""The mean or the sum of a pointwise expression over all its elements: most losses, and plain sums and means.

Losses of ATen count as what they are of each element.  A total that is divided by the number of rows or elements of
what was summed is divided by what that number is for other shapes.  Not covered: means over only some dimensions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cupilot.expert.form import Form, Graph
from cupilot.expert.forms.pointwise import FACTS as _POINTWISE
from cupilot.expert.forms.pointwise import expression_of, parts_of
from cupilot.expert.pointwise import chain, is_loss
from cupilot.expert.storage import FLOATING
from cupilot.records import Op, TensorSpec
from cupilot.tasks.operators import base_name

FACTS = {name: text for name, text in _POINTWISE.items() if name not in ("elements", "small")} | {
    "elements": "that are summed",
}
_MEAN, _SUM = 1, 2


def read(graph: Graph) -> Form | str:
    """Templates see what they see of pointwise forms, the total's ``divisor``, and ``after``, what is made of it."""
    place = next((at for at, op in enumerate(graph.task.graph) if _totals(graph, op)), None)
    if place is None or len(graph.task.outputs) != 1:
        return ""
    main, behind = graph.task.graph[place], graph.task.graph[place + 1 :]
    term, spec, name = _term(graph, main)
    found = expression_of(graph, (*graph.task.graph[:place], *term))
    if isinstance(found, str):
        return found
    if not found.steps:
        found.arguments[name] = spec.shape
    parts = parts_of(graph, found, spec)
    if isinstance(parts, str):
        return parts
    divisor = "n" if _reduction(main) == _MEAN else ""
    if behind and not divisor and _by_size(behind[0], main, spec):
        # a constant that is a size of the tensor: it was one before the graph was exported
        rows = behind[0].attribute("other") == spec.shape[0] != spec.elements
        divisor, main, behind = parts.code["layout"].dims[0] if rows else "n", behind[0], behind[1:]
    if not _pointwise_behind(main, behind):
        return ""
    facts = {name: parts.facts[name] for name in FACTS}
    ones = ", ".join("1" for _ in graph.last.output.shape)
    code = {
        **parts.code,
        "divisor": divisor,
        "after": chain(behind, {main.name: "x"}),
        "shape": f"{{{ones}}}" if ones else "at::IntArrayRef()",
    }
    kind = "Mean" if divisor == "n" else "Sum over the number of rows" if divisor else "Sum"
    last = f", then {code['after'].formula}" if behind else ""
    title = f"{kind} of all elements: {parts.title or 'as they are'}{last}"
    return replace(parts, kind="loss", title=title, facts=facts, code=code)


def _totals(graph: Graph, op: Op) -> bool:
    """Whether an operator sums all there is."""
    if is_loss(op):
        return op.output.dtype in FLOATING
    if base_name(op.target) not in ("mean", "sum") or len(op.operands) != 1:
        return False
    if op.attribute("dtype") not in (None, *FLOATING):
        return False
    dims: Any = op.attribute("dim")
    shape = graph.spec(op.operands[0]).shape
    everything = dims is None or dims == () or (isinstance(dims, tuple) and len(dims) == len(shape))
    return everything or all(size == 1 for size in op.output.shape)


def _reduction(main: Op) -> int:
    return (
        int(str(main.attribute("reduction"))) if is_loss(main) else _MEAN if base_name(main.target) == "mean" else _SUM
    )


def _term(graph: Graph, main: Op) -> tuple[tuple[Op, ...], TensorSpec, str]:
    """What is summed: the operators that a loss adds to it, its form, and its name."""
    if not is_loss(main):
        return (), graph.spec(main.operands[0]), main.operands[0]
    shapes = [graph.spec(name).shape for name in main.operands]
    rank = max(map(len, shapes))
    wide = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    spec = TensorSpec(tuple(max(sizes) if 0 not in sizes else 0 for sizes in zip(*wide, strict=True)))
    attributes = tuple((key, 0 if key == "reduction" else value) for key, value in main.attributes)
    return (Op(main.name, main.target, main.operands, attributes, spec),), spec, main.name


def _by_size(op: Op, main: Op, spec: TensorSpec) -> bool:
    other = op.attribute("other")
    sizes = (spec.shape[0] if spec.shape else 1, spec.elements)
    return base_name(op.target) == "div" and op.operands == (main.name,) and type(other) is int and other in sizes


def _pointwise_behind(main: Op, behind: tuple[Op, ...]) -> bool:
    known = {main.name}
    for op in behind:
        if not Graph.follows(op, main.output, known):
            return False
        known.add(op.name)
    return True
