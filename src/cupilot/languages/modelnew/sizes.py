"""Sizes that a ModelNew file copies from its task.

A task is checked in versions with other sizes at the top of its file.  A file that contains the task's own ``Model``
(exported ones do, because they inherit from it) has those sizes at its top too.  They have to change with the task, or
the parameters get the wrong shape.  Files without that class are left as they are.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import Any

MODEL = "Model"


def sizes_of(source: str, task: str) -> dict[str, int]:
    """The integers at the top of a task's version that ``Model`` refers to, if the source has the same ``Model``."""
    mine, theirs = _model(source), _model(task)
    if mine is None or theirs is None or ast.dump(mine) != ast.dump(theirs):
        return {}
    used = {node.id for node in ast.walk(theirs) if isinstance(node, ast.Name)}
    values: dict[str, Any] = {"__builtins__": {}}
    for statement in ast.parse(task).body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            # sums and products of other sizes; whatever needs more than names is no size
            with suppress(Exception):
                exec(compile(ast.Module([statement], []), "task", "exec"), values)
    return {name: value for name, value in values.items() if name in used and type(value) is int}


def _model(source: str) -> ast.ClassDef | None:
    body = ast.parse(source).body
    return next((node for node in body if isinstance(node, ast.ClassDef) and node.name == MODEL), None)
