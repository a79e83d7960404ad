"""A verdict is not a coin: results near what is allowed are decided by several draws of inputs.

The error of a kernel varies from draw to draw.  Where it is between `NEAR` times what is allowed, the same call is made
on more draws, and the median of all decides; its distance from the limit is in the check's note.  Once more than half
of the draws that there may be agree, the others cannot change the verdict and are not made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cupilot.contracts import Outcome
from cupilot.evaluation.trials import Trial
from cupilot.evaluation.verify import compare
from cupilot.records import Check, Failure

NEAR = (0.4, 3.0)
DRAWS, AT_A_TIME = 5, 2

Run = Callable[[Sequence[Trial], bool], Sequence[Outcome | Failure]]


@dataclass(frozen=True)
class Comparison:
    """Compares calls of one kernel; ``redrawn`` gives a trial with other inputs, ``run`` calls the kernel again."""

    precision: str
    redrawn: Callable[[Trial, int], Trial]
    run: Run

    def __call__(self, trial: Trial, result: Outcome, *, partial: bool | None = None) -> tuple[Check, Failure | None]:
        """The result of one call, or the median of several where that is near the limit."""
        first = self._compared(trial, result, partial)
        if not NEAR[0] < first[0].strain < NEAR[1]:
            return first
        found = [first]
        while not _is_decided(found):
            trials = [self.redrawn(trial, number) for number in range(len(found), len(found) + AT_A_TIME)]
            for other, again in zip(trials, self.run(trials, result.profile.sampled), strict=True):
                if isinstance(again, Failure):
                    return first[0], again
                found.append(self._compared(other, again, partial))
        check, failure = sorted(found, key=lambda each: each[0].strain)[len(found) // 2]
        return replace(check, note=f"{check.note}; median of {len(found)} draws"), failure

    def _compared(self, trial: Trial, result: Outcome, partial: bool | None) -> tuple[Check, Failure | None]:
        part = result.profile.sampled if partial is None else partial
        return compare(trial.case, result.outputs, self.precision, partial=part, excused=trial.excused)


def _is_decided(found: Sequence[tuple[Check, Failure | None]]) -> bool:
    """Whether more than half of the draws that there may be agree."""
    passed = sum(failure is None for _, failure in found)
    return max(passed, len(found) - passed) > DRAWS // 2
