"""References for tasks whose tensors do not fit into memory: those parts of results that somebody asks for.

How parts of results follow from parts of arguments is found out on a small version (`slicing`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from math import prod

import numpy as np

from cupilot.arrays import Array, dtype_of
from cupilot.places import Runs, Slices, index_along
from cupilot.tasks.case import Drafted, Drawn, native_results, rounded_results, textbook_results, wide_results
from cupilot.tasks.expectation import Expectation, expectation
from cupilot.tasks.magnitude import error_by_magnitude
from cupilot.tasks.slicing import Slicing, combined, part_of, size_of, wide_part

SLICED_ELEMENTS = 1 << 23
"""Elements of arguments and results together that are looked at in slices."""
AT_ONCE = 1 << 21
"""As many as are computed at once: PyTorch's own buffers then stay in the processor's caches."""
KEPT_ELEMENTS = 1 << 26
"""As many are kept for other kernels of a search, which may ask for the same slices."""
TEXTBOOK_ELEMENTS = 1 << 20
"""Elements that the textbook formula's errors are learnt from, where slices can be cut once more."""
SPARSE = 2
"""Slices are cut once more where less than a so many-th of their elements is wanted."""
QUARTERS = 4
PIECE = 16
"""The share of those that the rounding errors of a sum are learnt from."""


