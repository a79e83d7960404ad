"""How parts of a result follow from parts of the arguments, found out on a small version of a task.

Many modules treat one axis independently: row 17 of a softmax follows from row 17 of its input, a block of a matrix
product from some rows of one factor and the whole other.  Others (losses) are the mean or the sum of what they are on
parts.  Which axes these are is not read off the operators but tried out in float64 on a small version of the task with
sizes that are all different; only what holds there, on several parts, is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import TYPE_CHECKING

import numpy as np

from cupilot.arrays import Array
from cupilot.errors import TaskError
from cupilot.records import Task
from cupilot.tasks.case import (
    Drawn,
    draw_case,
    wide_results,
)
from cupilot.tasks.structure import Structure

if TYPE_CHECKING:
    import torch

ATTEMPTS = 128


@dataclass(frozen=True)
class Slicing:
    """How a result follows from parts of its arguments.

    ``rule`` is ``slices`` (each index of ``output_axis`` by itself), ``mean`` or ``sum`` (over all parts), or
    ``prefix`` (the first indices of the inputs give a corner of the result).
    ``inputs`` has for each input the axis that is cut, or None; ``state`` the same for parameters and
    buffers by name.
    """

    rule: str
    output_axis: int
    inputs: tuple[int | None, ...]
    state: tuple[tuple[str, int], ...] = ()
    inner: Slicing | None = None
    """Another axis that slices can be cut along once more."""


# --- finding it out --------------------------------------------------------------------------


def find_slicing(small: Task, seed: int, structures: Sequence[Structure | None] | None = None) -> Slicing | None:
    """What holds for a small version of a task, or None."""
    drawn = draw_case(small, "normal", seed, structures)
    whole = wide_results(drawn, drawn.inputs)
    for candidate in islice(_candidates(drawn, whole), ATTEMPTS):
        if _holds(drawn, whole, candidate):
            return replace(candidate, inner=_find_inner(drawn, whole, candidate))
    return None


def _find_inner(drawn: Drawn, whole: Sequence[Array], outer: Slicing) -> Slicing | None:
    """A second axis of slices: what is cut along both is what both say."""
    if outer.rule != "slices":
        return None
    for inner in islice(_inner_candidates(drawn, whole, outer.output_axis + 1), ATTEMPTS):
        both = [*zip(inner.inputs, outer.inputs, strict=True)]
        both += [(axis, dict(outer.state).get(name)) for name, axis in inner.state]
        apart = all(one is None or one != other for one, other in both)
        if apart and _holds(drawn, whole, inner) and _cross(drawn, whole, outer, inner):
            return inner
    return None


def _inner_candidates(drawn: Drawn, whole: Sequence[Array], first: int) -> Iterator[Slicing]:
    """Later axes of the result; of inputs nothing need be cut, as where channels follow from parts of the weights."""
    for axis in range(first, min(output.ndim for output in whole)):
        sizes = {output.shape[axis] for output in whole}
        if len(sizes) == 1:
            for inputs, state in _cuts(drawn, sizes.pop(), needs_input=False):
                yield Slicing("slices", axis, inputs, state)


def _cross(drawn: Drawn, whole: Sequence[Array], outer: Slicing, inner: Slicing) -> bool:
    """Whether parts of parts are the result's."""
    rng = np.random.default_rng([drawn.seed, 2])
    first, second = (
        np.sort(rng.choice(size, min(3, size - 1), replace=False))
        for size in (size_of(drawn, outer), size_of(drawn, inner))
    )
    try:
        parts = wide_part(part_of(drawn, outer, first), inner, second)
    except (TaskError, RuntimeError):
        return False
    wanted = (np.take(np.take(o, first, outer.output_axis), second, inner.output_axis) for o in whole)
    return all(map(_same, parts, wanted))


def _candidates(drawn: Drawn, whole: Sequence[Array]) -> Iterator[Slicing]:
    """Independent axes of the result first; then parts whose results add up."""
    rank = min(output.ndim for output in whole)
    for axis in range(rank):
        sizes = {output.shape[axis] for output in whole}
        if len(sizes) == 1:
            for inputs, state in _cuts(drawn, sizes.pop()):
                yield Slicing("slices", axis, inputs, state)
    for size in dict.fromkeys(_tensor_sizes(drawn)):
        for inputs, state in _cuts(drawn, size):
            for rule in ("mean", "sum", "prefix"):
                yield Slicing(rule, -1, inputs, state)


def _tensor_sizes(drawn: Drawn) -> Iterator[int]:
    for argument in drawn.task.arguments:
        if argument.tensor is not None and argument.tensor.shape:
            yield argument.tensor.shape[0]


