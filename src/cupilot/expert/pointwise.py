"""Pointwise operators as C, from the table in ``pointwise.toml``; chains of them become one function.

Covered: float32 operators of one tensor and constants, or of two tensors of the chain.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from cupilot.errors import DataError
from cupilot.gpu.work import base_name
from cupilot.records import Op

_TABLE = Path(__file__).with_name("pointwise.toml")
_KEYS = {"expression", "defaults", "absent"}


@dataclass(frozen=True)
class Pointwise:
    """A chain as C: statements, the name of the result, and the chain in words."""

    lines: tuple[str, ...] = ()
    result: str = "x"
    formula: str = ""


def op_name(target: str) -> str:
    """The base name of a target, private spellings included: ``aten._softmax`` is ``softmax``."""
    return base_name(target).lstrip("_")


def is_pointwise(op: Op) -> bool:
    """Whether the table knows the operator with these attributes."""
    entry = _table().get(op_name(op.target))
    return entry is not None and all(op.attribute(name) is None for name in entry.get("absent", ()))


def chain(steps: Sequence[Op], sources: Mapping[str, str]) -> Pointwise:
    """C statements for operators that follow each other; ``sources`` has the C of every tensor they start from."""
    names = dict(sources)
    lines: list[str] = []
    for index, op in enumerate(steps, start=1):
        names[op.name] = f"v{index}"
        expression = _expression(op, [names[operand] for operand in op.operands])
        lines.append(f"const float v{index} = {expression};")
    formula = " -> ".join(op_name(op.target) for op in steps)
    return Pointwise(tuple(lines), names[steps[-1].name], formula) if steps else Pointwise()


def _expression(op: Op, operands: Sequence[str]) -> str:
    entry = _table()[op_name(op.target)]
    values: dict[str, Any] = {**entry.get("defaults", {}), **dict(op.attributes)}
    second = operands[1] if len(operands) > 1 else literal(values["other"]) if "other" in values else None
    return _template(entry["expression"]).render(**{**values, "x": operands[0], "y": second})


def literal(value: float) -> str:
    """A number as a C float literal; the shortest text that reads back as the same double."""
    number = float(value)
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "-INFINITY"
    return f"{number!r}f"


@cache
def _template(text: str) -> jinja2.Template:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    environment.filters["c"] = literal
    return environment.from_string(text)


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    for name, entry in table.items():
        unknown = sorted(set(entry) - _KEYS)
        if unknown or "expression" not in entry:
            raise DataError(
                f"{_TABLE.name}: [{name}] must have an expression and no key but {', '.join(sorted(_KEYS))}"
            )
    return table