@dataclass(eq=False)
class SlicedCase(Drafted):
    """A case whose references are made for the slices that somebody asks for, and kept.

    Without a slicing nothing is known of its results; it is there to be run.
    """

    drawn: Drawn
    slicing: Slicing | None
    _known: dict[int, list[tuple[Array, ...]]] = field(default_factory=dict)
    _spent: int = 0
    """Elements that were computed for parts of slices."""
    _known_cells: dict[tuple[int, bytes], list[tuple[Array, ...]]] = field(default_factory=dict)
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

    @property
    def looked_at(self) -> Slices | None:
        """The slices that are compared; None where that is not how the result is known."""
        if self.slicing is None or self.slicing.rule != "slices":
            return None
        return Slices(self.slicing.output_axis, self._affordable(), self.drawn.seed)

    def prepare(self) -> None:
        """Make what does not depend on which elements are asked for; sums over everything may never be."""
        with self._lock:
            if self.looked_at is not None:
                self._textbook(self.slicing)

    def expectation(self, output: int, where: Runs | None) -> Expectation:
        """What elements in some slices should be, out of those at ``where``; slices come from every quarter.

        One at a time: what one caller has learnt, the next need not, and references of large tasks take gigabytes.
        """
        with self._lock:
            return self._expectation(output, where)

    def _expectation(self, output: int, where: Runs | None) -> Expectation:
        assert self.slicing is not None
        if self.needs_all:
            return self._totals(self.slicing)[output]
        if self.slicing.rule == "prefix":
            return self._in_corner(self.slicing, output, where)
        shape = self.drawn.task.outputs[output].shape
        slices = self.looked_at
        assert slices is not None
        chosen, where = slices.chosen(where, shape), slices.of(where, shape)
        cells = self._cells(self.slicing, output, chosen, where)
        self._learn(self.slicing, cells)
        expected, native, *rounded = self._joined(self.slicing, output, cells, where)
        known = self._textbook(self.slicing)[output]
        return expectation(expected, native, rounded[0] if rounded else expected, where, known=known)

    def _cells(self, slicing: Slicing, output: int, chosen: Array, where: Runs | None) -> dict[int, Array | None]:
        """Of which slices what is wanted: some indices of the inner axis, or all of it."""
        inner, cells = slicing.inner, dict[int, Array | None].fromkeys(map(int, chosen))
        shape, axis = self.drawn.task.outputs[output].shape, slicing.output_axis
        whole = chosen.size * (prod(shape) // shape[axis])
        # who asks again and again, as a search does, is better off with whole slices, which are kept
        if inner is None or where is None or SPARSE * where.size > whole or self._spent > whole:
            return cells
        positions = where.positions
        rank = np.searchsorted(chosen, index_along(positions, shape, axis))
        there = np.zeros((chosen.size, shape[inner.output_axis]), bool)
        there[rank, index_along(positions, shape, inner.output_axis)] = True
        for row, index in enumerate(cells):
            if index not in self._known:
                cells[index] = np.flatnonzero(there[row])
        return cells

    def _joined(
        self, slicing: Slicing, output: int, cells: dict[int, Array | None], where: Runs | None
    ) -> tuple[Array, ...]:  # fmt: skip
        """In float64, PyTorch's own, and of rounded inputs where those are others: the elements at ``where``."""
        shape, axis = self.drawn.task.outputs[output].shape, slicing.output_axis
        size, stride = shape[axis], prod(shape[axis + 1 :])
        if prod(shape[:axis]) == 1:  # each slice is a stretch of memory
            parts = []
            for index, inner in cells.items():
                of_slice = None
                if where is not None:
                    table = where.cut(index * stride, (index + 1) * stride)
                    table[:, 0] -= index * stride
                    of_slice = Runs(table)
                    of_slice = None if of_slice.size == stride else of_slice
                parts.append(self._of_slice(slicing, output, index, inner, of_slice))
            return tuple(np.concatenate(kind) for kind in zip(*parts, strict=True))
        places = np.arange(prod(shape)) if where is None else where.positions
        along = index_along(places, shape, axis)
        within = places // (size * stride) * stride + places % stride
        order = np.argsort(along, kind="stable")
        bounds = np.searchsorted(along[order], [*cells, size])
        found: list[Array] = []
        for (number, inner), first, last in zip(cells.items(), bounds, bounds[1:], strict=False):
            here = order[first:last]
            values = self._of_slice(slicing, output, number, inner, Runs.of(within[here]))
            found = found or [np.empty(places.size, kind.dtype) for kind in values]
            for whole, kind in zip(found, values, strict=True):
                whole[here] = kind
        return tuple(found)

    def _of_slice(
        self, slicing: Slicing, output: int, index: int, inner: Array | None, where: Runs | None
    ) -> tuple[Array, ...]:
        """Elements of one slice, by their positions in it."""
        if inner is None:
            kinds = self._known[index][output]
            return kinds if where is None else tuple(map(where.of_values, kinds))
        assert slicing.inner is not None
        assert where is not None
        kinds = self._known_cells[index, inner.tobytes()][output]
        shape, axis = list(self.drawn.task.outputs[output].shape), slicing.inner.output_axis
        del shape[slicing.output_axis]
        axis -= axis > slicing.output_axis
        size, stride = shape[axis], prod(shape[axis + 1 :])
        rank = np.zeros(size, np.int64)
        rank[inner] = np.arange(inner.size)
        places = where.positions
        row, column = np.divmod(places, stride)
        before, row = np.divmod(row, size)
        places = (before * inner.size + rank[row]) * stride + column
        return tuple(kind[places] for kind in kinds)

    def _affordable(self) -> int:
        """How many slices stay within the elements that are looked at."""
        assert self.slicing is not None
        return int(SLICED_ELEMENTS // self._elements(self.slicing))

    def _elements(self, slicing: Slicing) -> int:
        """Of a slice, in arguments that are cut and results."""
        task = self.drawn.task
        given = [argument.tensor for argument in task.arguments if argument.origin == "input"]
        cut = [(v, axis) for v, axis in zip(given, slicing.inputs, strict=True) if v is not None and axis is not None]
        elements = sum(v.elements for v, _ in cut) + sum(output.elements for output in task.outputs)
        value, axis = cut[0]
        return max(1, elements // value.shape[axis])

    def _learn(self, slicing: Slicing, cells: dict[int, Array | None]) -> None:
        """The results of what is not known yet, in parts that stay small."""
        if (len(self._known) + len(cells)) * self._elements(slicing) > KEPT_ELEMENTS:
            self._known = {index: known for index, known in self._known.items() if index in cells}
        whole = [index for index, inner in cells.items() if inner is None and index not in self._known]
        step = max(1, AT_ONCE // self._elements(slicing))
        for start in range(0, len(whole), step):
            indices = whole[start : start + step]
            results = _results(part_of(self.drawn, slicing, np.array(indices)))
            for place, index in enumerate(indices):
                self._known[index] = [_flat(result, slicing.output_axis, place) for result in results]
        # slices of which the same is wanted go together, as those that a tile's rows are
        alike: dict[bytes, list[int]] = {}
        for index, inner in cells.items():
            if inner is not None and (index, inner.tobytes()) not in self._known_cells:
                alike.setdefault(inner.tobytes(), []).append(index)
        used = {(index, inner.tobytes()) for index, inner in cells.items() if inner is not None}
        self._known_cells = {key: known for key, known in self._known_cells.items() if key in used}
        for key, indices in alike.items():
            self._learn_cells(slicing, indices, np.frombuffer(key, np.int64))

    def _learn_cells(self, slicing: Slicing, indices: list[int], inner: Array) -> None:
        assert slicing.inner is not None
        share = max(1, self._elements(slicing) * inner.size // self._inner_size(slicing))
        self._spent += share * len(indices)
        step, few = max(1, AT_ONCE // share), inner.size
        if step == 1:  # a slice by itself is too much at once
            few = max(1, inner.size * AT_ONCE // share)
        for start in range(0, len(indices), step):
            some = indices[start : start + step]
            part = part_of(self.drawn, slicing, np.array(some))
            pieces = [_results(part_of(part, slicing.inner, inner[at : at + few])) for at in range(0, inner.size, few)]
            results = [
                tuple(np.concatenate(kind, slicing.inner.output_axis) for kind in zip(*output, strict=True))
                for output in zip(*pieces, strict=True)
            ]
            for place, index in enumerate(some):
                known = [_flat(result, slicing.output_axis, place) for result in results]
                self._known_cells[index, inner.tobytes()] = known

    def _inner_size(self, slicing: Slicing) -> int:
        assert slicing.inner is not None
        return int(self.drawn.task.outputs[0].shape[slicing.inner.output_axis])

    def _textbook(self, slicing: Slicing | None) -> tuple[Array, ...]:
        """Errors of the textbook formula, by magnitude, on some of the slices, or of their inner ones; made once."""
        slices = self.looked_at
        assert slicing is not None
        assert slices is not None
        if not self._errors:
            chosen = slices.chosen(None, self.drawn.task.outputs[0].shape)
            few = chosen[:: max(1, chosen.size // QUARTERS)]
            part = part_of(self.drawn, slicing, few)
            if slicing.inner is not None:
                size = self._inner_size(slicing)
                count = max(QUARTERS, size * TEXTBOOK_ELEMENTS // (few.size * self._elements(slicing)))
                if count < size:
                    part = part_of(part, slicing.inner, np.arange(count) * size // count)
            exact = wide_results(part, part.inputs)
            found = textbook_results(part)
            self._errors = tuple(
                error_by_magnitude(values, [other[n] for other in found]) for n, values in enumerate(exact)
            )
        return self._errors

    def _in_corner(self, slicing: Slicing, output: int, where: Runs | None) -> Expectation:
        if not self._corner:
            part = part_of(
                self.drawn, slicing, np.arange(min(size_of(self.drawn, slicing), max(2, self._affordable())))
            )
            self._corner, textbook = _results(part), textbook_results(part)
            self._errors = tuple(
                error_by_magnitude(values[0], [other[n] for other in textbook]) for n, values in enumerate(self._corner)
            )
        expected, native, *rounded = self._corner[output]
        shape = self.drawn.task.outputs[output].shape
        corner = np.indices(expected.shape, sparse=True)
        positions = np.ravel_multi_index(corner, shape).reshape(-1) if where is None else where.positions
        places = np.unravel_index(positions, shape)
        inside = np.logical_and.reduce([p < length for p, length in zip(places, expected.shape, strict=True)])
        at = tuple(place[inside] for place in places)
        found = Runs.of(positions[inside])
        wide = expected[at]
        others = rounded[0][at] if rounded else wide
        return expectation(wide, native[at], others, found, known=self._errors[output])

    def _totals(self, slicing: Slicing) -> tuple[Expectation, ...]:
        """Every part in turn; errors of the textbook formula are learnt from a piece and add up as independent ones."""
        if not self._total:
            size = size_of(self.drawn, slicing)
            step = max(1, min(size, AT_ONCE // self._elements(slicing)))
            parts = []
            for start in range(0, size, step):
                indices = np.arange(start, min(start + step, size))
                parts.append((indices.size, wide_part(self.drawn, slicing, indices)))
            few = max(1, min(size, SLICED_ELEMENTS // PIECE // self._elements(slicing)))
            piece = part_of(self.drawn, slicing, np.arange(few))
            exact, textbook = wide_results(piece, piece.inputs), textbook_results(piece)
            more = np.sqrt(size / few)
            found = []
            for n, output in enumerate(self.drawn.task.outputs):
                expected = combined(slicing.rule, [(count, part[n]) for count, part in parts])
                factor = more if slicing.rule == "sum" else 1 / more
                with np.errstate(invalid="ignore"):  # infinities
                    others = [expected + factor * (other[n] - exact[n]) for other in textbook]
                found.append(expectation(expected, expected.astype(dtype_of(output.dtype)), expected, None, others))
            self._total = tuple(found)
        return self._total


def _results(part: Drawn) -> tuple[tuple[Array, ...], ...]:
    """Of each output: in float64, PyTorch's own, and of rounded inputs where those are others."""
    kinds = (wide_results(part, part.inputs), native_results(part, part.inputs), rounded_results(part))
    return tuple(zip(*filter(None, kinds), strict=True))


def _flat(result: tuple[Array, ...], axis: int, place: int) -> tuple[Array, ...]:
    """One slice of an output's results, in memory of its own."""
    return tuple(np.take(kind, place, axis).reshape(-1) for kind in result)
