"""What is claimed of a card: a task, two strategies that differ in it, and what it changes.

Families keep their claims in `card_cases`, one module each with a list ``CASES``; `test_cards` holds them to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cupilot.records import Evaluation


@dataclass(frozen=True)
class CardCase:
    """``measure`` with the card over that without it must be at most ``at_most``, or at least ``at_least``.

    ``measure`` is the name of a counter of the profile, or a function of the evaluation.  Tasks are small: they are run
    in full.
    """

    card: str
    task: str
    without: str
    with_card: str
    measure: str | Callable[[Evaluation], float]
    at_most: float | None = None
    at_least: float | None = None
    precision: str = "fp32"

    def value(self, evaluation: Evaluation) -> float:
        assert evaluation.profile is not None
        if callable(self.measure):
            return self.measure(evaluation)
        return evaluation.profile.total(self.measure)

    def holds(self, ratio: float) -> bool:
        assert (self.at_most is None) != (self.at_least is None), f"{self.card}: one bound is to be given"
        return ratio <= self.at_most if self.at_most is not None else ratio >= (self.at_least or 0.0)


def registers(evaluation: Evaluation) -> float:
    """Of the launch with most."""
    assert evaluation.profile is not None
    return float(max(launch.resources.registers for launch in evaluation.profile.launches))


def time_s(evaluation: Evaluation) -> float:
    assert evaluation.timing is not None
    return evaluation.timing.time_s


def waiting_s(evaluation: Evaluation) -> float:
    """The part of the time that warps wait, for blocks to start and end among others."""
    assert evaluation.timing is not None
    return dict(evaluation.timing.breakdown)["latency"]


def launches(evaluation: Evaluation) -> float:
    assert evaluation.profile is not None
    return float(len(evaluation.profile.launches))