def _cuts(
    drawn: Drawn, size: int, *, needs_input: bool = True
) -> Iterator[tuple[tuple[int | None, ...], tuple[tuple[str, int], ...]]]:
    """Ways to cut axes of a size; those that cut most inputs and least of the state come first."""
    import torch

    if size < 2:
        return
    inputs: list[list[int | None]] = [
        [*_axes(value.shape, size), None] if isinstance(value, torch.Tensor) else [None] for value in drawn.inputs
    ]
    named = [(name, tensor) for name, tensor in _state(drawn.model) if size in tensor.shape]
    state: list[list[int | None]] = [[None, *_axes(tensor.shape, size)] for _, tensor in named]
    for chosen in product(*state):
        cut_state = tuple((name, axis) for (name, _), axis in zip(named, chosen, strict=True) if axis is not None)
        for cut_inputs in product(*inputs):
            if any(axis is not None for axis in cut_inputs) or (cut_state and not needs_input):
                yield cut_inputs, cut_state


def _axes(shape: Sequence[int], size: int) -> list[int]:
    return [axis for axis, length in enumerate(shape) if length == size]


def _state(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _holds(drawn: Drawn, whole: Sequence[Array], slicing: Slicing) -> bool:
    size = size_of(drawn, slicing)
    rng = np.random.default_rng([drawn.seed, size])
    try:
        if slicing.rule == "prefix":
            return all(_is_corner(drawn, whole, slicing, size * share // 4) for share in (2, 3))
        if slicing.rule != "slices":
            return _adds_up(drawn, whole, slicing, size, rng)
        for count in (1, min(3, size - 1)):
            indices = np.sort(rng.choice(size, count, replace=False))
            parts = wide_part(drawn, slicing, indices)
            if not all(map(_same, parts, (np.take(o, indices, slicing.output_axis) for o in whole))):
                return False
        return True
    except (TaskError, RuntimeError):  # the module does not run on such parts
        return False


def _is_corner(drawn: Drawn, whole: Sequence[Array], slicing: Slicing, count: int) -> bool:
    parts = wide_part(drawn, slicing, np.arange(count))
    small = all(p.ndim == w.ndim and 0 < p.size < w.size for p, w in zip(parts, whole, strict=True))
    return small and all(map(_same, parts, (w[_corner(p.shape)] for p, w in zip(parts, whole, strict=True))))


def _corner(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(0, length) for length in shape)


def _adds_up(drawn: Drawn, whole: Sequence[Array], slicing: Slicing, size: int, rng: np.random.Generator) -> bool:
    order = rng.permutation(size)
    first, second = np.sort(order[: size // 3 or 1]), np.sort(order[size // 3 or 1 :])
    parts = [(index.size, wide_part(drawn, slicing, index)) for index in (first, second) if index.size]
    if any(part[n].shape != output.shape for _, part in parts for n, output in enumerate(whole)):
        return False
    totals = [combined(slicing.rule, [(count, part[n]) for count, part in parts]) for n in range(len(whole))]
    return all(map(_same, totals, whole))


def combined(rule: str, parts: Sequence[tuple[int, Array]]) -> Array:
    if rule == "sum":
        return np.asarray(sum(part for _, part in parts))
    return np.asarray(sum(part * count for count, part in parts) / sum(count for count, _ in parts))


def _same(part: Array, wanted: Array) -> bool:
    if part.shape != wanted.shape or part.dtype != wanted.dtype:
        return False
    if part.dtype.kind != "f":
        return bool(np.array_equal(part, wanted))
    scale = float(np.sqrt(np.mean(np.square(wanted)))) if wanted.size else 0.0
    return bool(np.allclose(part, wanted, rtol=1e-9, atol=1e-10 * scale, equal_nan=True))


# --- cutting ----------------------------------------------------------------------------------


def size_of(drawn: Drawn, slicing: Slicing) -> int:
    cut = [(value, axis) for value, axis in zip(drawn.inputs, slicing.inputs, strict=True) if axis is not None]
    if not cut:
        cut = [(dict(_state(drawn.model))[name], axis) for name, axis in slicing.state]
    value, axis = cut[0]
    return int(value.shape[axis])


def part_of(drawn: Drawn, slicing: Slicing, indices: Array) -> Drawn:
    """The same module and inputs, cut down to some indices."""
    import copy

    import torch

    first, count = int(indices[0]), len(indices)
    chosen = torch.from_numpy(np.array(indices, dtype=np.int64))

    def cut(value: torch.Tensor, axis: int) -> torch.Tensor:
        together = int(indices[-1]) - first == count - 1
        return value.narrow(axis, first, count) if together else value.index_select(axis, chosen)

    inputs = tuple(
        value if axis is None else cut(value, axis) for value, axis in zip(drawn.inputs, slicing.inputs, strict=True)
    )
    model = drawn.model
    if slicing.state:
        model = copy.deepcopy(model)
        tensors = dict(_state(model))
        for name, axis in slicing.state:
            tensors[name].data = tensors[name].data.index_select(axis, chosen)
    return replace(drawn, model=model, inputs=inputs, tiles={})


def wide_part(drawn: Drawn, slicing: Slicing, indices: Array) -> tuple[Array, ...]:
    part = part_of(drawn, slicing, indices)
    return wide_results(part, part.inputs)
