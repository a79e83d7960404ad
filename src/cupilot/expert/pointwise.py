"""Pointwise operators as C, from the table in ``pointwise.toml``; chains of them become one function.

Covered: operators of floating tensors of the chain and constants, comparisons (whose results are bool) and choices
between values, conversions to another floating type, and losses that do not reduce.  Everything is computed in float32,
also what PyTorch rounds to 16 bits in between.  Not covered: integers.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from cupilot.errors import DataError
from cupilot.expert.storage import FLOATING
from cupilot.records import Op
from cupilot.tasks.operators import base_name, operator

_TABLE = Path(__file__).with_name("pointwise.toml")
_KEYS = {"expression", "slots", "defaults", "absent"}
_LETTERS = "xyz"
_FUNCTION = re.compile(r"\b[a-z]\w*(?=\()")


@dataclass(frozen=True)
class Pointwise:
    """A chain as C: statements, the name of the result, and the chain in words."""

    lines: tuple[str, ...] = ()
    result: str = "x"
    formula: str = ""

    @property
    def functions(self) -> tuple[str, ...]:
        """Library functions that are called, each once."""
        return tuple(dict.fromkeys(name for line in self.lines for name in _FUNCTION.findall(line)))


class Symbol(str):
    """A number that is known by name only."""


def is_pointwise(op: Op) -> bool:
    """Whether the table knows the operator with these attributes, each element by itself."""
    return _fits(op) and (operator(op.target).kind != "loss" or op.attribute("reduction") == 0)


def is_loss(op: Op) -> bool:
    """Whether the operator is the mean or the sum of what the table knows of each element."""
    return _fits(op) and operator(op.target).kind == "loss" and op.attribute("reduction") in (1, 2)


def slots(op: Op) -> tuple[str, ...]:
    """Names of the operands, be they tensors or numbers, of an operator that the table knows."""
    return tuple(_table()[base_name(op.target)]["slots"])


def _fits(op: Op) -> bool:
    entry = _table().get(base_name(op.target))
    if (
        entry is None
        or op.output.dtype not in (*FLOATING, "bool")
        or any(op.attribute(name) is not None for name in entry.get("absent", ()))
    ):
        return False
    given = sum(op.attribute(name) is not None for name in slots(op))
    return bool(op.operands) and len(op.operands) + given == len(slots(op))


def chain(
    steps: Sequence[Op], sources: Mapping[str, str], numbers: Mapping[tuple[str, str], str] | None = None
) -> Pointwise:
    """C statements for operators that follow each other; ``sources`` has the C of every tensor they start from.

    ``numbers`` has the C of constants that are not to be written into the code, by operator and slot.
    """
    names = dict(sources)
    lines: list[str] = []
    for index, op in enumerate(steps, start=1):
        names[op.name] = f"v{index}"
        known = {slot: Symbol(text) for (name, slot), text in (numbers or {}).items() if name == op.name}
        expression = _expression(op, [names[operand] for operand in op.operands], known)
        lines.append(f"const {'bool' if op.output.dtype == 'bool' else 'float'} v{index} = {expression};")
    formula = " -> ".join(base_name(op.target) for op in steps)
    return Pointwise(tuple(lines), names[steps[-1].name], formula) if steps else Pointwise()


def _expression(op: Op, operands: Sequence[str], numbers: Mapping[str, Symbol]) -> str:
    entry = _table()[base_name(op.target)]
    values: dict[str, Any] = {**entry.get("defaults", {}), **dict(op.attributes), **numbers}
    tensors = iter(operands)
    filled = [next(tensors) if values.get(slot) is None else literal(values[slot]) for slot in slots(op)]
    letters = dict(zip(_LETTERS, filled, strict=False))
    return _template(entry["expression"]).render({**values, **letters})


def literal(value: float | Symbol) -> str:
    """A number as a C float literal; the shortest text that reads back as the same double."""
    if isinstance(value, Symbol):
        return str(value)
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
        if unknown or not {"expression", "slots"} <= set(entry):
            known = ", ".join(sorted(_KEYS))
            raise DataError(f"{_TABLE.name}: [{name}] must have an expression, slots, and no key but {known}")
    return table
