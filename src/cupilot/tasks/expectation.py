"""What the elements of a result should be, and the error that cannot be avoided in computing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupilot.arrays import Array, float_limits, is_floating
from cupilot.tasks.magnitude import error_by_magnitude, root_mean_square

WOBBLE = 2.0**-24
"""Inputs known to one rounding of float32: what that does to the results is nobody's fault."""


@dataclass(frozen=True, eq=False)
class Expectation:
    """What elements of one output should be: all of them, or those at flat ``positions``.

    ``expected`` is float64 (integers and booleans as they are), ``native`` PyTorch's result in the task's own
    type, ``errors`` the error that cannot be avoided, by magnitude (see `magnitude`), ``scale`` a root mean square.
    ``own`` is that error of each element by itself, where it is known.  Of indices ``choice`` has what tells which are
    as right (a `Choice`).
    """

    positions: Array | None
    expected: Array
    native: Array
    errors: Array
    scale: float
    choice: tuple[Any, ...] = ()
    own: Array | None = None


def expectation(
    expected: Array, native: Array, rounded: Array, positions: Array | None = None, textbook: Sequence[Array] = (),
    known: Array | None = None,
) -> Expectation:  # fmt: skip
    """With scale and errors taken from these very elements: PyTorch's, or those of the textbook formula.

    ``known`` are errors of the textbook formula, by magnitude, on other elements.
    """
    is_other = rounded is not expected and expected.dtype.kind == "f"
    expected, native, rounded = expected.reshape(-1), native.reshape(-1), rounded.reshape(-1)
    stored = float_limits(native.dtype)[0] if is_floating(native.dtype) else 0.0
    errors = error_by_magnitude(expected, (native,), stored if stored > WOBBLE else 0.0)
    for each in (known, error_by_magnitude(expected, textbook) if textbook else None):
        errors = errors if each is None else np.maximum(errors, each)
    if is_other:
        errors = np.hypot(errors, error_by_magnitude(expected, (rounded,)))
    scale = root_mean_square(expected)
    return Expectation(positions, expected, native, errors, scale, own=_own_errors(expected, textbook))


def _own_errors(expected: Array, textbook: Sequence[Array]) -> Array | None:
    """The textbook formula's error on each element: some are worse conditioned than others of their magnitude."""
    if not textbook or expected.dtype.kind != "f":
        return None
    squares = np.zeros(expected.size)
    for other in textbook:
        with np.errstate(invalid="ignore"):  # infinities of both
            difference = other.reshape(-1) - expected
        squares += np.where(np.isfinite(difference), difference, 0.0) ** 2
    return np.sqrt(squares / len(textbook)).astype(np.float32)
