"""From a legal strategy to source text; the comment that lists the moves is for people, and nothing reads it back."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import jinja2

from cupilot.errors import DataError
from cupilot.expert.matching import Problem
from cupilot.expert.recipe import FOLDER
from cupilot.expert.space import Space
from cupilot.expert.storage import values_for_templates
from cupilot.languages import make_kernel
from cupilot.records import Argument, Kernel, Strategy
from cupilot.strategies import move_text, order


def render(space: Space, strategy: Strategy) -> Kernel:
    """The kernel for a legal strategy; the same moves always give the same text, whatever their reasons."""
    problem = space.problem
    values = space.values(strategy)
    template = _template(problem.recipe.root, problem.recipe.name)
    text = (
        _environment(problem.recipe.root)
        .get_template(template)
        .render(
            **values,
            recipe=problem.recipe.name,
            title=problem.form.title,
            strategy=[move_text(move) for move in order(strategy).moves],
            shapes=", ".join(str(argument.tensor) for argument in problem.task.arguments if argument.tensor),
            signature=_signature(problem),
            **values_for_templates(problem.task, problem.form.names),
            **problem.form.code,
        )
    )
    lines = [line.rstrip() for line in text.splitlines()]
    source = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
    return make_kernel(source, suffix=Path(template.removesuffix(".j2")).suffix)


def _signature(problem: Problem) -> str:
    """Arguments in the task's order, under the form's names."""
    names = problem.form.names
    return ", ".join(
        f"{_type(argument)} {names[argument.name]}" for argument in problem.task.arguments if argument.name in names
    )


def _type(argument: Argument) -> str:
    if argument.tensor is not None:
        return "torch::Tensor"
    return {bool: "bool", int: "int64_t", float: "double"}[type(argument.value)]


@cache
def _template(root: str, recipe: str) -> str:
    """The recipe's ``kernel.cu.j2``; the suffix before ``.j2`` is that of a language."""
    found = [f"{recipe}/{path.name}" for path in (Path(root) / recipe).glob("kernel.*.j2")]
    if len(found) != 1:
        raise DataError(f"the recipe {recipe} needs one template kernel.SUFFIX.j2, and has {len(found)}")
    return found[0]


@cache
def _environment(root: str) -> jinja2.Environment:
    """Templates of a folder of recipes; the parts that come with the program are always there."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([root, str(FOLDER)]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
