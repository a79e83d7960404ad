"""Inputs for a kernel, with what the module makes of them in float64 and in its own precision.

Inputs are drawn in the task's own types and widened exactly for the reference, so the reference has no
rounding of its own to speak of.  Kinds other than ``own`` and ``permuted`` draw floating inputs and module
parameters anew; masks and integers are drawn anew within what the file's own values show.

A `Case` is whole, or it is known in *slices* (see `slices`): then its inputs may be larger than memory, and
references are made for those slices only that somebody asks for.
A module that draws random numbers is a `TaskError`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from cupilot.arrays import PAGE, Array, Tiled, dtype_of, is_floating, tiled
from cupilot.errors import TaskError
from cupilot.places import Runs
from cupilot.records import Argument, Scalar, Task, TensorSpec
from cupilot.tasks.bind import constructor_values, evaluate_expressions
from cupilot.tasks.draw import DRAWS, HALF_DRAWS, KINDS, SPECIAL
from cupilot.tasks.execute import build_model, draw_inputs, init_inputs, isolated, run_model, run_source
from cupilot.tasks.expectation import WOBBLE, Expectation, expectation
from cupilot.tasks.magnitude import ENOUGH
from cupilot.tasks.operators import operator
from cupilot.tasks.structure import Structure, impose, learn_structure
from cupilot.tasks.tensors import restrided, round_to, to_array, to_strided_array, to_tensor

if TYPE_CHECKING:
    import torch

    from cupilot.tasks.choices import Choices
    from cupilot.tasks.indices import Choice

TILE_FROM_BYTES = 1 << 30
TILE_PAGES = 16411
"""67 MB, of which larger tensors show pieces (`arrays.tiled`)."""

MOST_EVALUATIONS = 8
"""Of the textbook formula, where there are few results."""

RANDOM = frozenset({
    "dropout", "native_dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "bernoulli", "rrelu",
    "rrelu_with_noise", "rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "randperm", "normal",
    "uniform", "exponential", "multinomial", "fractional_max_pool2d",
})  # fmt: skip
"""Operators that may draw random numbers."""

NOT_ON_CPU = ("not implemented for 'Half'", "not implemented for 'BFloat16'")

Value = Array | Scalar | None | tuple[Any, ...]
AS_MODULE = "<module>"
"""In place of expressions: everything that a class in the place of the task's ``Model`` needs."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """A module with fresh parameters, and fresh inputs for it, in the task's own types."""

    task: Task
    kind: str
    seed: int
    model: torch.nn.Module
    inputs: tuple[Any, ...]
    init: Mapping[str, Any] = field(default_factory=dict)
    init_inputs: tuple[Any, ...] = ()
    tiles: dict[int, Tiled] = field(default_factory=dict)
    _arrays: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Array] = field(default_factory=dict)
    _bound: dict[str, tuple[Value, ...]] = field(default_factory=dict)

    @property
    def shapes(self) -> str:
        """Shapes of the inputs and parameters, for messages."""
        tensors = [argument.tensor for argument in self.task.arguments if argument.tensor is not None]
        return ", ".join("x".join(map(str, tensor.shape)) or "scalar" for tensor in tensors)

    @property
    def arguments(self) -> tuple[Value, ...]:
        """Everything in the order of ``Task.arguments``: inputs, parameters, buffers."""
        return self.bound("")

    def bound(self, expressions: str) -> tuple[Value, ...]:
        """What expressions over ``inputs`` and ``model`` come to; the same arrays each time."""
        if expressions not in self._bound:
            everything = (*self.inputs, *self.model.parameters(), *self.model.buffers())
            known = {"": lambda: everything, AS_MODULE: self._as_module}
            values = known.get(expressions, lambda: self._evaluated(expressions))()
            self._bound[expressions] = tuple(self._value(value) for value in values)
        return self._bound[expressions]

    def _as_module(self) -> tuple[Any, ...]:
        """Constructor's arguments as Python text, inputs, the module's tensors with their names, the task's text."""
        named = [*self.model.named_parameters(), *self.model.named_buffers()]
        names, tensors = [name for name, _ in named], [tensor for _, tensor in named]
        return repr(self.init_inputs), self.inputs, names, tensors, self.task.source

    def _evaluated(self, expressions: str) -> tuple[Any, ...]:
        return evaluate_expressions(expressions, self.inputs, self.model, self.init)

    def _value(self, value: Any) -> Value:
        """A tensor as an array that shares its memory where it can; anything else stays."""
        import torch

        if isinstance(value, (list, tuple)):
            return tuple(self._value(item) for item in value)
        if not isinstance(value, torch.Tensor):
            return value  # type: ignore[no-any-return]
        key = (value.data_ptr(), tuple(value.shape), tuple(value.stride()))
        known = self.tiles.get(key[0])
        if known is not None and known.shape == key[1]:
            return known
        # an array is known by its identity further on, so each tensor has one
        return self._arrays.setdefault(key, to_strided_array(value))


