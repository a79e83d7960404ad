"""Records to plain data and back, driven by the dataclasses themselves.

Strict on the way in: an unknown key, a missing key or a wrong type is a `DataError` that names
the place, so that data files and stores cannot drift from the code unnoticed.
"""

from __future__ import annotations

import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from cupilot.errors import DataError

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dataclasses become dicts, tuples become lists; everything else stays."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    return value


def from_plain(kind: type[T], data: Any, where: str = "") -> T:
    """The inverse of `to_plain` for a given type."""
    return typing.cast(T, _decode(kind, data, where or getattr(kind, "__name__", str(kind))))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(kind: Any, data: Any, where: str) -> Any:
    if is_dataclass(kind):
        return _decode_record(typing.cast(type, kind), data, where)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(kind), data, where)
    if origin is tuple:
        return _decode_tuple(typing.get_args(kind), data, where)
    if kind is float and type(data) is int:
        return float(data)
    if kind is type(None) and data is None:
        return None
    if type(data) is not kind:
        raise DataError(f"{where}: expected {getattr(kind, '__name__', kind)}, found {data!r}")
    return data


def _decode_record(kind: type, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise DataError(f"{where}: expected a table, found {data!r}")
    known = {field.name: field for field in fields(kind)}
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise DataError(f"{where}: unknown key {unknown[0]!r}; known keys are {', '.join(known)}")
    missing = [
        name
        for name, field in known.items()
        if name not in data and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise DataError(f"{where}: the key {missing[0]!r} is missing")
    hints = _hints(kind)
    return kind(**{name: _decode(hints[name], item, f"{where}.{name}") for name, item in data.items()})


def _decode_union(options: tuple[Any, ...], data: Any, where: str) -> Any:
    # exact scalar types first, so that True stays a bool and 1 an int in `bool | int | float`
    for option in options:
        if type(data) is option:
            return data
    for option in options:
        try:
            return _decode(option, data, where)
        except DataError:
            if data is not None and is_dataclass(option) and len([o for o in options if is_dataclass(o)]) == 1:
                raise
    raise DataError(f"{where}: {data!r} is none of {', '.join(str(o) for o in options)}")


def _decode_tuple(items: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(data, (list, tuple)):
        raise DataError(f"{where}: expected a list, found {data!r}")
    if len(items) == 2 and items[1] is Ellipsis:
        return tuple(_decode(items[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    if len(items) != len(data):
        raise DataError(f"{where}: expected {len(items)} entries, found {len(data)}")
    return tuple(_decode(k, d, f"{where}[{i}]") for i, (k, d) in enumerate(zip(items, data, strict=True)))
