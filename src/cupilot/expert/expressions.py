"""Expressions in recipe files: arithmetic and conditions over named values.

They are Python expressions over the given names and a few functions; names are checked when a recipe is loaded.  They
are not sandboxed: a recipe is trusted like the template beside it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from types import CodeType
from typing import Any

from cupilot.errors import DataError

FUNCTIONS: Mapping[str, Any] = {"len": len, "min": min, "max": max}


def check_names(expression: str, known: Iterable[str], where: str) -> None:
    """A `DataError` if the expression cannot be parsed or uses an undefined name."""
    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError as error:
        raise DataError(f"{where}: {error.msg} in {expression!r}") from error
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in found if isinstance(node.ctx, ast.Store)}  # by a comprehension
    unknown = sorted({node.id for node in found} - bound - set(known) - FUNCTIONS.keys())
    if unknown:
        raise DataError(f"{where}: nothing is named {unknown[0]!r} in {expression!r}")


def value_of(expression: str, names: Mapping[str, Any]) -> Any:
    """The expression's value; names must have been checked."""
    # passed as globals: a comprehension does not see the locals of eval
    return eval(_compiled(expression), {"__builtins__": {}, **FUNCTIONS, **names})


@cache
def _compiled(expression: str) -> CodeType:
    return compile(expression, "<recipe>", "eval")
