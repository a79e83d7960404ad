"""Pointwise operators on tensors whose shapes go together, numbers among the arguments included.

A product with a diagonal matrix is one of them: it scales rows or columns; so is a batch norm by running statistics,
which are parameters then.  Not covered: views of results that are not
arguments, integers, and numbers whose place in the graph is not certain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cupilot.expert.broadcast import Shape, arrange
from cupilot.expert.form import Form, Graph, described
from cupilot.expert.forms._fused import READ
from cupilot.expert.pointwise import chain, is_pointwise, slots
from cupilot.expert.storage import FLOATING
from cupilot.records import Op, TensorSpec
from cupilot.tasks.operators import base_name

FACTS = {
    "elements": "of the result",
    "tensors": "number of tensors that are read",
    "broadcast": "whether some are smaller than the result and are read again and again",
    "inner": "elements of the innermost dimensions along which the same tensors change",
    "functions": "C functions that an element takes",
    "small": "elements of the tensors that neighbours of the result read in one place, zero when there are none",
}
MOST_TENSORS = 8
_SAME = frozenset({"view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "contiguous", "alias", "detach"})
_WIDER = frozenset({"expand", "expand_as", "broadcast_to", "broadcast_tensors"})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TAKEN = re.compile(
    r"v\d+|d\d+|[ijnpuv]|in|out|y|packs|first|step|thread|span|blocks|items|wide|bytes|device|sms|stream|apply|load|store|"
    r"per_block|partials|sum|total|count|arrived|tail|rows|cols|int|float|double|bool|char|short|long|signed|unsigned|"
    r"void|auto|const|static|struct|class|template|typename|namespace|switch|case|default|do|goto|this|new|delete|"
    r"operator|register|volatile|extern|inline|union|enum|using|public|private|protected|friend|virtual|torch|at|main"
)


@dataclass
class Expression:
    """Pointwise operators over arguments, with views looked through."""

    steps: list[Op] = field(default_factory=list)
    arguments: dict[str, Shape] = field(default_factory=dict)
    """Tensor arguments in the shapes that they are seen in."""


def read(graph: Graph) -> Form | str:
    """Templates see ``pointwise``, the C of one element; ``layout`` and ``numbers``, what it is made of."""
    spec = graph.last.output
    found = expression_of(graph, graph.task.graph)
    if not isinstance(found, Expression):
        return found
    if not found.steps or len(graph.task.outputs) != 1 or spec.dtype not in READ:
        return ""
    parts = parts_of(graph, found, spec)
    if isinstance(parts, str):
        return parts
    operands = parts.code["layout"].operands
    kind = "Chain of pointwise operators on one tensor" if len(operands) == 1 else "Pointwise operators on tensors"
    out = "y" if len(operands) == 1 and "y" not in parts.names.values() else "out"
    return replace(parts, title=f"{kind}: {parts.title}", code={**parts.code, "out": out})


def expression_of(graph: Graph, ops: tuple[Op, ...]) -> Expression | str:
    """The operators as one expression; empty when there are others among them."""
    found = Expression()
    views: dict[str, tuple[str, Shape]] = {}  # of arguments, by the name of the view
    several: dict[str, tuple[str, ...]] = {}
    for op in ops:
        name = base_name(op.target)
        if name == "broadcast_tensors":
            several[op.name] = op.operands
        elif name == "getitem" and op.operands[0] in several:
            views[op.name] = _seen(graph, views, several[op.operands[0]][int(str(op.attribute("index")))])
        elif name in _SAME | _WIDER and len(op.operands) == 1 and op.operands[0] in {*views, *graph.arguments}:
            source, shape = _seen(graph, views, op.operands[0])
            views[op.name] = source, op.output.shape if name in _SAME else shape
        elif (scaled := _diagonal(graph, op, ops)) is not None:
            views[f"{op.name} diagonal"] = scaled[0], scaled[1]
            found.steps.append(Op(op.name, "aten.mul.Tensor", (f"{op.name} diagonal", scaled[2]), (), op.output))
        elif name == "batch_norm" and op.attribute("training") is False:
            found.steps += _running_norm(graph, op, views)
        elif name == "diag" and graph.is_tensor(op.operands[0]) and _only_in_products(op, ops):
            continue
        elif is_pointwise(op):
            found.steps.append(op)
        else:
            return ""
    return _resolved(graph, found, views)


def _running_norm(graph: Graph, op: Op, views: dict[str, tuple[str, Shape]]) -> list[Op]:
    """A batch norm by running statistics as pointwise operators; its parameters are seen along the channels."""
    given = iter(op.operands[1:])
    absent = dict(op.attributes)
    parameters = {
        name: "" if name in absent else next(given, "") for name in ("weight", "bias", "running_mean", "running_var")
    }
    wide = (op.output.shape[1], *(1 for _ in op.output.shape[2:]))
    for name, parameter in parameters.items():
        views[f"{op.name} {name}"] = parameter, wide
    small = TensorSpec(wide)

    def step(name: str, target: str, *operands: str, spec: TensorSpec = op.output, **attributes: float) -> Op:
        return Op(f"{op.name}{name}", f"aten.{target}", operands, tuple(attributes.items()), spec)

    steps = [
        step(" a", "sub.Tensor", op.operands[0], f"{op.name} running_mean"),
        step(" b", "add.Tensor", f"{op.name} running_var", spec=small, other=_number(op.attribute("eps"))),
        step(" c", "rsqrt.default", f"{op.name} b", spec=small),
        step(" d", "mul.Tensor", f"{op.name} a", f"{op.name} c"),
    ]
    last = f"{op.name} d"
    for name, target in (("weight", "mul.Tensor"), ("bias", "add.Tensor")):
        if parameters[name]:
            steps.append(step(f" {name[0]}", target, last, f"{op.name} {name}"))
            last = steps[-1].name
    steps[-1] = Op(op.name, steps[-1].target, steps[-1].operands, steps[-1].attributes, op.output)
    return steps


def _number(value: object) -> float:
    assert isinstance(value, (int, float))
    return float(value)


def _seen(graph: Graph, views: Mapping[str, tuple[str, Shape]], name: str) -> tuple[str, Shape]:
    return views[name] if name in views else (name, graph.spec(name).shape)


def _resolved(graph: Graph, found: Expression, views: Mapping[str, tuple[str, Shape]]) -> Expression | str:
    """The steps with views replaced by what they look at."""
    steps, known = [], set()
    for op in found.steps:
        operands = []
        for name in op.operands:
            if name in known:
                operands.append(name)
                continue
            if name not in views and not graph.is_tensor(name):
                return ""
            source, shape = _seen(graph, views, name)
            if found.arguments.setdefault(source, shape) != shape:
                return f"{source} is seen in two shapes"
            operands.append(source)
        steps.append(Op(op.name, op.target, tuple(operands), op.attributes, op.output))
        known.add(op.name)
    found.steps = steps
    return found


def _only_in_products(diagonal: Op, ops: tuple[Op, ...]) -> bool:
    readers = [op for op in ops if diagonal.name in op.operands]
    return bool(readers) and all(base_name(op.target) in ("mm", "matmul") for op in readers)


def _diagonal(graph: Graph, op: Op, ops: tuple[Op, ...]) -> tuple[str, Shape, str] | None:
    """Of a product with a diagonal matrix: the diagonal, the shape that scales, and the other factor."""
    if base_name(op.target) not in ("mm", "matmul") or len(op.output.shape) != 2:
        return None
    made = {
        each.name: each.operands[0]
        for each in ops
        if base_name(each.target) == "diag" and each.attribute("diagonal") in (0, None)
        and graph.is_tensor(each.operands[0]) and len(graph.spec(each.operands[0]).shape) == 1
    }  # fmt: skip
    left, right = op.operands
    if (left in made) == (right in made):
        return None
    if left in made:
        return made[left], (op.output.shape[0], 1), right
    return made[right], (op.output.shape[1],), left


def parts_of(graph: Graph, found: Expression, spec: TensorSpec) -> Form | str:
    """What templates need of an expression with results of this form; or what is in the way."""
    used = {name for op in graph.task.graph for name in op.operands}
    # a counter of batches is a buffer that nobody reads in eval mode
    tensors = [a for a in graph.task.arguments if a.tensor is not None and (a.origin != "buffer" or a.name in used)]
    if len(tensors) != len(found.arguments) or len(tensors) > MOST_TENSORS:
        return ""
    kinds = {a.tensor.dtype for a in tensors if a.tensor} | {op.output.dtype for op in found.steps}
    if not kinds <= set(READ) or not kinds & set(FLOATING):
        return ""
    numbers = _numbers(graph, found)
    if isinstance(numbers, str):
        return numbers
    names = {a.name: _c_name(a.name) for a in tensors}
    if len(tensors) == 1:
        names = {tensors[0].name: "x"}
    for (_, _), name in numbers.items():
        if _TAKEN.fullmatch(name) or not _NAME.fullmatch(name) or name in names.values():
            return f"the number {name} has a name that the kernel needs itself"
        names[name] = name
    shapes = {names[a.name]: (a.tensor.shape, found.arguments[a.name]) for a in tensors if a.tensor}
    layout = arrange(shapes, spec.shape)
    if layout is None:
        return "the shapes of its tensors do not go together as it knows them"
    pointwise = chain(found.steps, {a.name: names[a.name] for a in tensors}, numbers)
    small = {operand.name for operand in layout.operands if not operand.inner}
    facts = {
        "elements": spec.elements,
        "tensors": len(tensors),
        "broadcast": layout.broadcast,
        "inner": layout.inner,
        "functions": pointwise.functions,
        "small": sum(a.tensor.elements for a in tensors if a.tensor and names[a.name] in small),
    }
    code = {"pointwise": pointwise, "layout": layout, "numbers": tuple(numbers.values())}
    return Form("pointwise", described("", found.steps), facts, names, code)


def _c_name(name: str) -> str:
    clean = name if _NAME.fullmatch(name) else f"arg_{name.strip('_')}"
    return f"{clean}_in" if _TAKEN.fullmatch(clean) else clean


def _numbers(graph: Graph, found: Expression) -> dict[tuple[str, str], str] | str:
    """Where numbers among the arguments stand; the exporter writes them as constants, so the value must tell."""
    places: dict[tuple[str, str], str] = {}
    for argument in graph.task.arguments:
        if argument.tensor is not None:
            continue
        same = [
            (op.name, slot) for op in found.steps for slot in slots(op) if _equal(op.attribute(slot), argument.value)
        ]
        rivals = sum(_equal(other.value, argument.value) for other in graph.task.arguments if other.tensor is None)
        if len(same) != 1 or rivals != 1:
            return f"what the number {argument.name} does cannot be told"
        places[same[0]] = argument.name
    return places


def _equal(one: object, other: object) -> bool:
    numbers = isinstance(one, (int, float)) and isinstance(other, (int, float))
    return numbers and not isinstance(other, bool) and one == other
