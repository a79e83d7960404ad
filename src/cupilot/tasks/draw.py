"""Kinds of inputs: how fresh floating-point values are drawn.

==========  ==========================================================================================
own         what the task file's ``get_inputs`` draws
normal      standard normal, both signs
large       the same times 2^20, or 64 where fp16 must hold it: exponentials without a maximum taken off overflow
wide        both signs, magnitudes evenly spread over e^-8 .. e^8
constant    one value everywhere; sums of it are exact
planted     extrema of both signs, some in every quarter of every axis, over a faint background
one-hot     zero but for a single number in every row: one, or less than the smallest normal one of fp16
permuted    the file's own values in another order
denormal    every other number below the smallest normal one; all zeros at one place of the first axis
nan         normal with some NaN in every quarter of every axis
infinity    normal with some infinities of both signs, likewise
mixed       stretches of normal, large, constant, planted, towering and one-hot, in random order; towering: a single
            number in every row whose exponential overflows, over a faint background
special     stretches of denormal, wide, nan and infinity
==========  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cupilot.arrays import Array

Shape = tuple[int, ...]
Draw = Callable[[np.random.Generator, Shape], Array]

SPARSE, RARE = 64, 1024
"""One element in so many is planted; NaN and infinity are rarer, because they spoil whole rows."""
LARGE, LARGE_HALF = 2.0**20, 64.0
TINY = 3 * 2.0**-26
"""What fp16 cannot tell from zero, or from its smallest number."""
EXTREME = 48.0
"""Large beside the background, small enough for the exponential of float32, and for fp16."""
TOWER = 200.0
"""Its exponential is infinite in float32, and it is a number of fp16."""


def normal(rng: np.random.Generator, shape: Shape) -> Array:
    return rng.standard_normal(shape, dtype=np.float32)


def large(rng: np.random.Generator, shape: Shape) -> Array:
    return np.float32(LARGE) * normal(rng, shape)


def large_half(rng: np.random.Generator, shape: Shape) -> Array:
    return np.float32(LARGE_HALF) * normal(rng, shape)


def wide(rng: np.random.Generator, shape: Shape) -> Array:
    """Normal numbers in fp16 too, and products stay finite."""
    values = rng.random(shape, dtype=np.float32)
    values -= np.float32(0.5)
    signs = rng.integers(0, 2, shape, dtype=np.int8)
    np.exp(values * np.float32(16), out=values)
    np.negative(values, out=values, where=signs.astype(bool))
    return values


def constant(rng: np.random.Generator, shape: Shape) -> Array:
    """A multiple of a quarter, so that no order of summation rounds; below zero, where no other kind leaves whole
    rows."""
    return np.full(shape, -rng.integers(3, 12) / 4, np.float32)


def planted(rng: np.random.Generator, shape: Shape) -> Array:
    values = np.float32(0.01) * normal(rng, shape)
    places = spread(rng, shape)
    extremes = EXTREME * (1 + 0.25 * rng.random(places.size)) * rng.choice((-1, 1), places.size)
    values.reshape(-1)[places] = extremes.astype(np.float32)
    return values


def one_hot(rng: np.random.Generator, shape: Shape) -> Array:
    return _single(rng, shape, (1.0, TINY))


def one_hot_half(rng: np.random.Generator, shape: Shape) -> Array:
    return _single(rng, shape, (1.0,))


def _single(rng: np.random.Generator, shape: Shape, choices: Sequence[float]) -> Array:
    values = np.zeros(shape, np.float32)
    if values.size:
        rows = values.reshape(-1, shape[-1] if shape else 1)
        places = rng.integers(0, rows.shape[1], rows.shape[0])
        rows[np.arange(rows.shape[0]), places] = rng.choice(np.array(choices, np.float32), rows.shape[0])
    return values


def towering(rng: np.random.Generator, shape: Shape) -> Array:
    """Whoever overlooks the one number that a row's maximum is overflows in its exponential."""
    return np.float32(0.01) * normal(rng, shape) + _single(rng, shape, (TOWER, -TOWER))


def denormal(rng: np.random.Generator, shape: Shape) -> Array:
    values = normal(rng, shape)
    values.reshape(-1)[::2] *= np.float32(1e-39)
    if len(shape) > 1 and shape[0] > 2:
        values[rng.integers(shape[0])] = 0  # what divides by a norm has a floor for it, or gives NaN
    return values


def nan(rng: np.random.Generator, shape: Shape) -> Array:
    values = normal(rng, shape)
    values.reshape(-1)[spread(rng, shape, RARE)] = np.nan
    return values


def infinity(rng: np.random.Generator, shape: Shape) -> Array:
    values = normal(rng, shape)
    places = spread(rng, shape, RARE)
    values.reshape(-1)[places] = np.where(rng.random(places.size) < 0.5, np.inf, -np.inf)
    return values


def mixed(rng: np.random.Generator, shape: Shape) -> Array:
    return _stretches(rng, shape, (normal, large_half, constant, planted, towering, one_hot_half))


def special(rng: np.random.Generator, shape: Shape) -> Array:
    return _stretches(rng, shape, (normal, denormal, wide, nan, infinity))


def _stretches(rng: np.random.Generator, shape: Shape, draws: Sequence[Draw]) -> Array:
    """Whole stretches of rows of each kind, or of elements where there are few rows."""
    rows = shape[0] if shape and shape[0] >= 2 * len(draws) else int(np.prod(shape, dtype=np.int64))
    if rows < 2 * len(draws):
        return normal(rng, shape)
    values = np.empty((rows, int(np.prod(shape, dtype=np.int64)) // rows), np.float32)
    cuts = np.sort(rng.choice(np.arange(1, rows), 2 * len(draws) - 1, replace=False))
    order = [*rng.permutation(len(draws)), *rng.permutation(len(draws))]
    for first, last, number in zip((0, *cuts), (*cuts, rows), order, strict=True):
        values[first:last] = draws[number](rng, (int(last - first), values.shape[1]))
    return values.reshape(shape)


def spread(rng: np.random.Generator, shape: Shape, one_in: int = SPARSE) -> Array:
    """Flat positions: one element in so many, and at least one in every quarter of every axis."""
    size = int(np.prod(shape, dtype=np.int64))
    if not size:
        return np.empty(0, np.int64)
    places = [rng.integers(0, size, max(1, size // one_in))]
    for axis, length in enumerate(shape):
        for quarter in range(4):
            low, high = length * quarter // 4, max(length * (quarter + 1) // 4, length * quarter // 4 + 1)
            place = [rng.integers(0, other) for other in shape]
            place[axis] = rng.integers(min(low, length - 1), min(high, length))
            places.append(np.atleast_1d(np.ravel_multi_index(tuple(place), shape)))
    return np.unique(np.concatenate(places))


DRAWS: dict[str, Draw] = {
    "normal": normal, "large": large, "wide": wide, "constant": constant, "planted": planted, "one-hot": one_hot,
    "denormal": denormal, "nan": nan, "infinity": infinity, "mixed": mixed, "special": special,
}  # fmt: skip
HALF_DRAWS = DRAWS | {"large": large_half, "one-hot": one_hot_half}
"""The same within the range of fp16."""
KINDS = (
    "own", "normal", "large", "wide", "constant", "planted", "one-hot", "permuted", "denormal", "nan", "infinity",
    "mixed", "special",
)  # fmt: skip
SPECIAL = ("nan", "infinity", "special")
"""Kinds whose values are not all finite."""
