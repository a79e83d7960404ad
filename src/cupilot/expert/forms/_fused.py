"""What stands before and behind the main operator of a task and is fused with it: pointwise operators, shape by shape.

Covered: several tensors of one shape before (of floating types, or bool that is taken as 0 and 1), one tensor behind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cupilot.expert.form import Graph
from cupilot.expert.pointwise import Pointwise, chain, is_pointwise
from cupilot.expert.storage import C_TYPES, FLOATING
from cupilot.records import Op
from cupilot.tasks.operators import base_name

READ = (*FLOATING, "bool")


@dataclass(frozen=True)
class Operand:
    """A tensor that a kernel reads, and its elements' type in C; a ``line`` is only as long as each sum."""

    name: str
    c_type: str = "float"
    line: bool = False


@dataclass(frozen=True)
class Before:
    """The tensors that are read, and the operators that make one number of their elements."""

    sources: tuple[str, ...]
    steps: tuple[Op, ...]

    def names(self) -> Mapping[str, str]:
        """Names in the kernel: x, x1, x2, ..."""
        return {source: f"x{place or ''}" for place, source in enumerate(self.sources)}

    def operands(self, graph: Graph) -> tuple[Operand, ...]:
        return tuple(Operand(name, C_TYPES[graph.spec(source).dtype]) for source, name in self.names().items())

    def code(self) -> Pointwise:
        return chain(self.steps, self.names())


def before(graph: Graph, name: str) -> Before | None:
    """What makes the tensor ``name``; None when that is more than pointwise operators on arguments of its own shape."""
    shape = graph.spec(name).shape
    needed, waiting = set[str](), [name]
    while waiting:
        known = waiting.pop()
        if known in needed:
            continue
        needed.add(known)
        spec, op = graph.spec(known), graph.ops.get(known)
        if spec.shape != shape or spec.dtype not in READ:
            return None
        if op is not None:
            if not is_pointwise(op) or not op.operands or spec.dtype not in FLOATING:
                return None
            waiting += op.operands
    sources = tuple(argument for argument in graph.arguments if argument in needed)
    if not any(graph.spec(source).dtype in FLOATING for source in sources):
        return None
    return Before(sources, tuple(op for op in graph.task.graph if op.name in needed))


def behind(graph: Graph, name: str, ignored: Collection[str] = ()) -> tuple[Op, ...] | None:
    """As `Graph.tail`, but for operators that nobody reads."""
    place = next(at for at, op in enumerate(graph.task.graph) if op.name == name)
    known, form = {name}, graph.spec(name)
    found: list[Op] = []
    for op in graph.task.graph[place + 1 :]:
        if op.name in ignored:
            continue
        if not graph.follows(op, form, known):
            return None
        known.add(op.name)
        found.append(op)
    return tuple(found)


def complete(graph: Graph, ops: Collection[str], sources: Collection[str]) -> bool:
    """Whether these are all operators and arguments of the task, which has one result."""
    return len(graph.task.outputs) == 1 and set(graph.ops) == set(ops) and set(graph.arguments) == set(sources)


def titled(main: str, first: Sequence[Op], then: Sequence[Op]) -> str:
    """A title: what is fused before and behind the main computation."""
    steps = [" -> ".join(base_name(op.target) for op in ops) for ops in (first, then)]
    return main + (f" of {steps[0]}" if steps[0] else "") + (f", then {steps[1]}" if steps[1] else "")
