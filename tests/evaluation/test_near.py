"""Near the limit several draws decide, and the same way whichever of them comes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from cupilot.contracts import Outcome, Output
from cupilot.evaluation.near import DRAWS, Comparison
from cupilot.evaluation.trials import Trial
from cupilot.evaluation.verify import BUDGETS, compare
from cupilot.records import Failure, Profile
from cupilot.tasks import make_case
from cupilot.tasks.load import task_from_source
from cupilot.tasks.magnitude import bin_of

SOURCE = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return x * 3 + 1
def get_inputs():
    return [torch.randn(64, 128)]
"""
TASK = task_from_source(SOURCE, "line", "fp32", where="line")
NORM = BUDGETS["fp32"].norm


def trial(seed: int) -> Trial:
    return Trial(make_case(TASK, "normal", seed))


def off(made: Trial, norms: float) -> Outcome:
    """Results whose error in norm is so much of what is allowed."""
    expected = made.case.expectation(0, None)
    level = np.hypot(expected.errors[bin_of(expected.expected)], 2.0**-24 * np.abs(expected.expected))
    signs = np.random.default_rng(1).choice((-1, 1), expected.expected.size)
    values = (expected.expected + norms * NORM * level * signs).astype(np.float32)
    return Outcome((Output((64, 128), values),), Profile("virtual:a100-80gb", (), sampled=False))


def compared(strains: Sequence[float]) -> tuple[Comparison, list[int]]:
    """Of a kernel whose later draws have these errors, and the number of calls it is asked for."""
    asked: list[int] = []
    left = iter(strains)

    def run(trials: Sequence[Trial], sampled: bool) -> list[Outcome | Failure]:
        asked.append(len(trials))
        return [off(each, next(left)) for each in trials]

    return Comparison("fp32", lambda made, number: trial(number), run), asked


@pytest.mark.parametrize(("first", "passes"), [(0.05, True), (30.0, False)])
def test_far_from_the_limit_one_draw_decides(first: float, passes: bool) -> None:
    comparison, asked = compared([])
    check, failure = comparison(trial(0), off(trial(0), first))
    assert (failure is None, asked) == (passes, [])
    assert f"{check.strain:.2f} of what fp32 allows" in check.note


@pytest.mark.parametrize("first", [0.6, 0.9, 1.1, 1.4])
@pytest.mark.parametrize(("later", "passes"), [((0.6, 0.7, 0.8, 1.3), True), ((0.7, 1.3, 1.2, 1.4), False)])
def test_near_the_limit_the_median_decides(first: float, later: tuple[float, ...], passes: bool) -> None:
    comparison, asked = compared(later)
    check, failure = comparison(trial(0), off(trial(0), first))
    # three of five decide
    right = [_is_right(seed, norms) for seed, norms in enumerate((first, *later[:2]))]
    at_once = right[0] == right[1] == right[2]
    assert asked == ([2] if at_once else [2, 2])
    assert (failure is None) == passes == (check.strain <= 1)
    assert f"median of {3 if at_once else DRAWS} draws" in check.note


def _is_right(seed: int, norms: float) -> bool:
    """What one draw by itself says."""
    made = trial(seed)
    return compare(made.case, off(made, norms).outputs, "fp32")[1] is None


def test_another_failure_of_a_later_draw_counts() -> None:
    crash = Failure("run", "crash", "it crashed")
    comparison = replace(compared([])[0], run=lambda trials, sampled: [crash for _ in trials])
    assert comparison(trial(0), off(trial(0), 0.9))[1] == crash
