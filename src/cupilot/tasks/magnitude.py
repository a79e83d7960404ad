"""Rounding errors as a function of the magnitude of the result.

The error of a long sum does not shrink where the sum happens to cancel, and the error of an
elementwise function does; a table by magnitude says which, without knowing the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LOWEST_EXPONENT = -150
HIGHEST_EXPONENT = 130
BINS = HIGHEST_EXPONENT - LOWEST_EXPONENT + 2
"""One bin for zero, then one per binary exponent; smaller and larger values go to the outermost."""

ENOUGH = 64
"""Elements that an error level rests on; sparser bins look further around."""

CHUNK = 1 << 16


def chunks(elements: int) -> Iterator[slice]:
    """Slices that cover an array piecewise, so that temporaries stay small."""
    for start in range(0, elements, CHUNK):
        yield slice(start, min(start + CHUNK, elements))


def bin_of(values: Array) -> Array:
    """Index of the bin of each (finite) value."""
    _, exponents = np.frexp(values)
    bins = np.clip(exponents, LOWEST_EXPONENT, HIGHEST_EXPONENT) - (LOWEST_EXPONENT - 1)
    bins[values == 0] = 0
    return bins


def error_by_magnitude(expected: Array, results: Sequence[Array], rounding: float = 0.0) -> Array:
    """Root mean square of ``result - expected`` around each bin; zeros for integers and for no data.

    ``rounding`` is a share of the result by which everybody is off who stores it, and which does not count.
    """
    counts, squares = np.zeros(BINS), np.zeros(BINS)
    reference = expected.reshape(-1)
    for part in chunks(reference.size if expected.dtype.kind == "f" else 0):
        for result in results:
            _count(counts, squares, reference[part], result.reshape(-1)[part].astype(np.float64), rounding)
    return _smooth(counts, squares)


def _count(counts: Array, squares: Array, value: Array, result: Array, rounding: float) -> None:
    finite = np.isfinite(value) & np.isfinite(result)
    if not finite.all():
        value, result = value[finite], result[finite]
    bins = bin_of(value)
    counts += np.bincount(bins, minlength=BINS)
    excess = np.maximum(np.abs(result - value) - rounding * np.abs(value), 0.0)
    squares += np.bincount(bins, weights=excess**2, minlength=BINS)


def _smooth(counts: Array, squares: Array) -> Array:
    """Each bin with its neighbours, and with more of them until enough elements are in sight."""
    below, index = np.concatenate([[0], counts.cumsum()]), np.arange(BINS)

    def around(reach: Array) -> tuple[Array, Array]:
        return np.maximum(0, index - reach), np.minimum(BINS, index + reach + 1)

    # the least reach that is enough, by halving; the largest sees all bins
    least, most = np.where(index > 0, 1, 0), np.full(BINS, BINS)  # exact zeros are often exact for everybody
    while (least < most).any():
        middle = (least + most) // 2
        low, high = around(middle)
        enough = below[high] - below[low] >= ENOUGH
        least, most = np.where(enough, least, np.minimum(middle + 1, most)), np.where(enough, middle, most)
    low, high = around(least)
    count = below[high] - below[low]
    levels = np.zeros(BINS)
    for place in np.flatnonzero(count):
        levels[place] = np.sqrt(squares[low[place] : high[place]].sum() / count[place])
    return levels


def root_mean_square(values: Array) -> float:
    """Over the finite elements."""
    flat, total, count = values.reshape(-1), 0.0, 0
    for part in chunks(flat.size):
        chunk = flat[part]
        if not np.isfinite(chunk).all():
            chunk = chunk[np.isfinite(chunk)]
        total += float(np.square(chunk).sum())
        count += chunk.size
    return float(np.sqrt(total / count)) if count else 0.0