class Drafted:
    """What every case has of the module and the inputs that it was drawn with."""

    drawn: Drawn

    @property
    def kind(self) -> str:
        return self.drawn.kind

    @property
    def shapes(self) -> str:
        return self.drawn.shapes

    @property
    def arguments(self) -> tuple[Value, ...]:
        return self.drawn.arguments


@dataclass(frozen=True, eq=False)
class Case(Drafted):
    """One set of arguments, and the results that a kernel's results are compared with.

    ``expected`` and ``native`` hold whole outputs: in float64 and in the task's own types.  ``rounded`` are the
    outputs in float64 for inputs that are rounded to the precision that is asked for; their difference is allowed too.
    ``textbook`` are some evaluations of the textbook formula in float32 (see `textbook`).
    """

    drawn: Drawn
    expected: tuple[Array, ...]
    native: tuple[Array, ...]
    rounded: tuple[Array, ...] = ()
    textbook: tuple[tuple[Array, ...], ...] = ()
    choices: tuple[Choice | None, ...] = ()

    @cached_property
    def _whole(self) -> tuple[Expectation, ...]:
        results = zip(self.expected, self.native, self.rounded or self.expected, strict=True)
        found = (
            expectation(*result, textbook=[other[n] for other in self.textbook]) for n, result in enumerate(results)
        )
        choices = self.choices or (None,) * len(self.expected)
        return tuple(replace(each, choice=choice or ()) for each, choice in zip(found, choices, strict=True))

    def expectation(self, output: int, where: Runs | None) -> Expectation:
        """What the elements at ``where`` (all of them if None) should be."""
        whole = self._whole[output]
        if where is None:
            return whole
        expected, native = where.of_values(whole.expected), where.of_values(whole.native)
        own = where.of_values(whole.own) if whole.own is not None else None
        return replace(whole, positions=where, expected=expected, native=native, own=own)


def make_case(task: Task, kind: str, seed: int, structures: Sequence[Structure | None] | None = None) -> Case:
    """Arguments of a kind (see `draw`) and their results; the same seed makes the same case.

    ``structures`` say what inputs look like; without them they are learned from the file's own.
    A module that runs on fake tensors but not on real ones is a `TaskError`.
    """
    positive = False
    while True:
        drawn = draw_case(task, kind, seed, structures, positive=positive)
        noted, noted_single = _choices(task), _choices(task)
        expected = wide_results(drawn, drawn.inputs, noted)
        _see_that_it_is_determined(drawn, expected)
        # logarithms, roots and the like: the operator is meant for positive numbers
        strange = kind not in ("own", "permuted", *SPECIAL) and not _mostly_finite(expected)
        if positive or not strange:
            break
        positive = True
    native = native_results(drawn, drawn.inputs, noted_single)
    choices = noted.found(expected, noted_single) if noted is not None else ()
    return Case(drawn, expected, native, rounded_results(drawn), textbook_results(drawn), choices)


def _see_that_it_is_determined(drawn: Drawn, expected: Sequence[Array]) -> None:
    """A module that draws random numbers (dropout in training) has no results to compare with."""
    names = {operator(op.target).name for op in drawn.task.graph}
    if names and not names & RANDOM:
        return
    again = wide_results(replace(drawn, seed=drawn.seed + 1), drawn.inputs)
    if not all(map(np.array_equal, expected, again, [other.dtype.kind == "f" for other in again])):
        raise TaskError(
            f"{drawn.task.name}: the module draws random numbers, so the same inputs give other results each time and"
            f" no kernel can be compared with it (dropout: call eval() in the constructor, or leave it out)"
        )


def _choices(task: Task) -> Choices | None:
    """Something that notes what indices are chosen from, for a module that returns some."""
    if not any(output.dtype == "int64" for output in task.outputs):
        return None
    from cupilot.tasks.choices import Choices

    return Choices()


def _mostly_finite(outputs: Sequence[Array]) -> bool:
    return all(np.isfinite(output).mean() > 0.9 for output in outputs if output.dtype.kind == "f" and output.size)


