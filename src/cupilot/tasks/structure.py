"""What a task's own inputs look like, so that fresh values are values the operator is meant for.

Learned from one draw of ``get_inputs`` at a small size and applied to draws of any size.  Only what a
kernel may rely on is kept: which half of a matrix is zero, symmetry, a few discrete values (such as -1
and 1), rows that sum to one, the density of a mask.  Signs and ranges are not: a ReLU is defined for
negative numbers even where ``get_inputs`` gives none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cupilot.arrays import Array, is_floating

FEW = 3
"""A tensor of no more different values than this draws from them."""
MANY = 64
"""Elements that it takes to conclude anything."""

TRIANGLES = {"upper": np.triu, "lower": np.tril}


@dataclass(frozen=True)
class Structure:
    """What is kept of an input's own values.

    ``zero_outside`` is ``upper``, ``lower`` or ``diagonal`` (of the last two axes); ``choices`` are the only
    values; ``low`` and ``high`` bound integers; ``density`` is the share of true values of a mask.
    """

    zero_outside: str = ""
    symmetric: bool = False
    choices: tuple[float, ...] = ()
    sums_to_one: bool = False
    low: int = 0
    high: int = 0
    density: float = 0.5

    @property
    def is_local(self) -> bool:
        """Whether each element can be drawn by itself."""
        return not (self.zero_outside or self.symmetric or self.sums_to_one)


def learn_structure(values: Array) -> Structure:
    if values.dtype == np.bool_:
        return Structure(density=float(values.mean()) if values.size else 0.5)
    if not is_floating(values.dtype):
        bounds = (int(values.min()), int(values.max())) if values.size else (0, 0)
        return Structure(low=bounds[0], high=bounds[1])
    if values.size < MANY:
        return Structure()
    wide = values.astype(np.float64)
    choices = np.unique(wide.reshape(-1)[: 1 << 20])
    if 1 < choices.size <= FEW:
        return Structure(choices=tuple(float(c) for c in choices))
    square = wide.ndim >= 2 and wide.shape[-1] == wide.shape[-2] > 1
    symmetric = bool(square and np.array_equal(wide, np.swapaxes(wide, -1, -2)))
    return Structure(_zero_outside(wide) if square else "", symmetric, (), _sums_to_one(wide))


def _zero_outside(values: Array) -> str:
    fits = [name for name, triangle in TRIANGLES.items() if np.array_equal(triangle(values), values)]
    return "diagonal" if len(fits) == len(TRIANGLES) else fits[0] if fits else ""


def _sums_to_one(values: Array) -> bool:
    positive = values.ndim >= 1 and values.shape[-1] > 1 and bool((values >= 0).all())
    return positive and bool(np.allclose(values.sum(-1), 1.0, atol=1e-3))


def impose(structure: Structure, values: Array, rng: np.random.Generator) -> Array:
    """Fresh floating values with the structure put upon them."""
    if structure.choices:
        return rng.choice(np.array(structure.choices, dtype=np.float32), values.shape)
    for name, triangle in TRIANGLES.items():
        if structure.zero_outside in (name, "diagonal"):
            values = triangle(values)
    if structure.symmetric:
        values = (values + np.swapaxes(values, -1, -2)) / np.float32(2)
    if structure.sums_to_one:
        values = np.abs(values)
        total = values.sum(-1, keepdims=True, dtype=np.float64)
        with np.errstate(invalid="ignore"):  # infinity over itself is NaN, as it should be
            values = (values / np.where(total > 0, total, 1.0)).astype(np.float32)
    return values
