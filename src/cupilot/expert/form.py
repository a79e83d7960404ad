"""A task's computation as recipes see it: what is computed, not how.

A *form* is a family of computations (pointwise, product, reduction, ...).  Its module in `cupilot.expert.forms` reads
the exported graph of a task and says which member of the family it is, in plain facts; recipes match forms and
conditions on their facts, and never look at the graph.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from cupilot.expert.pointwise import is_pointwise
from cupilot.expert.storage import FLOATING
from cupilot.records import Argument, Op, Task, TensorSpec
from cupilot.tasks.operators import base_name

CONVERSIONS = ("to", "to_copy", "type_as")


@dataclass(frozen=True)
class Form:
    """One member of a family.

    ``facts`` are numbers, words, truths and tuples of those: conditions and values in recipes use them, and so do
    templates.  ``code`` is for templates alone: fragments of C, mostly.  ``names`` gives the kernel's name of each
    argument that the host function takes; arguments that are not named are not passed.
    """

    kind: str
    title: str
    facts: Mapping[str, Any]
    names: Mapping[str, str]
    code: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Graph:
    """A task's operators and tensors by name, with the questions that forms ask."""

    task: Task

    @cached_property
    def ops(self) -> Mapping[str, Op]:
        return {op.name: op for op in self.task.graph}

    @cached_property
    def arguments(self) -> Mapping[str, Argument]:
        return {argument.name: argument for argument in self.task.arguments}

    @property
    def last(self) -> Op:
        return self.task.graph[-1]

    def spec(self, name: str) -> TensorSpec:
        """The form of an argument's or an operator's tensor."""
        if name in self.ops:
            return self.ops[name].output
        tensor = self.arguments[name].tensor
        assert tensor is not None, f"{name} is a number"
        return tensor

    def is_tensor(self, name: str) -> bool:
        """Whether a name is a tensor argument of the task."""
        return name in self.arguments and self.arguments[name].tensor is not None

    def only(self, *names: str) -> Op | None:
        """The one operator with one of these base names; None when there is none, or several."""
        found = [op for op in self.task.graph if base_name(op.target) in names]
        return found[0] if len(found) == 1 else None

    def tail(self, name: str) -> tuple[Op, ...] | None:
        """The pointwise operators that turn the tensor ``name`` into the task's result, shape by shape.

        None when what follows is anything else: another operator, other tensors, another shape, no floating type.
        """
        place = next((at for at, op in enumerate(self.task.graph) if op.name == name), -1)
        steps, known, form = self.task.graph[place + 1 :], {name}, self.spec(name)
        for op in steps:
            if not self.follows(op, form, known):
                return None
            known.add(op.name)
        return steps

    @staticmethod
    def follows(op: Op, form: TensorSpec, known: Collection[str]) -> bool:
        """Whether an operator makes each element of the elements in the same place of known tensors of this form.

        The floating type may change: kernels compute in float32 until they write.
        """
        alike = op.output.shape == form.shape and op.output.dtype in FLOATING and op.output.strides == form.strides
        return is_pointwise(op) and bool(op.operands) and set(op.operands) <= set(known) and alike

    def all_floating(self) -> bool:
        """Whether every tensor is of a floating type that kernels read and write, and there is one result."""
        specs = [a.tensor for a in self.task.arguments if a.tensor is not None] + [op.output for op in self.task.graph]
        return len(self.task.outputs) == 1 and all(spec.dtype in FLOATING for spec in specs)


def without_widening(task: Task) -> Task:
    """The task without conversions of arguments to float32: kernels make floats of what they read anyway."""
    types = {argument.name: argument.tensor.dtype for argument in task.arguments if argument.tensor is not None}
    renamed: dict[str, str] = {}
    kept: list[Op] = []
    for op in task.graph:
        operands = tuple(renamed.get(name, name) for name in op.operands)
        widens = base_name(op.target) in CONVERSIONS and len(operands) == 1 and op.output.dtype == "float32"
        if widens and types.get(operands[0]) in FLOATING and op is not task.graph[-1]:
            renamed[op.name] = operands[0]
        else:
            kept.append(replace(op, operands=operands))
    return replace(task, graph=tuple(kept)) if renamed else task


def axis(value: Any, rank: int) -> int:
    """A dimension as ATen counts it, from the front."""
    return int(value) % max(rank, 1)


def described(main: str, steps: Sequence[Op]) -> str:
    """A title: the main computation and what is fused behind it."""
    fused = " -> ".join(base_name(op.target) for op in steps)
    return f"{main}, then {fused}" if main and fused else main or fused
