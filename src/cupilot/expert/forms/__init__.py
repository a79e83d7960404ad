"""Families of computations, one module each; they are found by looking through this folder.

A module has

- ``FACTS``: the names of the facts it gives and what they mean;
- ``read(graph)``: the task's `Form`; or, when the task is nearly one of its own, what is in the way, in a few words
  that go on after "aten.softmax.int: "; or the empty string when the task is about something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

COMMON = {
    "precision": "what products are computed in: fp32, tf32, fp16 or bf16; that of 16-bit factors, else the task's",
    "per_word": "elements of the narrowest tensor in 4 bytes: 2 where 16-bit tensors are read or written, else 1",
}
"""Facts of every form."""


@cache
def forms() -> Mapping[str, ModuleType]:
    """All forms by name."""
    names = sorted(module.name for module in iter_modules(__path__) if not module.name.startswith("_"))
    return {name: import_module(f"{__name__}.{name}") for name in names}
