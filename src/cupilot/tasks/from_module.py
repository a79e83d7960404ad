"""A task out of a PyTorch class and example inputs, as the text of a file in KernelBench form.

The text is what a task consists of (it is stored, scaled down and run in other processes), so the class is taken over
as source, with the imports, constants, functions and classes of its module that it uses.  Sizes of the inputs become
constants at the top of the file, one for each different size, and numbers of the constructor that are equal to one of
them are taken to be the same size.
Not covered: classes whose source is not in a file, closures, and globals that are neither of the above.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from cupilot.errors import TaskError

if TYPE_CHECKING:
    import torch

SMALLEST_SIZE = 32
"""Smaller numbers are written as they are: kernel sizes, axes, heads."""
PLAIN = (bool, int, float, str, type(None))


def module_source(model: type[torch.nn.Module], inputs: Sequence[Any], init: Sequence[Any] = ()) -> str:
    """The text of a task file; what cannot be taken over is a `TaskError` in one sentence."""
    parts = _Parts(model)
    parts.take(model)
    sizes = _sizes(inputs)
    lines = [f'"""{model.__qualname__} of {model.__module__}, with inputs as given."""', "", *sorted(parts.imports), ""]
    lines += [f"{name} = {size}" for size, name in sizes.items()] + [""]
    lines += [f"{name} = {value!r}" for name, value in parts.constants.items()] + [""]
    lines += [text for source in parts.sources.values() for text in ("", source, "")]
    if model.__name__ != "Model":
        lines += ["", f"Model = {model.__name__}", ""]
    lines += ["", "def get_inputs():", f"    return [{', '.join(_input(value, sizes) for value in inputs)}]"]
    lines += ["", "", "def get_init_inputs():", f"    return [{', '.join(_number(value, sizes) for value in init)}]"]
    return "\n".join(lines) + "\n"


@dataclass
class _Parts:
    """What the class needs of its module; sources come in the order in which they must be defined."""

    model: type
    imports: set[str] = field(default_factory=lambda: {"import torch"})
    constants: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)

    def take(self, thing: type | FunctionType) -> None:
        """The source of a class or function, after that of everything it uses."""
        self.begun.add(thing.__name__)
        try:
            source = textwrap.dedent(inspect.getsource(thing))
        except (OSError, TypeError):
            raise TaskError(
                f"the source of {thing.__qualname__} is not to be had: write it into a file, or give a task file"
            ) from None
        around = vars(sys.modules[thing.__module__])
        for name in _used(source):
            if name in around and name not in self.begun and name != thing.__name__:
                self._need(name, around[name], thing.__module__)
        self.sources[thing.__name__] = source.rstrip()

    def _need(self, name: str, value: Any, module: str) -> None:
        if isinstance(value, ModuleType):
            self.imports.add(f"import {value.__name__} as {name}" if value.__name__ != name else f"import {name}")
        elif isinstance(value, (type, FunctionType)) and value.__module__ == module:
            self.take(value)
        elif isinstance(value, PLAIN) or (
            isinstance(value, (tuple, list)) and all(isinstance(v, PLAIN) for v in value)
        ):
            self.constants[name] = value
        elif getattr(value, "__module__", None) and getattr(value, "__qualname__", "") == getattr(
            value, "__name__", None
        ):
            given = value.__name__
            self.imports.add(f"from {value.__module__} import {given}" + (f" as {name}" if name != given else ""))
        else:
            kind = type(value).__name__
            raise TaskError(f"{self.model.__qualname__} uses {name}, a {kind}, which cannot be taken into a task file")


def _used(source: str) -> list[str]:
    """Names that a piece of source reads, in order, each once."""
    names = (node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name))
    return list(dict.fromkeys(names))


def _sizes(inputs: Sequence[Any]) -> dict[int, str]:
    import torch

    found = [int(size) for value in inputs if isinstance(value, torch.Tensor) for size in value.shape]
    return {size: f"SIZE_{size}" for size in dict.fromkeys(found) if size >= SMALLEST_SIZE}


def _number(value: Any, sizes: dict[int, str]) -> str:
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_number(item, sizes) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)"
    if not isinstance(value, PLAIN):
        raise TaskError(f"constructor arguments must be numbers, strings or lists of them, not {type(value).__name__}")
    return sizes[value] if type(value) is int and value in sizes else repr(value)


def _input(value: Any, sizes: dict[int, str]) -> str:
    """A fresh tensor like the given one: its shape, type, and for numbers other than floats its range."""
    import torch

    if isinstance(value, (bool, int, float, str)):
        return repr(value)
    if not isinstance(value, torch.Tensor):
        raise TaskError(f"inputs must be tensors or scalars, not {type(value).__name__}")
    shape = ", ".join(sizes.get(int(size), str(int(size))) for size in value.shape)
    shape = f"({shape},)" if value.dim() else "()"
    if value.dtype.is_floating_point:
        kind = "" if value.dtype == torch.float32 else f", dtype={value.dtype}"
        return f"torch.randn({shape}{kind})"
    if value.dtype == torch.bool:
        return f"torch.rand({shape}) < 0.5"
    low, high = (int(value.min()), int(value.max())) if value.numel() else (0, 0)
    return f"torch.randint({low}, {high + 1}, {shape}, dtype={value.dtype})"
