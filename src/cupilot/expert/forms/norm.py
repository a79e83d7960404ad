"""Norms: statistics over some axes, then every element by them, and what is done to that pointwise.

Covered: layer_norm, group_norm, instance_norm, rms_norm and batch_norm by the batch's own statistics; softmax and
log_softmax over any axis but the last one; and chains of pointwise operators and reductions over the same adjacent
axes of one tensor (`mean`, `sum`, `amax`, `linalg_vector_norm` of order 1 and 2), with weights in what follows.
Not covered: running statistics, variances (`var`), reductions of different axes, operators before a library's norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cupilot.expert.form import Form, Graph, axis, described
from cupilot.expert.forms._stages import FACTS as STAGED
from cupilot.expert.forms._stages import Layout, Spread, Stage, exponentials, followed, moments
from cupilot.expert.pointwise import Pointwise, chain, is_pointwise, literal
from cupilot.expert.storage import FLOATING
from cupilot.records import Op
from cupilot.tasks.operators import base_name

FACTS = STAGED
LIBRARY = ("layer_norm", "group_norm", "instance_norm", "batch_norm", "rms_norm")
SOFTMAX = ("softmax", "log_softmax")
REDUCTIONS = {"mean": "mean", "sum": "sum", "amax": "max", "linalg_vector_norm": "norm"}
ALIASES = ("expand", "expand_as", "alias", "clone", "contiguous")
EPS32 = 1.1920928955078125e-07


def read(graph: Graph) -> Form | str:
    """Templates see what `_stages` says."""
    if any(base_name(op.target) in LIBRARY for op in graph.task.graph):
        return _library(graph)
    if any(base_name(op.target) in SOFTMAX for op in graph.task.graph):
        return _softmax(graph)
    return _chain(graph)


def _form(
    graph: Graph, title: str, kind: str, layout: Layout, stages: Sequence[Stage], final: Pointwise,
    weights: Sequence[Spread], names: dict[str, str],
) -> Form | str:  # fmt: skip
    source = next(name for name, known in names.items() if known == "x")
    facts = layout.facts(graph.spec(source).shape)
    if facts["elements"] == 0:
        return "an empty tensor has no statistics"
    extra = {"kind": kind, "stages": len(stages), "weights": len(weights)}
    code = {"steps": tuple(stages), "final": final, "layout": layout, "spreads": tuple(weights)}
    return Form("norm", title, {**facts, **extra}, names, code)


# --- library operators ----------------------------------------------------------------------------


def _library(graph: Graph) -> Form | str:
    main = graph.only(*LIBRARY)
    if main is None or not graph.is_tensor(main.operands[0]):
        return ""
    place = next(at for at, op in enumerate(graph.task.graph) if op.name == main.name)
    counting = {name for op in graph.task.graph[:place] for name in (*op.operands, op.name)}
    if any(base_name(op.target) not in ("add", "add_") or op.output.shape for op in graph.task.graph[:place]):
        return ""
    steps, kind = graph.tail(main.name), base_name(main.target)
    used = [name for name in graph.arguments if name in main.operands]
    if steps is None or set(graph.arguments) - set(used) - counting or not _all_floating(graph, used):
        return ""
    found = _axes(main, kind)
    if isinstance(found, str):
        return found
    layout, weight_axis = found
    names, weights = {main.operands[0]: "x"}, []
    for name, operand in zip(("weight", "bias"), _affine(main), strict=False):
        if operand:
            names[operand] = name
            weights.append(Spread(name, weight_axis))
    has = {spread.name for spread in weights}
    centred = "x * s0" if kind == "rms_norm" else "(x - s0) * s1"
    scaled = f"{centred} * weight" if "weight" in has else centred
    result = f"{scaled} + bias" if "bias" in has else scaled
    eps = literal(_eps(main))
    stages: tuple[Stage, ...] = moments(eps)
    if kind == "rms_norm":
        stages = (Stage(Pointwise((), "x * x", "the square"), f"rsqrtf(total / count + {eps})"),)
    final = followed(result, main.name, steps)
    title = described(f"{kind.replace('_', ' ').capitalize()} by the data's own statistics", steps)
    return _form(graph, title, "sum" if kind == "rms_norm" else "moments", layout, stages, final, weights, names)


def _axes(main: Op, kind: str) -> tuple[Layout, int] | str:
    """What is reduced, and the axis of the weights."""
    rank = len(main.output.shape)
    if kind in ("layer_norm", "rms_norm"):
        length = len(main.attribute("normalized_shape") or ())  # type: ignore[arg-type]
        return Layout(rank - length, rank - 1), rank - 1
    if kind == "group_norm":
        return Layout(1, rank - 1, groups=int(main.attribute("num_groups") or 1)), 1  # type: ignore[arg-type]
    if kind == "instance_norm":
        if main.attribute("use_input_stats") is not True:
            return "instance_norm is known by the data's own statistics only"
        return (Layout(2, rank - 1), 1) if rank > 2 else "instance_norm of fewer than three axes is not known"
    if main.attribute("training") is not True:
        return "batch_norm is known by the batch's own statistics only"
    return (Layout(0, 0) if rank == 2 else Layout(1, rank - 1, in_pieces=True)), 1


def _affine(main: Op) -> tuple[str, str]:
    """The operands that are weight and bias, or empty names: those that are missing are attributes."""
    left, absent = list(main.operands[1:]), dict(main.attributes)
    weight, bias = ("" if name in absent or not left else left.pop(0) for name in ("weight", "bias"))
    return weight, bias


def _eps(main: Op) -> float:
    value = main.attribute("eps")
    return EPS32 if value is None else float(value)  # type: ignore[arg-type]


def _all_floating(graph: Graph, names: Sequence[str]) -> bool:
    specs = [graph.spec(name) for name in names] + [op.output for op in graph.task.graph if op.output.shape]
    return len(graph.task.outputs) == 1 and all(spec.dtype in FLOATING for spec in specs)


# --- softmax over an inner axis ---------------------------------------------------------------------


def _softmax(graph: Graph) -> Form | str:
    main = graph.only(*SOFTMAX)
    if main is None or len(graph.arguments) != 1 or not graph.is_tensor(main.operands[0]):
        return ""
    shape, log = main.output.shape, base_name(main.target) == "log_softmax"
    along, steps = axis(main.attribute("dim"), len(shape)), graph.tail(main.name)
    converted = main.attribute("dtype") not in (None, *FLOATING)
    if along >= len(shape) - 1 or converted or steps is None or not graph.all_floating():
        return ""
    final = followed("x - s0 - s1" if log else "expf(x - s0) * s1", main.name, steps)
    title = described(f"{'Logarithm of softmax' if log else 'Softmax'} over axis {along}", steps)
    return _form(graph, title, "softmax", Layout(along, along), exponentials(log), final, (), {main.operands[0]: "x"})


# --- chains -----------------------------------------------------------------------------------------


@dataclass
class _Walk:
    """What has been read of a chain: operators in order, C names of the tensors they start from, weights, stages."""

    shape: tuple[int, ...]
    small: tuple[int, ...] = ()
    axes: tuple[int, int] = (0, 0)
    steps: list[Op] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    weights: dict[str, Spread] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)

    def needed(self, name: str) -> list[Op]:
        """The operators that make a tensor, in order."""
        wanted, found = {name}, []
        for op in reversed(self.steps):
            if op.name in wanted:
                wanted |= set(op.operands)
                found.append(op)
        return found[::-1]

    def term(self, name: str) -> Pointwise:
        steps = self.needed(name)
        return chain(steps, self.sources) if steps else Pointwise((), self.sources[name], "the value")


def _chain(graph: Graph) -> Form | str:
    if not graph.task.graph or not graph.all_floating() or not graph.task.arguments[0].tensor:
        return ""
    shape = graph.task.outputs[0].shape
    full = [name for name in graph.arguments if graph.is_tensor(name) and graph.spec(name).shape == shape]
    if len(full) != 1 or not any(base_name(op.target) in REDUCTIONS for op in graph.task.graph):
        return ""
    walk = _Walk(shape, sources={full[0]: "x"})
    for op in graph.task.graph:
        if not _taken(walk, graph, op):
            return ""
    last = graph.last
    if not walk.stages or last.output.shape != shape or set(graph.arguments) - {full[0]} - set(walk.weights):
        return ""
    final = walk.term(walk.aliases.get(last.name, last.name))
    if not final.lines:
        return ""
    names = {full[0]: "x"} | {name: spread.name for name, spread in walk.weights.items()}
    kind = "sum" if len(walk.stages) == 1 and walk.stages[0].combine == "sum" else "other"
    title = "Norm: " + " -> ".join(base_name(op.target) for op in graph.task.graph)
    layout, weights = Layout(*walk.axes), tuple(walk.weights.values())
    return _form(graph, title, kind, layout, walk.stages, final, weights, names)


def _taken(walk: _Walk, graph: Graph, op: Op) -> bool:
    """Whether the next operator fits, and is noted."""
    kind, operands = base_name(op.target), tuple(walk.aliases.get(name, name) for name in op.operands)
    if kind in ALIASES and len(operands) <= 2:
        walk.aliases[op.name] = operands[0]
        return operands[0] in walk.sources or any(step.name == operands[0] for step in walk.steps)
    if kind in REDUCTIONS:
        return _reduced(walk, op, kind, operands[0])
    known = {*walk.sources, *(step.name for step in walk.steps)}
    for name in operands:
        if name not in known and not (graph.is_tensor(name) and walk.stages and _weight(walk, graph, name)):
            return False
    if not is_pointwise(op) or not operands or op.output.shape not in (walk.shape, walk.small):
        return False
    walk.steps.append(Op(op.name, op.target, operands, op.attributes, op.output))
    return True


def _reduced(walk: _Walk, op: Op, kind: str, operand: str) -> bool:
    """A further stage, over the same axes as those before."""
    dims, stage = _reduced_axes(walk, op), _stage(kind, op, walk.term(operand)) if _is_big(walk, operand) else None
    if not dims or stage is None or op.attribute("dtype") not in (None, *FLOATING):
        return False
    axes, shape = (dims[0], dims[-1]), op.output.shape
    kept = tuple(1 if place in dims else size for place, size in enumerate(walk.shape))
    adjacent = axes[1] - axes[0] + 1 == len(dims)
    if not adjacent or shape not in (kept, ()) or (walk.stages and (walk.axes, walk.small) != (axes, shape)):
        return False
    walk.axes, walk.small = axes, shape
    walk.sources[op.name] = f"s{len(walk.stages)}"
    walk.stages.append(stage)
    return True


def _is_big(walk: _Walk, name: str) -> bool:
    """Whether this is the tensor, or made from it element by element."""
    made = any(step.name == name and step.output.shape == walk.shape for step in walk.steps)
    return made or walk.sources.get(name) == "x"


def _reduced_axes(walk: _Walk, op: Op) -> list[int]:
    rank, dim = len(walk.shape), op.attribute("dim")
    given = range(rank) if dim in (None, ()) else dim if isinstance(dim, tuple) else (dim,)
    return sorted({axis(place, rank) for place in given})


def _stage(kind: str, op: Op, term: Pointwise) -> Stage | None:
    if kind == "amax":
        return Stage(term, "total", "max", "-INFINITY")
    if kind != "linalg_vector_norm":
        return Stage(term, "total / count" if kind == "mean" else "total")
    order = op.attribute("ord", 2)
    if order == 1:
        return Stage(Pointwise(term.lines, f"fabsf({term.result})", term.formula), "total")
    squared = Pointwise(term.lines, f"{term.result} * {term.result}", term.formula)
    return Stage(squared, "sqrtf(total)") if order == 2 else None


def _weight(walk: _Walk, graph: Graph, name: str) -> bool:
    """Whether a tensor is spread over the big one as recipes can tell: some adjacent axes of it, none cut off."""
    shape = graph.spec(name).shape
    wide = (1,) * (len(walk.shape) - len(shape)) + shape
    own = [place for place, size in enumerate(wide) if size != 1]
    if len(wide) != len(walk.shape) or not own or own[-1] - own[0] + 1 != len(own):
        return False
    if any(wide[place] != walk.shape[place] for place in own):
        return False
    first, last = walk.axes
    if last != len(walk.shape) - 1 or not (own[-1] < first or own[0] <= first):
        return False
    walk.weights[name] = Spread(f"w{len(walk.weights)}", own[-1])
    walk.sources[name] = f"w{len(walk.weights) - 1}"
    return True
