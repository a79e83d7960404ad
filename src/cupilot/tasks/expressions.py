"""The user's own expressions: what ``--args`` says a host function is called with."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cupilot.errors import TaskError
from cupilot.tasks.execute import blamed
from cupilot.text import one_line

if TYPE_CHECKING:
    import torch

SAID_CHARACTERS = 200
BUILTINS: dict[str, Any] = {
    each.__name__: each for each in (len, int, float, bool, tuple, list, max, min, abs, sum, range, getattr)
}
# PyTorch imports parts of itself at their first use, with the builtins of whoever calls it
BUILTINS["__import__"] = __import__


def evaluate_expressions(
    text: str, inputs: Sequence[Any], model: torch.nn.Module, init: Mapping[str, Any] | None = None
) -> tuple[Any, ...]:
    """The values of the expressions: tensors, numbers, strings, None, or tuples of those.

    An input keeps its strides; other tensors are contiguous.

    They may use ``inputs``, ``model``, ``init`` (the constructor's arguments by name), ``torch``, ``math`` and a few
    builtins.  The text is trusted like the task file; a mistake in it is a `TaskError` that names the expression.
    """
    import torch

    names = {"__builtins__": BUILTINS, "inputs": inputs, "model": model, "init": init or {}}
    names |= {"torch": torch, "math": math}
    found: list[Any] = []
    for node in _parsed(text):
        said = _unparsed(node)
        inner = node.value if isinstance(node, ast.Starred) else node
        with blamed("--args", f"{said} cannot be evaluated"):
            value = eval(compile(ast.Expression(inner), "--args", "eval"), names)
            values = tuple(value) if isinstance(node, ast.Starred) else (value,)
        found.extend(each if any(each is given for given in inputs) else _checked(each, said) for each in values)
    return tuple(found)


def _unparsed(node: ast.expr) -> str:
    try:
        return one_line(ast.unparse(node), SAID_CHARACTERS)
    except RecursionError:
        return "an expression"


def _parsed(text: str) -> list[ast.expr]:
    said = one_line(text, SAID_CHARACTERS)
    try:
        tree = ast.parse(f"[{text.strip()}\n]", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deeply"
        raise TaskError(f"--args: {said!r} is not a list of Python expressions ({reason})") from None
    if not isinstance(tree, ast.List):
        raise TaskError(f"--args: {said!r} is not a list of Python expressions")
    return tree.elts


def _checked(value: Any, said: str) -> Any:
    """The value as a device takes it; a list may not hold lists."""
    if isinstance(value, (list, tuple)):
        return tuple(_single(item, said) for item in value)
    return _single(value, said)


def _single(value: Any, said: str) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().contiguous()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    kind = type(value).__name__
    raise TaskError(f"--args: {said} gives a {kind}, not a tensor, a number, a string, None or a flat list of those")
