"""The order of similar records: operators first, then how far the task is away, then text.

How far is said in octaves (factors of two): of the sizes, plus fixed amounts for another zone, limit,
precision or device, plus what a strategy falls short of the best one known for its own task.
Everything here is a pure function.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import log2

from cupilot.records.pool import PoolRecord, Sizes
from cupilot.strategies.pool_features import PoolQuery
from cupilot.strategies.pool_tags import likeness

# octaves for what differs; a strategy depends on the device least of all
OTHER_ZONE, OTHER_LIMIT, OTHER_PRECISION, OTHER_DEVICE = 0.5, 0.5, 2.0, 0.25
# the number of rows matters less than their length: it only sets how many blocks there are
ELEMENTS_BESIDE_ROW = 0.25
_DIGITS = 6


@dataclass(frozen=True)
class Facts:
    """What ranking needs of a record, without decoding it."""

    id: str
    problem: str
    operators: str
    sizes: Sizes
    zone: str
    limit: str
    precision: str
    device: str
    time_s: float
    gain: float
    relevance: float


@dataclass(frozen=True)
class PoolMatch:
    """A record and why it is here: ``likeness`` of operators (1: the same), ``octaves`` away."""

    record: PoolRecord
    likeness: float
    octaves: float
    shipped: bool

    @property
    def why(self) -> str:
        """One clause for a strategy's reason."""
        kin = "the same operators" if self.likeness == 1.0 else "related operators"
        return f"gained {self.record.gain:.2f}x on {self.record.task}: {kin}, {self.octaves:.1f} octaves away"


def rank(query: PoolQuery, candidates: list[Facts]) -> list[tuple[Facts, float, float]]:
    """(facts, likeness, octaves), best first; those that share no operator and no family are left out.

    Without operators in the query nothing is left out.  The order is total: ids break ties.
    """
    alike = cache(lambda operators: likeness(query.operators, operators.split()))
    best_s: dict[str, float] = {}
    for facts in candidates:
        best_s[facts.problem] = min(facts.time_s, best_s.get(facts.problem, facts.time_s))
    kept = [
        (
            facts,
            alike(facts.operators),
            round(_octaves(query, facts) + log2(facts.time_s / best_s[facts.problem]), _DIGITS),
        )
        for facts in candidates
        if not query.operators or alike(facts.operators) > 0
    ]
    return sorted(
        kept, key=lambda item: (-item[1], item[2], -round(item[0].relevance, _DIGITS), -item[0].gain, item[0].id)
    )


def size_octaves(one: Sizes, other: Sizes) -> float:
    """Zero for equal sizes, growing with each size that differs; symmetric."""
    elements = _apart(one.elements, other.elements)
    if one.product is not None and other.product is not None:
        return sum(_apart(a, b) for a, b in zip(one.product, other.product, strict=True))
    if one.row is not None and other.row is not None:
        return _apart(one.row, other.row) + ELEMENTS_BESIDE_ROW * elements
    return elements


def _octaves(query: PoolQuery, facts: Facts) -> float:
    return (
        (size_octaves(query.sizes, facts.sizes) if query.sizes is not None else 0.0)
        + (OTHER_ZONE if query.zone and query.zone != facts.zone else 0.0)
        + (OTHER_LIMIT if query.limit and query.limit != facts.limit else 0.0)
        + (OTHER_PRECISION if query.precision and query.precision != facts.precision else 0.0)
        + (OTHER_DEVICE if query.device and query.device != facts.device else 0.0)
    )


def _apart(a: int, b: int) -> float:
    return abs(log2(a) - log2(b))
