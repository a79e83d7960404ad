"""From the text of a task to a `Task` record, without allocating the file's (large) tensors.

For the process that tasks run in; `process` has what others call.
Covered: dense CPU tensors and Python scalars as inputs, a tensor or a flat tuple of tensors as
result.  A module whose Python looks at values (``.item()``, ``if x.sum() > 0``) runs on its real inputs instead, and
has the empty graph.  Not covered: models whose output shapes depend on values, complex and sparse tensors.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cupilot.errors import TaskError
from cupilot.records import ITEM_BYTES, PRECISIONS, Argument, Op, Task, TensorSpec
from cupilot.tasks.execute import build_model, draw_inputs, run_model, run_source
from cupilot.tasks.fake_tensors import on_fake_tensors

if TYPE_CHECKING:
    import torch

Parts = tuple["torch.nn.Module", tuple[Any, ...], tuple[Argument, ...], tuple[TensorSpec, ...]]


def task_from_source(source: str, name: str, precision: str, where: str) -> Task:
    """The task in a file's text; ``where`` names it in error messages.

    Everything runs on fake tensors, which have shapes and types but no memory, if that is possible.
    """
    from cupilot.tasks.graph import export_graph

    if precision not in PRECISIONS:
        raise TaskError(f"precision {precision!r} is not one of {', '.join(PRECISIONS)}")

    def found(is_fake: bool) -> tuple[Parts, tuple[Op, ...]]:
        parts = _described(source, where)
        return parts, export_graph(*parts[:3]) if is_fake else ()  # a module that looks at values has no graph

    (_, _, arguments, outputs), graph = on_fake_tensors(found)
    return Task(name, source, arguments, outputs, graph, precision)


def _described(source: str, where: str) -> Parts:
    """The module, its inputs, and what goes in and comes out."""
    namespace = run_source(source, where)
    model = build_model(namespace, where)
    inputs = draw_inputs(namespace, where)
    arguments = _arguments(model, inputs, where)
    return model, inputs, arguments, tuple(spec_of(output, where) for output in run_model(model, inputs, where))


def tensor_elements(source: str, where: str) -> int:
    """Elements of all arguments and outputs together; cheaper than the whole task."""
    _, _, arguments, outputs = on_fake_tensors(lambda is_fake: _described(source, where))
    given = [argument.tensor for argument in arguments if argument.tensor is not None]
    return sum(spec.elements for spec in (*given, *outputs))


def spec_of(tensor: torch.Tensor, where: str) -> TensorSpec:
    """Shape and element type of a tensor as a record."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in ITEM_BYTES:
        raise TaskError(f"{where}: tensors of type {dtype} are not supported")
    return TensorSpec(tuple(int(size) for size in tensor.shape), dtype)


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """None of a tensor that is dense and row-major, or has no elements."""
    return () if tensor.is_contiguous() or not tensor.numel() else tuple(int(stride) for stride in tensor.stride())


def _arguments(model: torch.nn.Module, inputs: tuple[Any, ...], where: str) -> tuple[Argument, ...]:
    """Inputs by the names of ``forward``'s parameters, then the module's parameters and buffers."""
    import torch

    found: list[Argument] = []
    for name, value in zip(forward_names(model, len(inputs)), inputs, strict=True):
        if isinstance(value, torch.Tensor):
            found.append(Argument(name, "input", tensor=replace(spec_of(value, where), strides=_strides(value))))
        else:
            found.append(Argument(name, "input", value=value))
    taken = {argument.name for argument in found}
    for origin, members in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for path, tensor in members:
            name = path.replace(".", "_")
            while name in taken:
                name += "_"
            taken.add(name)
            found.append(Argument(name, origin, tensor=spec_of(tensor, where)))
    return tuple(found)


def forward_names(model: torch.nn.Module, count: int) -> list[str]:
    """Names of ``forward``'s parameters for so many inputs; made up where there are none."""
    named = [
        parameter.name
        for parameter in inspect.signature(model.forward).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ][:count]
    return named + [f"input{index}" for index in range(len(named), count)]
