"""References for tasks whose tensors do not fit into memory: parts of results from parts of arguments.

Many modules treat one axis independently: row 17 of a softmax follows from row 17 of its input, a block of a matrix
product from some rows of one factor and the whole other.  Others (losses) are the mean or the sum of what they are on
parts.  Which axes these are is not read off the operators but tried out in float64 on a small version of the task with
sizes that are all different; only what holds there, on several parts, is used.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from cupilot.arrays import Array, dtype_of
from cupilot.errors import TaskError
from cupilot.records import Task
from cupilot.tasks.case import (
    Drafted,
    Drawn,
    draw_case,
    native_results,
    rounded_results,
    textbook_results,
    wide_results,
)
from cupilot.tasks.expectation import Expectation, expectation
from cupilot.tasks.magnitude import error_by_magnitude
from cupilot.tasks.structure import Structure

if TYPE_CHECKING:
    import torch

ATTEMPTS = 128
SLICED_ELEMENTS = 1 << 23
"""Elements of arguments and results together that are looked at in slices."""
QUARTERS = 4
PIECE = 64
"""The share of a part of a sum that its rounding errors are learnt from."""


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


# --- finding it out --------------------------------------------------------------------------


def find_slicing(small: Task, seed: int, structures: Sequence[Structure | None] | None = None) -> Slicing | None:
    """What holds for a small version of a task, or None."""
    drawn = draw_case(small, "normal", seed, structures)
    whole = wide_results(drawn, drawn.inputs)
    for candidate in islice(_candidates(drawn, whole), ATTEMPTS):
        if _holds(drawn, whole, candidate):
            return candidate
    return None


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


def _cuts(drawn: Drawn, size: int) -> Iterator[tuple[tuple[int | None, ...], tuple[tuple[str, int], ...]]]:
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
            if any(axis is not None for axis in cut_inputs):
                yield cut_inputs, cut_state


def _axes(shape: Sequence[int], size: int) -> list[int]:
    return [axis for axis, length in enumerate(shape) if length == size]


def _state(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _holds(drawn: Drawn, whole: Sequence[Array], slicing: Slicing) -> bool:
    size = _size(drawn, slicing)
    rng = np.random.default_rng([drawn.seed, size])
    try:
        if slicing.rule == "prefix":
            return all(_is_corner(drawn, whole, slicing, size * share // 4) for share in (2, 3))
        if slicing.rule != "slices":
            return _adds_up(drawn, whole, slicing, size, rng)
        for count in (1, min(3, size - 1)):
            indices = np.sort(rng.choice(size, count, replace=False))
            parts = _wide_part(drawn, slicing, indices)
            if not all(map(_same, parts, (np.take(o, indices, slicing.output_axis) for o in whole))):
                return False
        return True
    except (TaskError, RuntimeError):  # the module does not run on such parts
        return False


def _is_corner(drawn: Drawn, whole: Sequence[Array], slicing: Slicing, count: int) -> bool:
    parts = _wide_part(drawn, slicing, np.arange(count))
    small = all(p.ndim == w.ndim and 0 < p.size < w.size for p, w in zip(parts, whole, strict=True))
    return small and all(map(_same, parts, (w[_corner(p.shape)] for p, w in zip(parts, whole, strict=True))))


def _corner(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(0, length) for length in shape)


def _adds_up(drawn: Drawn, whole: Sequence[Array], slicing: Slicing, size: int, rng: np.random.Generator) -> bool:
    order = rng.permutation(size)
    first, second = np.sort(order[: size // 3 or 1]), np.sort(order[size // 3 or 1 :])
    parts = [(index.size, _wide_part(drawn, slicing, index)) for index in (first, second) if index.size]
    if any(part[n].shape != output.shape for _, part in parts for n, output in enumerate(whole)):
        return False
    totals = [_combine(slicing.rule, [(count, part[n]) for count, part in parts]) for n in range(len(whole))]
    return all(map(_same, totals, whole))


def _combine(rule: str, parts: Sequence[tuple[int, Array]]) -> Array:
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


# --- using it --------------------------------------------------------------------------------


def _size(drawn: Drawn, slicing: Slicing) -> int:
    index, axis = next((i, a) for i, a in enumerate(slicing.inputs) if a is not None)
    return int(drawn.inputs[index].shape[axis])


def part_of(drawn: Drawn, slicing: Slicing, indices: Array) -> Drawn:
    """The same module and inputs, cut down to some indices."""
    import copy

    import torch

    chosen = torch.from_numpy(np.asarray(indices, dtype=np.int64))
    inputs = tuple(
        value if axis is None else value.index_select(axis, chosen)
        for value, axis in zip(drawn.inputs, slicing.inputs, strict=True)
    )
    model = drawn.model
    if slicing.state:
        model = copy.deepcopy(model)
        tensors = dict(_state(model))
        for name, axis in slicing.state:
            tensors[name].data = tensors[name].data.index_select(axis, chosen)
    return replace(drawn, model=model, inputs=inputs, tiles={})


def _wide_part(drawn: Drawn, slicing: Slicing, indices: Array) -> tuple[Array, ...]:
    part = part_of(drawn, slicing, indices)
    return wide_results(part, part.inputs)


@dataclass(eq=False)
class SlicedCase(Drafted):
    """A case whose references are made for the slices that somebody asks for, and kept.

    Without a slicing nothing is known of its results; it is there to be run.
    """

    drawn: Drawn
    slicing: Slicing | None
    _known: dict[int, list[tuple[Array, ...]]] = field(default_factory=dict)
    _total: tuple[Expectation, ...] = ()
    _corner: tuple[tuple[Array, ...], ...] = ()
    _errors: tuple[Array, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_known(self) -> bool:
        return self.slicing is not None

    @property
    def needs_all(self) -> bool:
        """Whether nothing can be said of a result that is only partly there."""
        return self.slicing is None or self.slicing.rule in ("mean", "sum")

    def expectation(self, output: int, where: Array | None) -> Expectation:
        """What elements in some slices should be, out of those at ``where``; slices come from every quarter.

        One at a time: what one caller has learnt, the next need not, and references of large tasks take gigabytes.
        """
        with self._lock:
            return self._expectation(output, where)

    def _expectation(self, output: int, where: Array | None) -> Expectation:
        assert self.slicing is not None
        if self.needs_all:
            return self._totals(self.slicing)[output]
        if self.slicing.rule == "prefix":
            return self._in_corner(self.slicing, output, where)
        shape, axis = self.drawn.task.outputs[output].shape, self.slicing.output_axis
        size, stride = shape[axis], prod(shape[axis + 1 :])
        if where is None:
            chosen = self._choose(np.ones(size, bool))
            if prod(shape[:axis]) == 1:
                return self._joined(self.slicing, output, chosen, size)
            outer = np.arange(prod(shape[:axis]))[:, None, None] * (size * stride)
            where = (outer + chosen[None, :, None] * stride + np.arange(stride)).reshape(-1)
        else:
            index = where // stride % size
            chosen = self._choose(np.bincount(index, minlength=size) > 0)
            where = where[np.isin(index, chosen)]
        self._learn([int(i) for i in chosen if int(i) not in self._known])
        rank = np.zeros(size, np.int64)
        rank[chosen] = np.arange(chosen.size)
        row, column = rank[where // stride % size], where // (size * stride) * stride + where % stride
        kinds = (np.stack([self._known[int(i)][output][n] for i in chosen]) for n in range(3))
        expected, native, rounded = (values[row, column] for values in kinds)
        return expectation(expected, native, rounded, where, known=self._textbook(self.slicing, chosen)[output])

    def _joined(self, slicing: Slicing, output: int, chosen: Array, size: int) -> Expectation:
        """Whole slices, one after another as they lie in memory: without a place for every element."""
        self._learn([int(i) for i in chosen if int(i) not in self._known])
        kinds = (np.concatenate([self._known[int(i)][output][n].reshape(-1) for i in chosen]) for n in range(3))
        expected, native, rounded = kinds
        stride = expected.size // chosen.size
        where = None if chosen.size == size else (chosen[:, None] * stride + np.arange(stride)).reshape(-1)
        return expectation(expected, native, rounded, where, known=self._textbook(slicing, chosen)[output])

    def _choose(self, there: Array) -> Array:
        """Indices from every quarter of the axis, known ones first."""
        size = there.size
        count = max(QUARTERS, min(size, self._affordable()))
        rng = np.random.default_rng([self.drawn.seed, size])
        chosen: list[int] = []
        for quarter in range(QUARTERS):
            low, high = size * quarter // QUARTERS, size * (quarter + 1) // QUARTERS
            indices = [int(i) for i in rng.permutation(np.flatnonzero(there[low:high]) + low)]
            indices.sort(key=lambda i: i not in self._known)
            chosen += indices[: count // QUARTERS]
        return np.array(sorted(chosen), np.int64)

    def _affordable(self) -> int:
        """How many slices stay within the elements that are looked at."""
        assert self.slicing is not None
        size = _size(self.drawn, self.slicing)
        cut = [v for v, axis in zip(self.drawn.inputs, self.slicing.inputs, strict=True) if axis is not None]
        elements = sum(v.numel() for v in cut) + sum(output.elements for output in self.drawn.task.outputs)
        return int(SLICED_ELEMENTS // max(1, elements // size))

    def _learn(self, indices: list[int]) -> None:
        if not indices or self.slicing is None:
            return
        # where not even the fewest slices stay within the elements, PyTorch's own buffers are large as well
        step = max(1, min(len(indices), self._affordable()))
        for start in range(0, len(indices), step):
            self._learn_at_once(self.slicing, indices[start : start + step])

    def _learn_at_once(self, slicing: Slicing, indices: list[int]) -> None:
        part = part_of(self.drawn, slicing, np.array(indices))
        results = _results(part)
        for place, index in enumerate(indices):
            self._known[index] = [
                tuple(_flat(result, slicing.output_axis, place) for result in output) for output in results
            ]

    def _textbook(self, slicing: Slicing, chosen: Array) -> tuple[Array, ...]:
        """Errors of the textbook formula, by magnitude, on some of the slices; made once."""
        if not self._errors:
            few = chosen[:: max(1, chosen.size // QUARTERS)]
            part = part_of(self.drawn, slicing, few)
            exact = wide_results(part, part.inputs)
            found = textbook_results(part)
            self._errors = tuple(
                error_by_magnitude(values, [other[n] for other in found]) for n, values in enumerate(exact)
            )
        return self._errors

    def _in_corner(self, slicing: Slicing, output: int, where: Array | None) -> Expectation:
        if not self._corner:
            part = part_of(self.drawn, slicing, np.arange(min(_size(self.drawn, slicing), max(2, self._affordable()))))
            self._corner, textbook = _results(part), textbook_results(part)
            self._errors = tuple(
                error_by_magnitude(values[0], [other[n] for other in textbook]) for n, values in enumerate(self._corner)
            )
        expected, native, rounded = self._corner[output]
        shape = self.drawn.task.outputs[output].shape
        if where is None:
            where = np.ravel_multi_index(np.indices(expected.shape, sparse=True), shape).reshape(-1)
        places = np.unravel_index(where, shape)
        inside = np.logical_and.reduce([p < length for p, length in zip(places, expected.shape, strict=True)])
        at = tuple(place[inside] for place in places)
        return expectation(expected[at], native[at], rounded[at], where[inside], known=self._errors[output])

    def _totals(self, slicing: Slicing) -> tuple[Expectation, ...]:
        """Every part in turn; errors of the textbook formula are learnt from a piece and add up as independent ones."""
        if not self._total:
            size = _size(self.drawn, slicing)
            step = max(1, min(size, 4 * self._affordable()))
            parts = []
            for start in range(0, size, step):
                indices = np.arange(start, min(start + step, size))
                parts.append((indices.size, _wide_part(self.drawn, slicing, indices)))
            few = max(1, min(size, step // PIECE))
            piece = part_of(self.drawn, slicing, np.arange(few))
            exact, textbook = wide_results(piece, piece.inputs), textbook_results(piece)
            more = np.sqrt(size / few)
            found = []
            for n, output in enumerate(self.drawn.task.outputs):
                expected = _combine(slicing.rule, [(count, part[n]) for count, part in parts])
                factor = more if slicing.rule == "sum" else 1 / more
                others = [expected + factor * (other[n] - exact[n]) for other in textbook]
                found.append(expectation(expected, expected.astype(dtype_of(output.dtype)), expected, None, others))
            self._total = tuple(found)
        return self._total


def _results(part: Drawn) -> tuple[tuple[Array, ...], ...]:
    """Of each output: in float64, PyTorch's own, and of rounded inputs."""
    wide = wide_results(part, part.inputs)
    return tuple(zip(wide, native_results(part, part.inputs), rounded_results(part) or wide, strict=True))


def _flat(output: Array, axis: int, place: int) -> Any:
    return np.take(output, place, axis).reshape(-1)
