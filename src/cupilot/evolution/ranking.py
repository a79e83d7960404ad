"""Which of two kernels is faster, and when neither is: a tie, in which the simpler strategy is preferred.

Two kernels of one task on one device share most of the error of their times: the same model, or the same machine on
the same day.  What counts is the uncertainty of their difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import hypot

from cupilot.records import Evaluation, Individual, Measurement
from cupilot.records.run import MODELLED_TIE

WIDEST_TIE = 0.05
"""Measured times that are less certain than this are a matter for another measurement and not for a tie."""


def resolution(one: Evaluation, other: Evaluation, modelled: float = MODELLED_TIE) -> float:
    """The relative difference of two times that is not told apart: as stated for modelled times, for measured ones
    from the intervals of their medians."""
    if one.measurement is None or other.measurement is None:
        return modelled
    return min(hypot(_half_width(one.measurement), _half_width(other.measurement)), WIDEST_TIE)


def _half_width(measurement: Measurement) -> float:
    interval = measurement.interval_s
    return (interval.high - interval.low) / 2 / measurement.median_s


def is_faster(one: Evaluation, other: Evaluation, modelled: float = MODELLED_TIE) -> bool:
    """Whether the first is faster by more than can be a tie; false where either has no time."""
    if one.timing is None or other.timing is None:
        return False
    return one.timing.time_s < other.timing.time_s * (1.0 - resolution(one, other, modelled))


def fitness(individual: Individual) -> tuple[float, float, int]:
    """Smaller is better: time, then how little the limiting unit is used, then age.

    The id makes the order total, so that it never depends on chance.
    """
    timing = individual.evaluation.timing
    assert timing is not None, "only correct individuals are ranked"
    used = max((seconds for _, seconds in timing.breakdown), default=0.0) / timing.time_s
    return timing.time_s, -used, individual.id


def best_of(individuals: Iterable[Individual], modelled: float = MODELLED_TIE) -> Individual:
    """Of those that are not told apart from the fastest the one with the fewest moves; all must have a time."""
    known = list(individuals)
    fastest = min(known, key=fitness)
    tied = (one for one in known if not is_faster(fastest.evaluation, one.evaluation, modelled))
    return min(tied, key=_simplicity)


def ranked(individuals: Sequence[Individual], modelled: float = MODELLED_TIE) -> list[Individual]:
    """The best first.  Whoever ties with the fastest comes before the rest, the simplest first; then the same again
    among the rest."""
    waiting, found = sorted(individuals, key=fitness), []
    while waiting:
        fastest = waiting[0].evaluation
        tied = [one for one in waiting if not is_faster(fastest, one.evaluation, modelled)]
        found += sorted(tied, key=_simplicity)
        ids = {one.id for one in tied}
        waiting = [one for one in waiting if one.id not in ids]
    return found


def _simplicity(individual: Individual) -> tuple[int, tuple[float, float, int]]:
    return len(individual.strategy.moves), fitness(individual)


def comparable(one: Individual, other: Individual) -> bool:
    """Modelled, measured and recorded times, and times of different devices, are never ranked together."""
    left, right = one.evaluation.timing, other.evaluation.timing
    return left is not None and right is not None and (left.source, left.device) == (right.source, right.device)
