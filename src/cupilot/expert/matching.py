"""From a task's graph to the recipe that realises it.

A recipe matches one main operator on tensor arguments, followed by pointwise operators on its
result, which are fused; the elementwise recipe has no main operator.  Not covered: pointwise
operators before the main one, scalars among the inputs, several outputs, types other than float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cupilot.errors import UnmatchedTask
from cupilot.expert.expressions import value_of
from cupilot.expert.pointwise import is_pointwise, op_name
from cupilot.expert.recipe import Recipe
from cupilot.records import Argument, Op, Task, TensorSpec

ADVICE = "give an LLM key, or write a recipe"


@dataclass(frozen=True)
class Problem:
    """A task as a recipe sees it: its tensors in the main operator's order, and what follows."""

    task: Task
    recipe: Recipe
    main: Op | None
    tensors: tuple[Argument, ...]
    steps: tuple[Op, ...]

    @property
    def source(self) -> str:
        """Name of the tensor that the pointwise steps start from."""
        return self.main.name if self.main is not None else self.tensors[0].name

    @property
    def facts(self) -> dict[str, int]:
        """The recipe's facts for the shapes of this task."""
        names = _operator_names(self.main, self.tensors)
        for name, expression in self.recipe.facts:
            names[name] = value_of(expression, names)
        return {name: names[name] for name, _ in self.recipe.facts}


def match(task: Task, recipes: Sequence[Recipe]) -> Problem:
    """The first recipe that fits; `UnmatchedTask` says which operator stands in the way, and what to do."""
    why: list[str] = []
    for recipe in recipes:
        fit = _fit(task, recipe)
        if isinstance(fit, Problem):
            return fit
        why.append(fit)
    # the most telling reason: that of a recipe whose main operator is there
    reason = next((text for text in why if text), "") or _obstacle(task, recipes)
    raise UnmatchedTask(f"the expert has no recipe for {task.name}: {reason}; {ADVICE}")


def _fit(task: Task, recipe: Recipe) -> Problem | str:
    """The problem, or why not; the empty string when the recipe is about something else."""
    if not task.graph:
        return ""
    if not recipe.match.operators:
        main, steps = None, task.graph
    elif op_name(task.graph[0].target) in recipe.match.operators:
        main, steps = task.graph[0], task.graph[1:]
    else:
        return ""
    if not all(is_pointwise(op) for op in steps):
        return ""
    tensors = {argument.name: argument for argument in task.arguments if argument.tensor is not None}
    wanted = main.operands if main is not None else tuple(tensors)
    if len(tensors) != len(task.arguments) or len(wanted) != len(recipe.match.names) or set(wanted) != set(tensors):
        return ""
    problem = Problem(task, recipe, main, tuple(tensors[name] for name in wanted), steps)
    broken = _broken_rule(problem)
    if broken:
        return broken
    return problem if _connected(problem) and _plain_types(task) else ""


def _connected(problem: Problem) -> bool:
    """Every step works on the source or an earlier step at the full shape, and the last gives the output."""
    known = {problem.source}
    main, first = problem.main, problem.tensors[0].tensor
    shape = main.output.shape if main is not None else first.shape if first is not None else ()
    for op in problem.steps:
        if not op.operands or not set(op.operands) <= known or op.output.shape != shape:
            return False
        known.add(op.name)
    return True


def _plain_types(task: Task) -> bool:
    specs = [argument.tensor for argument in task.arguments] + [op.output for op in task.graph]
    return len(task.outputs) == 1 and all(spec is not None and spec.dtype == "float32" for spec in specs)


def _broken_rule(problem: Problem) -> str:
    names = _operator_names(problem.main, problem.tensors)
    for rule in problem.recipe.match.rules:
        if not value_of(rule.rule, names):
            target = problem.main.target if problem.main is not None else "the chain"
            return f"{target} does not fit, {rule.text}"
    return ""


def _operator_names(main: Op | None, tensors: tuple[Argument, ...]) -> dict[str, Any]:
    inputs: tuple[TensorSpec, ...] = tuple(argument.tensor for argument in tensors if argument.tensor is not None)
    return {"inputs": inputs, "attributes": dict(main.attributes) if main is not None else {}}


def _obstacle(task: Task, recipes: Sequence[Recipe]) -> str:
    """What stands in the way, as far as the operators alone tell."""
    if not task.graph:
        return "its graph of operators could not be exported"
    mains = {name for recipe in recipes for name in recipe.match.operators}
    unknown = [op.target for op in task.graph if op_name(op.target) not in mains and not is_pointwise(op)]
    if unknown:
        return f"it does not know the operator {unknown[0]}"
    if any(argument.tensor is None for argument in task.arguments):
        return f"{task.graph[0].target} with a scalar among the inputs is not known"
    if not _plain_types(task):
        return f"{task.graph[0].target} is known on float32 tensors with one result only"
    listed = ", ".join(task.operators)
    return f"{listed} are not arranged as it knows them: a main operator on the inputs, then pointwise ones"
