"""The JSON schema of a reply, from a frozen dataclass.

Covered: str, int, float, bool, None, unions of these, tuples, and dataclasses of them.  The schema is strict: every
field is required (an optional one may be null) and no other is allowed; all servers with schemas accept this.
`cupilot.records.from_plain` checks what a schema cannot express.
"""

from __future__ import annotations

import json
import types
import typing
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Any

_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def described(text: str, *, default: Any = MISSING) -> Any:
    """A field of a reply, with its description for the model."""
    return field(default=default, metadata={"text": text})


def source_code(text: str, *, default: Any = MISSING) -> Any:
    """A field that holds source code, in the JSON object or in a fenced block; at most one per reply."""
    return field(default=default, metadata={"text": text, "code": True})


def code_field(shape: type) -> str | None:
    """The name of the `source_code` field, if there is one."""
    names = [entry.name for entry in fields(shape) if entry.metadata.get("code")]
    if len(names) > 1:
        raise TypeError(f"{shape.__name__} has more than one field of code: {', '.join(names)}")
    return names[0] if names else None


def schema_of(shape: type) -> str:
    """The JSON schema of a dataclass as JSON text; the same for the same dataclass."""
    return json.dumps(_schema(shape), separators=(",", ":"))


def _schema(kind: Any) -> dict[str, Any]:
    if is_dataclass(kind):
        return _record(typing.cast(type, kind))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    if origin is tuple:
        return _array(arguments)
    if kind not in _NAMES:
        raise TypeError(f"a reply cannot hold {kind}")
    return {"type": _NAMES[kind]}


def _record(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    properties = {entry.name: _described(entry, hints[entry.name]) for entry in fields(kind)}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _described(entry: Field[Any], kind: Any) -> dict[str, Any]:
    text = entry.metadata.get("text")
    return _schema(kind) | ({"description": text} if text else {})


def _union(options: tuple[Any, ...]) -> dict[str, Any]:
    # an integer is a number too, and some servers refuse the pair
    options = tuple(option for option in options if option is not int or float not in options)
    if len(options) == 1:
        return _schema(options[0])
    if all(option in _NAMES for option in options):
        return {"type": [_NAMES[option] for option in options]}
    return {"anyOf": [_schema(option) for option in options]}


def _array(items: tuple[Any, ...]) -> dict[str, Any]:
    if len(items) == 2 and items[1] is Ellipsis:
        return {"type": "array", "items": _schema(items[0])}
    entry = _schema(typing.Union[items])  # noqa: UP007 - a union of a variable number of types
    return {"type": "array", "items": entry, "minItems": len(items), "maxItems": len(items)}