def learn_structures(task: Task, seed: int = 0) -> tuple[Structure | None, ...]:
    """What each of the file's own inputs looks like; None for scalars."""
    import torch

    with isolated(seed):
        own = draw_inputs(run_source(task.source, task.name), task.name)
        return tuple(learn_structure(to_array(v)) if isinstance(v, torch.Tensor) else None for v in own)


def draw_case(
    task: Task, kind: str, seed: int, structures: Sequence[Structure | None] | None = None, *, positive: bool = False
) -> Drawn:
    """Fresh parameters and inputs, without any results."""
    assert kind in KINDS, kind
    rng = np.random.default_rng([seed, *kind.encode()])
    with isolated(seed):
        namespace = run_source(task.source, task.name)
        model = build_model(namespace, task.name)
        if kind != "own":
            _redraw_state(model, rng)
        drawing = _InputDrawing(task, namespace, kind, rng, structures, positive)
        inputs = tuple(drawing.input(index, argument) for index, argument in enumerate(_inputs(task)))
        init = constructor_values(namespace, task.name)
        arguments = init_inputs(namespace, task.name)
    return Drawn(task, kind, seed, model, inputs, init, arguments, drawing.tiles)


def _inputs(task: Task) -> list[Argument]:
    return [argument for argument in task.arguments if argument.origin == "input"]


def _redraw_state(model: torch.nn.Module, rng: np.random.Generator) -> None:
    """Normal values; weights are divided by the root of their fan-in so that deep models stay finite."""
    import torch

    for parameter in model.parameters():
        values = rng.standard_normal(tuple(parameter.shape), dtype=np.float32)
        if parameter.dim() > 1:
            values /= np.float32(np.sqrt(parameter[0].numel()))
        parameter.copy_(torch.from_numpy(values))
    for name, buffer in model.named_buffers():
        # statistics that start as zero and one hide what is done with them
        if name.endswith("running_mean"):
            buffer.copy_(torch.from_numpy(rng.standard_normal(tuple(buffer.shape), dtype=np.float32)))
        elif name.endswith("running_var"):
            buffer.copy_(torch.from_numpy(rng.uniform(0.5, 2.0, tuple(buffer.shape)).astype(np.float32)))


