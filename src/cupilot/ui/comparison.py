"""Two runs side by side, and whether their times may be compared at all."""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.numbers import PAGE
from cupilot.ui.dashboard import RunRow
from cupilot.ui.runs import BestKernel

EQUAL = 0.0005


@dataclass(frozen=True)
class TimePart:
    """One part of the times of the two best kernels; None if a kernel has no such part."""

    name: str
    left_s: float | None
    right_s: float | None


@dataclass(frozen=True)
class RunComparison:
    """Two runs; ``verdict`` says which is faster and by how much, or why they cannot be compared."""

    left: RunRow
    right: RunRow
    parts: tuple[TimePart, ...]
    verdict: str

    @property
    def longest_s(self) -> float:
        """The longest part, the full width of the bars."""
        return max((time_s for part in self.parts for time_s in (part.left_s, part.right_s) if time_s), default=1.0)


def compare(left: RunRow, right: RunRow) -> RunComparison:
    return RunComparison(left, right, _parts(left.run.best, right.run.best), _verdict(left, right))


def _parts(left: BestKernel | None, right: BestKernel | None) -> tuple[TimePart, ...]:
    """The parts of both times, the longest first."""
    times = [dict(best.timing.breakdown) if best is not None else {} for best in (left, right)]
    names = sorted(times[0].keys() | times[1].keys(), key=lambda name: (-max(t.get(name, 0.0) for t in times), name))
    return tuple(TimePart(name, times[0].get(name), times[1].get(name)) for name in names)


def _verdict(left: RunRow, right: RunRow) -> str:
    one, other = left.run, right.run
    if one.info is None or other.info is None or one.best is None or other.best is None:
        return "One of the runs has no kernel yet, so there is nothing to compare."
    if one.info.task_source != other.info.task_source:
        return "The runs have different tasks: their times cannot be compared."
    if one.info.precision != other.info.precision:
        return f"The runs compute in {one.info.precision} and {other.info.precision}: their times cannot be compared."
    mine, theirs = one.best.timing, other.best.timing
    if (mine.source, mine.device) != (theirs.source, theirs.device):
        return (
            f"One time is {mine.source} for {mine.device}, the other {theirs.source} for {theirs.device}:"
            " they cannot be compared."
        )
    gain = theirs.time_s / mine.time_s
    if abs(gain - 1) <= EQUAL:
        return f"Their best kernels are equally fast ({mine.source})."
    faster, factor = (one.name, gain) if gain > 1 else (other.name, 1 / gain)
    return f"The best kernel of {faster} is {PAGE.ratio(factor)} as fast as the other ({mine.source})."
