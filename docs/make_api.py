"""Writes api.md from the docstrings of the Python API: ``python docs/make_api.py``."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from cupilot import api, records
from cupilot.evaluation import profiling

TITLE = "# The Python API"
INTRODUCTION = """Written by `python docs/make_api.py` from the docstrings; one test sees to it that it is current,
another runs the examples. [python.md](python.md) is the way to learn it, this page the place to look things up."""
RECORDS = """Frozen dataclasses, with everything that can be reached from them. Names end in their unit: `time_s` is in
seconds."""
FUNCTIONS: tuple[Callable[..., Any], ...] = (api.optimize, api.evaluate, api.profile)


def page() -> str:
    """The functions, then the records in the order in which they are reached."""
    found = tuple(reached())
    parts = [TITLE, INTRODUCTION, prose(api)]
    for function in FUNCTIONS:
        parts += [f"## cupilot.{function.__name__}", fenced(signature(function)), prose(function)]
    parts += ["## What they return", RECORDS]
    for kind in found:
        home = "cupilot.records" if hasattr(records, kind.__name__) else kind.__module__
        parts += [f"### {kind.__name__}", f"`{home}.{kind.__name__}`", prose(kind)]
        parts += list(tables(kind, {each.__name__ for each in found}))
    return "\n\n".join(parts) + "\n"


def signature(function: Callable[..., Any]) -> str:
    """One argument per line."""
    found = inspect.signature(function)
    lines, named = [], False
    for each in found.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not named:
            lines, named = [*lines, "*"], True
        default = "" if each.default is each.empty else f" = {each.default!r}"
        lines.append(f"{each.name}: {each.annotation}{default}")
    return "\n".join([f"{function.__name__}(", *(f"    {line}," for line in lines), f") -> {found.return_annotation}"])


def prose(thing: Any) -> str:
    """The docstring as Markdown: examples become blocks of text, which nobody runs twice."""
    doc = inspect.getdoc(thing)
    assert doc, f"{thing} has no docstring"
    paragraphs = doc.replace("``", "`").split("\n\n")
    return "\n\n".join(fenced(each) if each.startswith(">>> ") else each for each in paragraphs)


def fenced(text: str) -> str:
    return f"```\n{text}\n```"


def reached() -> Iterator[type]:
    """All dataclasses that the functions return, or that are reached from those."""
    waiting = [typing.get_type_hints(each, _names())["return"] for each in FUNCTIONS]
    seen: set[Any] = set()
    while waiting:
        kind = waiting.pop(0)
        if kind in seen:
            continue
        seen.add(kind)
        waiting += typing.get_args(kind)
        if is_dataclass(kind) and isinstance(kind, type):
            yield kind
            waiting += typing.get_type_hints(kind).values()


def _names() -> dict[str, Any]:
    """What `cupilot.api` imports for type checkers only."""
    import torch

    return vars(api) | {"torch": torch, "Profiled": profiling.Profiled}


def tables(kind: type, known: set[str]) -> Iterator[str]:
    rows = [f"| `{each.name}` | {linked(each.type, known)} |" for each in fields(kind)]
    yield "\n".join(["| Field | |", "|---|---|", *rows])
    rows = []
    for name, each in vars(kind).items():
        if name.startswith("_") or not isinstance(each, (property, FunctionType)):
            continue
        text = (inspect.getdoc(each) or "").partition("\n\n")[0].replace("``", "`").replace("\n", " ")
        function = each.fget if isinstance(each, property) else each
        arguments = [] if isinstance(each, property) else list(inspect.signature(each).parameters)[1:]
        call = name if isinstance(each, property) else f"{name}({', '.join(arguments)})"
        rows.append(f"| `{call}` | {linked(function.__annotations__['return'], known)} | {text} |")
    if rows:
        yield "\n".join(["| What follows from them | | |", "|---|---|---|", *rows])


def linked(annotation: str, known: set[str]) -> str:
    """A type in which the names of records lead to them."""
    pieces = re.split(r"(\w+)", annotation.replace("|", "\\|"))
    text = "".join(f"\0{each}\0" if each in known else each for each in pieces)
    parts = [(each, number % 2 == 1) for number, each in enumerate(text.split("\0")) if each]
    return "".join(f"[`{each}`](#{each.lower()})" if is_record else f"`{each}`" for each, is_record in parts)


if __name__ == "__main__":
    Path(__file__).with_name("api.md").write_text(page(), encoding="utf-8")
