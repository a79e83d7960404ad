"""Indices that a module returns, and which others would be as right.

Where PyTorch leaves the order of equal elements open (`topk`, `sort` that is not stable, `kthvalue`, `median`,
`mode`), any index of the same value is right; where it is fixed (`argmax`, `max` and their kin: the first one), exactly
that.  If the numbers that are compared are computed first, float32 may put those in another order that are nearer to
each other than its error; such an index is right too.
Not covered: `topk` with ``sorted=False``, whose values come in any order, and references that are made in slices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cupilot.arrays import Array
from cupilot.places import Runs


class Choice(NamedTuple):
    """What one output chooses from: ``values`` has a row for each choice.

    ``slots`` says for each element of the output, in order, which row it chooses from (times the number of choices from
    a row, plus which of them it is).  Elements of a row are equal up to ``slack``.
    """

    values: Array
    slots: Array
    per_row: int
    is_open: bool
    distinct: bool
    slack: float = 0.0

    def wrong(self, got: Array, wanted: Array, positions: Runs | None, *, lenient: bool = False) -> Array:
        """Which of the indices are wrong; ``lenient`` excuses those that pass over a NaN."""
        slots = self.slots if positions is None else positions.of_values(self.slots)
        rows, length = slots // self.per_row, self.values.shape[1]
        outside = (got < 0) | (got >= length)
        index = np.where(outside, 0, got)
        chosen, right = self.values[rows, index], self.values[rows, wanted]
        with np.errstate(invalid="ignore"):  # infinities
            apart = np.abs(chosen - right)
        same = (chosen == right) | (np.isnan(chosen) & np.isnan(right))
        near = same if self.is_open else np.zeros_like(same)
        if self.slack:
            near |= (apart <= self.slack) & ~same
        if lenient:
            near |= np.asarray(np.isnan(self.values).any(axis=1))[rows]
        found: Array = outside | ((got != wanted) & ~near)
        return found | self._repeated(got, slots) if self.distinct else found

    def _repeated(self, got: Array, slots: Array) -> Array:
        """Indices that their row has already chosen."""
        key = slots // self.per_row * np.int64(self.values.shape[1] + 1) + got
        _, first = np.unique(key, return_index=True)
        again = np.ones(got.shape, bool)
        again[first] = False
        return again
