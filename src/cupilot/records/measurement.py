"""A measured time, with everything that it is known from (`cupilot.evaluation.measure` takes it)."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_PAIRS = 10
"""With fewer, an interval for a median is little more than the range of the samples, and no win is told from it."""

State = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Interval:
    """Where a value lies, with a confidence of 95 %."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:.4g} to {self.high:.4g}"


@dataclass(frozen=True)
class Comparison:
    """The candidate against one rival: ``speedup`` is the rival's time over the candidate's, pair by pair."""

    rival: str
    samples_s: tuple[float, ...]
    median_s: float
    speedup: float
    interval: Interval
    pairs: int

    @property
    def is_win(self) -> bool:
        return self.pairs >= LEAST_PAIRS and self.interval.low > 1.0

    @property
    def is_loss(self) -> bool:
        return self.pairs >= LEAST_PAIRS and self.interval.high < 1.0

    def __str__(self) -> str:
        if self.pairs < LEAST_PAIRS:
            return f"{self.rival}: {self.pairs} pairs are too few to compare"
        verdict = "faster" if self.is_win else "slower" if self.is_loss else "no difference shown"
        return f"{self.rival}: {self.speedup:.3f}x ({self.interval}, {self.pairs} pairs), {verdict}"


@dataclass(frozen=True)
class Measurement:
    """The measured time of one kernel, with everything that it is known from.

    ``before`` and ``after`` are what the device said of itself around the samples (clocks, temperature, power), as
    pairs of name and value; empty where it said nothing.
    """

    samples_s: tuple[float, ...]
    median_s: float
    interval_s: Interval
    comparisons: tuple[Comparison, ...]
    warmups: int
    flushed_bytes: int
    before: State = ()
    after: State = ()
    notes: tuple[str, ...] = ()

    @property
    def is_win(self) -> bool:
        """Faster than every rival; without any there is nothing to win."""
        return bool(self.comparisons) and all(comparison.is_win for comparison in self.comparisons)
