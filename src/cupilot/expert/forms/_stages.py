"""Statistics of rows and what is made of them, as C: what the forms of norms and softmax have in common.

A *row* is a set of elements that share their statistics.  It is reduced in *stages*; each is a sum or a maximum over
the row of terms that may use the results of the stages before it, ``s0``, ``s1`` and so on.  Then every element is
mapped, given all of them, and perhaps weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from cupilot.expert.pointwise import Pointwise, chain
from cupilot.records import Op

FACTS = {
    "rows": "sets of elements that share their statistics",
    "cols": "elements of a set; where it is in pieces, of each",
    "inner": "distance between neighbours of a set; 1: they are contiguous",
    "pieces": "contiguous pieces of a set, which are `rows * cols` apart; one for all but batch statistics",
    "kind": "sum (one stage), moments (mean and variance), softmax, or other",
    "stages": "passes over the data that the statistics take as written",
    "weights": "weights and biases in the result",
    "elements": "of the tensor",
    "rank": "number of its dimensions",
}
"""What forms of this kind tell; templates see ``stages``, ``final``, ``layout`` and ``spreads`` as well."""


@dataclass(frozen=True)
class Stage:
    """``term`` is C of ``x`` and earlier results; ``finish`` of ``total`` and ``count``, the elements of a row."""

    term: Pointwise
    finish: str = "total"
    combine: str = "sum"
    start: str = "0.0f"


@dataclass(frozen=True)
class Layout:
    """Axes that are reduced; or, with ``groups``, all from the second on, in so many parts.

    ``in_pieces``: all axes but the second.
    """

    first: int
    last: int
    groups: int = 0
    in_pieces: bool = False

    def facts(self, shape: Sequence[int]) -> dict[str, int]:
        elements = prod(shape)
        if self.groups or self.in_pieces:
            pieces = shape[0] if self.in_pieces else 1
            rows = shape[1] if self.in_pieces else shape[0] * self.groups
            cols, inner = elements // max(rows * pieces, 1), 1
        else:
            pieces, cols = 1, prod(shape[self.first : self.last + 1])
            rows, inner = elements // max(cols, 1), prod(shape[self.last + 1 :])
        return {"rows": rows, "cols": cols, "inner": inner, "pieces": pieces, "elements": elements, "rank": len(shape)}


@dataclass(frozen=True)
class Spread:
    """A weight: its elements hold for all that lies behind ``axis``, one after another, again and again."""

    name: str
    axis: int


MEAN = Stage(Pointwise((), "x", "the value"), "total / count")
PEAK = Stage(Pointwise((), "x", "the value"), "total", "max", "-FLT_MAX")


def moments(eps: str) -> tuple[Stage, Stage]:
    """Mean, and the reciprocal of the standard deviation."""
    term = Pointwise(("const float off = x - s0;",), "off * off", "squared distance from the mean")
    return MEAN, Stage(term, f"rsqrtf(total / count + {eps})")


def exponentials(log: bool) -> tuple[Stage, Stage]:
    """The maximum, and what the sum of exponentials makes of a softmax."""
    term = Pointwise((), "expf(x - s0)", "exponential of the distance from the maximum")
    return PEAK, Stage(term, "logf(total)" if log else "1.0f / total")


def followed(result: str, name: str, steps: Sequence[Op]) -> Pointwise:
    """The result ``name`` in C, and what is fused behind it."""
    if not steps:
        return Pointwise((), result)
    tail = chain(steps, {name: "normal"})
    return Pointwise((f"const float normal = {result};", *tail.lines), tail.result, tail.formula)
