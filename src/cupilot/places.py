"""Places in a result: flat positions as stretches of neighbours, and slices along an axis that stand for all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from cupilot.arrays import Array

QUARTERS = 4
MANY_RANGES = 1 << 12
"""Cutting positions range by range takes longer than one by one from here on."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Flat positions in ascending order, as stretches of neighbours: what a block stores is one, or a few.

    ``table`` has a row for each stretch: its first position and its length.
    """

    LONG = 64
    """Stretches from this mean length on are copied one by one."""

    table: Array

    @classmethod
    def of(cls, positions: Array) -> Runs:
        ends = np.flatnonzero(np.diff(positions) != 1) + 1
        bounds = np.concatenate([[0], ends, [positions.size]]) if positions.size else np.zeros(1, np.int64)
        return cls(np.stack([positions[bounds[:-1]], np.diff(bounds)], axis=1).astype(np.int64))

    @property
    def first(self) -> Array:
        column: Array = self.table[:, 0]
        return column

    @property
    def length(self) -> Array:
        column: Array = self.table[:, 1]
        return column

    @cached_property
    def size(self) -> int:
        return int(self.length.sum())

    @property
    def positions(self) -> Array:
        """All of them, one by one."""
        return np.repeat(self.first - self._before, self.length) + np.arange(self.size)

    @cached_property
    def _before(self) -> Array:
        """How many positions stand before each stretch."""
        return np.cumsum(self.length) - self.length

    def __getitem__(self, place: int) -> int:
        """The position that stands at a place."""
        place %= self.size
        row = int(np.searchsorted(self._before, place, side="right")) - 1
        return int(self.first[row] + place - self._before[row])

    def of_values(self, values: Array | np.flatiter[Array]) -> Array:
        """What stands at these positions in a flat array."""
        if self.size < self.LONG * len(self.table) or not self.size:
            return values[self.positions]
        return np.concatenate([values[at : at + count] for at, count in self.table.tolist()])

    def within(self, other: Runs) -> Runs:
        """At which places these positions, all of which are among others, stand there; whole stretches only are cut."""
        row = np.searchsorted(other.first, self.first, side="right") - 1
        return Runs(np.stack([other._before[row] + self.first - other.first[row], self.length], axis=1))

    def cut(self, low: int, high: int) -> Array:
        """The stretches, as a table, of those positions that lie in a range."""
        begin = max(0, int(np.searchsorted(self.first, low, side="right")) - 1)
        end = int(np.searchsorted(self.first, high, side="left"))
        first = self.first[begin:end]
        first, last = np.maximum(first, low), np.minimum(first + self.length[begin:end], high)
        some = last > first
        return np.stack([first[some], (last - first)[some]], axis=1)


@dataclass(frozen=True)
class Slices:
    """Indices of one axis of a result that are looked at: about ``count``, from every quarter, by a seed."""

    axis: int
    count: int
    seed: int

    def chosen(self, where: Runs | None, shape: Sequence[int]) -> Array:
        """Out of those that some positions have; the same ones wherever they are among them."""
        size = shape[self.axis]
        there = np.ones(size, bool) if where is None else _there(where, size, prod(shape[self.axis + 1 :]))
        order = np.random.default_rng([self.seed, size]).permutation(size)
        order = order[there[order]]
        quarter = order * QUARTERS // size
        some = [order[quarter == number][: max(1, self.count // QUARTERS)] for number in range(QUARTERS)]
        return np.sort(np.concatenate(some))

    def of(self, where: Runs | None, shape: Sequence[int]) -> Runs | None:
        """Those positions (None: all) that lie in the chosen slices."""
        chosen = self.chosen(where, shape)
        return where if chosen.size == shape[self.axis] else _of_slices(where, chosen, shape, self.axis)


def index_along(positions: Array, shape: Sequence[int], axis: int) -> Array:
    """The index along one axis of flat positions."""
    index: Array = positions // prod(shape[axis + 1 :]) % shape[axis]
    return index


def _there(where: Runs, size: int, stride: int) -> Array:
    """Which indices of an axis any of the positions have."""
    first, last = where.first // stride, (where.first + where.length - 1) // stride
    rounds = last // size - first // size  # how often a stretch begins again with the first index
    begun = np.zeros(size + 1, np.int64)
    np.add.at(begun, first % size, 1)
    np.add.at(begun, last % size + 1, -1)
    begun[0] += int(rounds.clip(0, 2).sum())
    there: Array = np.cumsum(begun[:-1]) > 0
    return there


def _of_slices(where: Runs | None, chosen: Array, shape: Sequence[int], axis: int) -> Runs:
    """Those positions, or all, that lie in some slices."""
    size, stride = shape[axis], prod(shape[axis + 1 :])
    outer = prod(shape[:axis])
    if where is None:
        first = ((np.arange(outer)[:, None] * size + chosen) * stride).reshape(-1)
        return Runs(np.stack([first, np.full(first.size, stride)], axis=1))
    if outer * chosen.size > MANY_RANGES:
        positions = where.positions
        mask = np.zeros(size, bool)
        mask[chosen] = True
        return Runs.of(positions[mask[index_along(positions, shape, axis)]])
    ranges = ((before * size + int(index)) * stride for before in range(outer) for index in chosen)
    return Runs(np.concatenate([where.cut(low, low + stride) for low in ranges]))
