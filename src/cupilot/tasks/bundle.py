"""A task file with several shapes: ``SHAPES = [...]`` beside the reference.

Each item is one task.  A tuple, a list or a number is what ``get_inputs`` is called with, one parameter for each entry
or one for the whole; a dict holds parameters of ``get_inputs`` and constants at the top of the file by their names.
``get_init_inputs`` is called in the same way if it has parameters.  The text of each task ends with the sizes as
constants, so that smaller versions can be made of it.  A file whose ``SHAPES`` none of this fits has one task.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cupilot.errors import TaskError

NAMES = ("SHAPES", "INPUT_SHAPES")
WHOLE = ("shape", "size", "sizes", "shapes", "dims")
"""Parameters that take a tuple of one size as it is."""
MOST = 64
FUNCTIONS = ("get_inputs", "get_init_inputs")
Nested = int | Sequence["Nested"] | Mapping[str, "Nested"]


@dataclass(frozen=True)
class ShapedText:
    """One task of a bundle; ``shape`` is what messages call it, empty for a file that has one task."""

    shape: str
    source: str


def bundled(source: str, where: str) -> tuple[ShapedText, ...]:
    """The text of each task, in the order of the list."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return (ShapedText("", source),)  # loading it says what is wrong
    functions = {node.name: node.args for node in body if isinstance(node, ast.FunctionDef) and node.name in FUNCTIONS}
    assigned = {name: node for node in body for name in _names(node)}
    listed = next((assigned[name] for name in NAMES if name in assigned), None)
    # a text whose get_inputs is assigned was made here
    if listed is None or "get_inputs" not in functions or "get_inputs" in assigned:
        return (ShapedText("", source),)
    items = _items(listed)
    if len(items) > MOST:
        raise TaskError(f"{where}: {len(items)} shapes are too many (at most {MOST})")
    found = [_text(source, item, functions, assigned) for item in items]
    fitting = [ShapedText(_shown(item), text) for item, text in zip(items, found, strict=True) if text is not None]
    return tuple(fitting) if fitting and len(fitting) == len(items) else (ShapedText("", source),)


def _names(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    flat = [each for target in targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [each.id for each in flat if isinstance(each, ast.Name)]


def _items(node: ast.stmt) -> list[Nested]:
    """The list as it is written; nothing where it is computed."""
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    try:
        items = ast.literal_eval(value) if value is not None else ()
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return []
    good = isinstance(items, (list, tuple)) and all(_is_shape(item) for item in items)
    return list(items) if good else []


def _is_shape(item: object) -> bool:
    if isinstance(item, dict):
        return bool(item) and all(isinstance(key, str) and _is_shape(value) for key, value in item.items())
    if isinstance(item, (list, tuple)):
        return bool(item) and all(_is_shape(each) for each in item)
    return type(item) is int and item > 0


def _text(
    source: str, item: Nested, functions: Mapping[str, ast.arguments], assigned: Mapping[str, ast.stmt]
) -> str | None:
    """The task of one shape; None where the shape does not fit the file's functions and constants."""
    lines: list[str] = []
    used: set[str] = set()
    values: dict[str, Nested] = {}
    for name, arguments in functions.items():
        parameters = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        given = _given(item, parameters) if parameters else {}
        if given is None:
            return None
        values |= given
        used |= set(given)
        if given:
            words = ", ".join(f"{each}={_constant(each, value)}" for each, value in given.items())
            lines.append(f"{name} = __import__('functools').partial({name}, {words})")
    rest = {key: value for key, value in item.items() if key not in used} if isinstance(item, Mapping) else {}
    places = {key: _value_node(assigned[key], key) for key in rest if key in assigned}
    if len(places) < len(rest) or not (used or rest):
        return None
    source = _replaced(source, [(node, repr(rest[key])) for key, node in places.items() if node is not None])
    late = [f"{key} = {rest[key]!r}" for key, node in places.items() if node is None]
    end = "" if source.endswith("\n") else "\n"
    return f"{source}{end}" + "".join(f"{line}\n" for line in (*late, *_constants(values), *lines))


def _value_node(statement: ast.stmt, name: str) -> ast.expr | None:
    """Where the value of a constant stands, if that is on one line."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return None
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    pairs = [(target, statement.value)]
    if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
        pairs = list(zip(target.elts, statement.value.elts, strict=False))
    found = next((value for each, value in pairs if isinstance(each, ast.Name) and each.id == name), None)
    return found if found is not None and found.lineno == found.end_lineno else None


def _replaced(source: str, values: Sequence[tuple[ast.expr, str]]) -> str:
    lines = [line.encode() for line in source.split("\n")]  # lines and (byte) columns as ast counts them
    for node, text in sorted(values, key=lambda pair: -pair[0].col_offset):
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = line[: node.col_offset] + text.encode() + line[node.end_col_offset :]
    return b"\n".join(lines).decode()


def _given(item: Nested, parameters: Sequence[str]) -> dict[str, Nested] | None:
    """The values of parameters by name; None where there is one too many or too few."""
    if isinstance(item, Mapping):
        return {name: item[name] for name in parameters if name in item}
    if isinstance(item, int):
        return {parameters[0]: item} if len(parameters) == 1 else None
    if len(parameters) == 1:
        alone = len(item) == 1 and parameters[0] not in WHOLE
        return {parameters[0]: item[0] if alone else item}
    return dict(zip(parameters, item, strict=True)) if len(parameters) == len(item) else None


def _constants(values: Mapping[str, Nested]) -> list[str]:
    """Sizes as constants of their own, which `scale` finds."""
    found: list[str] = []
    for name, value in values.items():
        if isinstance(value, int):
            found.append(f"{_prefixed(name)} = {value}")
        elif not isinstance(value, Mapping) and all(isinstance(each, int) for each in value):
            names = [f"{_prefixed(name)}_{place}" for place in range(len(value))]
            found += [f"{each} = {size}" for each, size in zip(names, value, strict=True)]
    return found


def _constant(name: str, value: Nested) -> str:
    """How the call names a parameter's value."""
    if isinstance(value, int):
        return _prefixed(name)
    if isinstance(value, Mapping) or not all(isinstance(each, int) for each in value):
        return repr(value)
    inside = ", ".join(f"{_prefixed(name)}_{place}" for place in range(len(value)))
    return f"[{inside}]" if isinstance(value, list) else f"({inside},)"


def _prefixed(name: str) -> str:
    return f"shape_{name}"


def _shown(item: Nested) -> str:
    """Such as ``64x128`` or ``batch 64, width 128``."""
    if isinstance(item, Mapping):
        return ", ".join(f"{key} {_shown(value)}" for key, value in item.items())
    if isinstance(item, int):
        return str(item)
    flat = all(isinstance(each, int) for each in item)
    return "x".join(map(str, item)) if flat else ", ".join(_shown(each) for each in item)
