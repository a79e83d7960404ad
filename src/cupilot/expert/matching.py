"""Finds the recipe for a task: the task's form, then the recipe that matches it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cupilot.errors import UnmatchedTask
from cupilot.expert.expressions import value_of
from cupilot.expert.form import Form, Graph, without_widening
from cupilot.expert.forms import forms
from cupilot.expert.pointwise import is_pointwise
from cupilot.expert.recipe import Recipe
from cupilot.expert.storage import narrow, tensor_types
from cupilot.records import Op, Task

ADVICE = "give an LLM key, or write a recipe (docs/add-a-recipe.md)"


@dataclass(frozen=True)
class Problem:
    """A task, what it computes, and the recipe that writes its kernels."""

    task: Task
    form: Form
    recipe: Recipe

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The form's facts, and what the recipe derives from them."""
        return self.recipe.known(form_facts(self.form, self.task))

    @property
    def precision(self) -> str:
        """What products are computed in."""
        return str(self.facts["precision"])


def match(task: Task, recipes: Sequence[Recipe]) -> Problem:
    """The first recipe that matches; `UnmatchedTask` says which operator prevents it, and what to do."""
    strided = next((argument.name for argument in task.arguments if argument.tensor and argument.tensor.strides), "")
    if strided:
        raise UnmatchedTask(f"the expert has no recipe for {task.name}: its input {strided} is strided; {ADVICE}")
    graph = Graph(without_widening(task))
    found = [module.read(graph) for module in forms().values()] if task.graph else []
    why = [text for text in found if isinstance(text, str) and text]
    for form in (each for each in found if isinstance(each, Form)):
        facts = form_facts(form, task)
        for recipe in recipes:
            if recipe.match.form != form.kind:
                continue
            broken = next((rule.text for rule in recipe.match.rules if not value_of(rule.rule, facts)), "")
            if not broken:
                return Problem(task, form, recipe)
            why.append(broken)
    reason = f"{_shown(graph, _obstacle(graph.task))} does not fit, {why[0]}" if why else _reason(graph)
    raise UnmatchedTask(f"the expert has no recipe for {task.name}: {reason}; {ADVICE}")


def form_facts(form: Form, task: Task) -> dict[str, Any]:
    """The form's facts and those of every form (`COMMON`)."""
    per_word = 2 if narrow(tensor_types(task)) else 1
    return {"precision": task.precision, "per_word": per_word, **form.facts}


def _obstacle(task: Task) -> Op:
    """The operator that stands in the way: the first that is not merely pointwise, or the first of all."""
    return next((op for op in task.graph if not is_pointwise(op)), task.graph[0])


def _shown(graph: Graph, op: Op) -> str:
    """An operator with types and shapes of what it takes and makes."""
    taken = ", ".join(str(graph.spec(name)) for name in op.operands if name in graph.ops or graph.is_tensor(name))
    return f"{op.target} ({taken or 'nothing'} -> {op.output})"


def _reason(graph: Graph) -> str:
    """The operator that no recipe handles, and the pointwise operators that could be fused with it."""
    task = graph.task
    if not task.graph:
        return "its graph of operators could not be exported"
    unknown = [op for op in task.graph if not is_pointwise(op)]
    types = sorted({op.output.dtype for op in task.graph} | {a.tensor.dtype for a in task.arguments if a.tensor})
    if not unknown:
        return f"{', '.join(task.operators)} on {', '.join(types)} are not arranged as it knows them"
    others = [op.target for op in unknown[1:]]
    beside = f", beside {', '.join(dict.fromkeys(others))}" if others else ""
    return f"it does not know {_shown(graph, unknown[0])} as it is used here{beside}{_fusible(task)}"


def _fusible(task: Task) -> str:
    around = [op.target for op in task.graph if is_pointwise(op)]
    return f" (what could be fused around it: {', '.join(dict.fromkeys(around))})" if around else ""