class _InputDrawing:
    """Draws the inputs of one case."""

    def __init__(
        self, task: Task, namespace: dict[str, Any], kind: str, rng: np.random.Generator,
        structures: Sequence[Structure | None] | None, positive: bool,
    ) -> None:  # fmt: skip
        self._task, self._namespace, self._kind, self._rng = task, namespace, kind, rng
        self._structures, self._positive = structures, positive
        self.tiles: dict[int, Tiled] = {}

    @cached_property
    def _own(self) -> tuple[Any, ...]:
        # get_inputs may cost gigabytes, so it runs only when something of it is used
        return draw_inputs(self._namespace, self._task.name)

    def _structure(self, index: int) -> Structure:
        if self._structures is not None:
            return self._structures[index] or Structure()
        return learn_structure(to_array(self._own[index]))

    def input(self, index: int, argument: Argument) -> Any:
        """One input, as `get_inputs` would give it."""

        if argument.tensor is None:
            return argument.value
        if self._kind == "own":
            value = self._own[index]
            return value
        if self._kind == "permuted":
            value, structure = to_array(self._own[index]), self._structure(index)
            mixed = self._rng.permutation(value, axis=0) if value.ndim else value
            keeps = structure.zero_outside or structure.symmetric
            mixed = impose(structure, mixed, self._rng) if keeps else mixed
            return restrided(to_tensor(mixed), argument.tensor.strides)
        return self._fresh(argument.tensor, self._structure(index))

    def _fresh(self, spec: TensorSpec, structure: Structure) -> torch.Tensor:
        dtype = dtype_of(spec.dtype)
        draw = self._values if is_floating(dtype) else self._discrete
        if spec.strides or spec.bytes < TILE_FROM_BYTES or not structure.is_local:
            return restrided(to_tensor(draw(spec.shape, structure, dtype)), spec.strides)
        tile = draw((TILE_PAGES * PAGE // dtype.itemsize,), structure, dtype)
        large = tiled(tile, spec.shape, int(self._rng.integers(2**63)))
        self.tiles[large.ctypes.data] = large
        return to_tensor(large)

    def _values(self, shape: tuple[int, ...], structure: Structure, dtype: np.dtype[Any]) -> Array:
        narrow = self._task.precision == "fp16" or dtype == np.float16
        values = (HALF_DRAWS if narrow else DRAWS)[self._kind](self._rng, shape)
        if self._positive:
            values = np.abs(values)
            np.maximum(values, np.float32(1e-3), out=values)
        return impose(structure, values, self._rng).astype(dtype, copy=False)

    def _discrete(self, shape: tuple[int, ...], structure: Structure, dtype: np.dtype[Any]) -> Array:
        if dtype == np.bool_:
            return self._rng.random(shape, dtype=np.float32) < structure.density
        return self._rng.integers(structure.low, structure.high, shape, dtype, endpoint=True)


# --- results ---------------------------------------------------------------------------------


def native_results(
    drawn: Drawn, inputs: Sequence[Any], mode: AbstractContextManager[Any] | None = None
) -> tuple[Array, ...]:
    """PyTorch's own result, as on a GPU; on copies, because a module may write to its inputs and buffers."""
    import torch

    from cupilot.tasks.float32_scan import Float32Scans

    copies = tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in inputs)
    with isolated(drawn.seed), Float32Scans(), mode or nullcontext():  # type: ignore[no-untyped-call]
        try:
            outputs = run_model(_copy(drawn.model), copies, drawn.task.name)
        except TaskError as error:
            if not any(text in str(error) for text in NOT_ON_CPU):
                raise
            outputs = _rounded_afterwards(drawn, inputs)
    return tuple(to_array(output) for output in outputs)


def _rounded_afterwards(drawn: Drawn, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """In float32 and rounded at the end, as a GPU does what PyTorch does not do in 16 bits on a CPU."""
    import torch

    wide = tuple(v.float() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in inputs)
    outputs = run_model(_copy(drawn.model).float(), wide, drawn.task.name)
    types = [getattr(torch, output.dtype) for output in drawn.task.outputs]
    return tuple(output.to(dtype) for output, dtype in zip(outputs, types, strict=True))


def textbook_results(drawn: Drawn) -> tuple[tuple[Array, ...], ...]:
    """The module in float64 with the errors of float32 (see `textbook`), more often where results are few."""
    from cupilot.tasks.textbook import Float32Roundings

    floating = [output.elements for output in drawn.task.outputs if is_floating(dtype_of(output.dtype))]
    if not floating:
        return ()
    count = min(MOST_EVALUATIONS, -(-ENOUGH // max(1, min(floating))))
    return tuple(wide_results(drawn, drawn.inputs, Float32Roundings((drawn.seed + n) % 2**62)) for n in range(count))


def wide_results(
    drawn: Drawn, inputs: Sequence[Any], mode: AbstractContextManager[Any] | None = None
) -> tuple[Array, ...]:
    """The module in float64, including the tensors that it makes by itself."""
    import torch

    from cupilot.tasks.widened import Widened

    copies = tuple(
        (value.to(torch.float64, copy=True) if value.is_floating_point() else value.clone())
        if isinstance(value, torch.Tensor)
        else value
        for value in inputs
    )
    with isolated(drawn.seed):
        torch.set_default_dtype(torch.float64)
        model = _copy(drawn.model).double()
        with Widened(), mode or nullcontext():  # type: ignore[no-untyped-call]
            outputs = run_model(model, copies, drawn.task.name)
    return tuple(to_array(output.double() if output.is_floating_point() else output) for output in outputs)


def _copy(model: torch.nn.Module) -> torch.nn.Module:
    return copy.deepcopy(model)


def rounded_results(drawn: Drawn) -> tuple[Array, ...]:
    """The module in float64 on inputs and parameters in the precision that is asked for; nothing where that is theirs.

    Where everything cancels PyTorch may happen to be exact, and nobody else has to be: then inputs are off by up to
    one rounding of float32.
    """
    import torch

    precision = drawn.task.precision
    if precision == "fp32" and drawn.kind != "constant":
        return ()
    rng = np.random.default_rng([drawn.seed, 1])

    def rounded(value: torch.Tensor) -> torch.Tensor:
        if precision == "fp32":
            factor = rng.uniform(1 - WOBBLE, 1 + WOBBLE, prod(value.shape)).reshape(tuple(value.shape))
            return value.double() * torch.from_numpy(factor)
        return round_to(value, precision)

    model = _copy(drawn.model)
    if precision != "fp32":
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.data.copy_(rounded(tensor.detach()))
    inputs = tuple(
        rounded(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for value in drawn.inputs
    )
    return wide_results(replace(drawn, model=model), inputs)
