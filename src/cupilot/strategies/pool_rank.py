"""The order of similar records: operators first, then how far the task is away, then text.

How far is said in octaves (factors of two): of the sizes, plus fixed amounts for another zone, limit,
precision or device, and for every better strategy that is known for the record's own task: the best ones
of several tasks promise more than one task's best and its runner-ups, which are mostly much the same.
Everything here is a pure function.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import log2

from cupilot.records.pool import PoolRecord, Sizes
from cupilot.strategies.pool_features import PoolQuery
from cupilot.strategies.pool_tags import likeness

POOL_SHARE = 0.4
"""The share of a search's first strategies that comes from similar tasks, if there are any."""
# octaves for what differs; a strategy depends on the device least of all
OTHER_ZONE, OTHER_LIMIT, OTHER_PRECISION, OTHER_DEVICE = 0.5, 0.5, 2.0, 0.25
RUNNER_UP = 1.0
# sizes that vectors of four do not divide rule out what works best for those that they do
OTHER_ALIGNMENT, VECTOR = 1.0, 4
# the number of rows matters less than their length: it only sets how many blocks there are
ELEMENTS_BESIDE_ROW = 0.25
# of a product, the number of results decides how large tiles may be; the rest matters less
DEPTH_OF_PRODUCT, SHORT_SIDE_OF_PRODUCT = 0.5, 0.5
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
        return f"{gain_text(self.record)} on {self.record.task}: {kin}, {self.octaves:.1f} octaves away"


def gain_text(record: PoolRecord) -> str:
    """What a record's strategy gained over its task's PyTorch; over the plain kernel where PyTorch's time is unknown,
    which says little: a plain kernel may be a hundred times slower than it need be."""
    if record.speedup is None:
        return f"{record.gain:.2f}x over its plain kernel"
    return f"{record.speedup:.2f}x over its PyTorch"


def rank(query: PoolQuery, candidates: list[Facts]) -> list[tuple[Facts, float, float]]:
    """(facts, likeness, octaves), best first; those that share no operator and no family are left out.

    Without operators in the query nothing is left out.  The order is total: ids break ties.
    """
    alike = cache(lambda operators: likeness(query.operators, operators.split()))
    places = _places(candidates)
    kept = [
        (facts, alike(facts.operators), round(_octaves(query, facts) + RUNNER_UP * places[facts.id], _DIGITS))
        for facts in candidates
        if not query.operators or alike(facts.operators) > 0
    ]
    return sorted(
        kept, key=lambda item: (-item[1], item[2], -round(item[0].relevance, _DIGITS), -item[0].gain, item[0].id)
    )


def size_octaves(one: Sizes, other: Sizes) -> float:
    """Zero for equal sizes, growing with each size that differs; symmetric."""
    return _distance(one, other) + (OTHER_ALIGNMENT if _aligned(one) != _aligned(other) else 0.0)


def _aligned(sizes: Sizes) -> bool:
    return all(size % VECTOR == 0 for size in (sizes.elements, sizes.row or 0, *(sizes.product or ())))


def _distance(one: Sizes, other: Sizes) -> float:
    elements = _apart(one.elements, other.elements)
    if one.product is not None and other.product is not None:
        (m, n, k), (other_m, other_n, other_k) = one.product, other.product
        return (
            _apart(m * n, other_m * other_n)
            + DEPTH_OF_PRODUCT * _apart(k, other_k)
            + SHORT_SIDE_OF_PRODUCT * _apart(min(m, n), min(other_m, other_n))
        )
    if one.row is not None and other.row is not None:
        return _apart(one.row, other.row) + ELEMENTS_BESIDE_ROW * elements
    return elements


def _places(candidates: list[Facts]) -> dict[str, int]:
    """For every id, how many of its problem are better."""
    seen: dict[str, int] = {}
    places: dict[str, int] = {}
    for facts in sorted(candidates, key=lambda facts: (facts.time_s, facts.id)):
        places[facts.id] = seen.get(facts.problem, 0)
        seen[facts.problem] = places[facts.id] + 1
    return places


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
