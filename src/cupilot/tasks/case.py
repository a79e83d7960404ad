"""Inputs for a kernel, with what the module makes of them in float64 and in its own precision.

Inputs are drawn in the task's own types and widened exactly for the reference, so the reference
has no rounding of its own to speak of.  Kinds other than ``own`` draw floating inputs and module
parameters anew, with both signs; integer inputs and buffers keep the values the file gives them.
Not covered: bfloat16 tensors (NumPy has no such type) and modules that draw random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cupilot.errors import TaskError
from cupilot.records import Scalar, Task, TensorSpec
from cupilot.tasks.execute import build_model, draw_inputs, isolated, run_model, run_source
from cupilot.tasks.magnitude import error_by_magnitude, root_mean_square

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]
Draw = Callable[[np.random.Generator, TensorSpec], Array]


def _draw_normal(rng: np.random.Generator, spec: TensorSpec) -> Array:
    return rng.standard_normal(spec.shape, dtype=np.float32)


def _draw_wide(rng: np.random.Generator, spec: TensorSpec) -> Array:
    """Magnitudes evenly spread over e^-8 .. e^8: normal numbers in fp16 too, and products stay finite."""
    values = rng.random(spec.shape, dtype=np.float32)
    values -= np.float32(0.5)
    signs = rng.integers(0, 2, spec.shape, dtype=np.int8)
    np.exp(values * np.float32(16), out=values)
    np.negative(values, out=values, where=signs.astype(bool))
    return values


KINDS: dict[str, Draw | None] = {"own": None, "normal": _draw_normal, "wide": _draw_wide}


@dataclass(frozen=True, eq=False)
class Case:
    """One set of arguments, and the results that a kernel's results are compared with.

    ``arguments`` are in the order of ``Task.arguments``; ``expected`` are float64 (integers and
    booleans as they are); ``native`` are PyTorch's results in the task's own types.
    """

    label: str
    kind: str
    arguments: tuple[Array | Scalar, ...]
    expected: tuple[Array, ...]
    native: tuple[Array, ...]

    @property
    def shapes(self) -> str:
        """Shapes of the tensor arguments, for messages."""
        shapes = [argument.shape for argument in self.arguments if isinstance(argument, np.ndarray)]
        return ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)

    @cached_property
    def magnitudes(self) -> tuple[float, ...]:
        """Per output, the root mean square of the expected values."""
        return tuple(map(root_mean_square, self.expected))

    @cached_property
    def native_errors(self) -> tuple[Array, ...]:
        """Per output, PyTorch's own error by the magnitude of the result (see `magnitude`)."""
        return tuple(map(error_by_magnitude, self.expected, self.native))


def make_case(task: Task, kind: str, seed: int) -> Case:
    """Arguments of a kind (see `KINDS`) and their results; the same seed makes the same case.

    A module that runs on fake tensors but not on real ones is a `TaskError`.
    """
    draw = KINDS[kind]
    rng = np.random.default_rng([seed, *kind.encode()])
    with isolated(seed):
        namespace = run_source(task.source, task.name)
        model = build_model(namespace, task.name)
        if draw is not None:
            _redraw_parameters(model, rng)
        inputs = _inputs(task, namespace, draw, rng)
        state = [tensor.detach() for tensor in model.parameters()]
        buffers = [tensor.detach().clone() for tensor in model.buffers()]  # a run may update them
        arguments = tuple(_array(value, task.name) for value in (*inputs, *state, *buffers))
        native = _native(model, inputs, seed, task.name)
        expected = _expected(model, inputs, buffers, seed, task.name)
    return Case(f"{task.name} {kind}", kind, arguments, expected, native)


def _redraw_parameters(model: torch.nn.Module, rng: np.random.Generator) -> None:
    """Normal values; weights are divided by the root of their fan-in so that deep models stay finite."""
    import torch

    for parameter in model.parameters():
        values = rng.standard_normal(tuple(parameter.shape), dtype=np.float32)
        if parameter.dim() > 1:
            values /= np.float32(np.sqrt(parameter[0].numel()))
        parameter.copy_(torch.from_numpy(values))


def _inputs(task: Task, namespace: dict[str, Any], draw: Draw | None, rng: np.random.Generator) -> tuple[Any, ...]:
    import torch

    declared = [argument for argument in task.arguments if argument.origin == "input"]
    redrawn = [
        draw is not None and argument.tensor is not None and "float" in argument.tensor.dtype for argument in declared
    ]
    # get_inputs may cost gigabytes, so it runs only when something of it is used
    own = draw_inputs(namespace, task.name) if not all(redrawn) else ()
    found: list[Any] = []
    for index, (argument, again) in enumerate(zip(declared, redrawn, strict=True)):
        if again and draw is not None and argument.tensor is not None:
            found.append(torch.from_numpy(draw(rng, argument.tensor)).to(getattr(torch, argument.tensor.dtype)))
        else:
            value = own[index]
            found.append(value.contiguous() if isinstance(value, torch.Tensor) else value)
    return tuple(found)


def _native(model: torch.nn.Module, inputs: tuple[Any, ...], seed: int, where: str) -> tuple[Array, ...]:
    """PyTorch's own result; on copies, because a module may write to its inputs."""
    import torch

    torch.manual_seed(seed)
    copies = tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in inputs)
    return tuple(_array(output, where) for output in run_model(model, copies, where))


def _expected(
    model: torch.nn.Module, inputs: tuple[Any, ...], buffers: list[torch.Tensor], seed: int, where: str
) -> tuple[Array, ...]:
    """The module in float64, including the tensors that it makes by itself; turns ``model`` to float64."""
    import torch

    torch.manual_seed(seed)
    model.double()
    for buffer, value in zip(model.buffers(), buffers, strict=True):
        buffer.copy_(value)
    wide = tuple(
        (value.to(torch.float64, copy=True) if value.is_floating_point() else value.clone())
        if isinstance(value, torch.Tensor)
        else value
        for value in inputs
    )
    torch.set_default_dtype(torch.float64)
    outputs = run_model(model, wide, where)
    return tuple(_array(output.double() if output.is_floating_point() else output, where) for output in outputs)


def _array(value: Any, where: str) -> Any:
    """A tensor as a dense NumPy array that shares its memory where it can; scalars stay."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype is torch.bfloat16:
        raise TaskError(f"{where}: tensors of type bfloat16 are not supported")
    return value.detach().contiguous().numpy()
