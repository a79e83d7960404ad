"""Calls come in an order that a wrapper cannot know, and calls with the same inputs do the same work."""

from __future__ import annotations

from collections.abc import Sequence

from cupilot.contracts import Outcome
from cupilot.evaluation.call_order import in_hidden_order, inconsistency
from cupilot.records import Counter, Failure, Launch, Profile, Resources

GROUPS = ["small"] * 6 + ["odd"] * 6 + ["task"] * 3
CRASH = Failure("run", "crash", "the candidate's host code crashed")


def profile(instructions: float, grid: int = 8) -> Profile:
    counters = (Counter("lane_instructions", instructions, "PTX"),)
    return Profile("virtual", (Launch("k", (grid, 1, 1), (32, 1, 1), 0, Resources(8), grid, counters),))


class Process:
    """Runs calls, and crashes at those of some groups."""

    def __init__(self, crashing: Sequence[str] = ()) -> None:
        self.crashing = crashing
        self.made: list[list[int]] = []

    def __call__(self, numbers: Sequence[int]) -> tuple[Outcome | Failure, ...]:
        self.made.append(list(numbers))
        results: list[Outcome | Failure] = []
        for number in numbers:
            crashed = bool(results) and results[-1] is CRASH
            fine = not crashed and GROUPS[number] not in self.crashing
            results.append(Outcome((), profile(number)) if fine else CRASH)
        return tuple(results)


def test_the_order_depends_on_the_key_and_results_come_by_number() -> None:
    first, again, other = Process(), Process(), Process()
    results = in_hidden_order(first, GROUPS, "kernel 1")
    in_hidden_order(again, GROUPS, "kernel 1")
    in_hidden_order(other, GROUPS, "kernel 2")
    assert first.made == again.made
    assert first.made != other.made
    assert first.made[0] != sorted(first.made[0])
    assert [result.profile.total("lane_instructions") for result in results] == list(range(len(GROUPS)))


def test_a_shape_that_crashes_takes_no_other_shape_along() -> None:
    process = Process(crashing=("odd",))
    results = in_hidden_order(process, GROUPS, "kernel 1")
    for number, result in enumerate(results):
        if GROUPS[number] != "odd":
            assert isinstance(result, Outcome)
    assert CRASH in results[6:12]
    assert len(process.made) == 2


def test_everything_that_crashes_comes_to_an_end() -> None:
    process = Process(crashing=("small", "odd", "task"))
    assert set(in_hidden_order(process, GROUPS, "kernel 1")) == {CRASH}
    assert len(process.made) == 3


def test_equal_calls_do_equal_work() -> None:
    assert inconsistency(profile(1000), Outcome((), profile(1010))) is None
    for other in (profile(1100), profile(1000, grid=9)):
        failure = inconsistency(profile(1000), Outcome((), other))
        assert failure is not None
        assert failure.kind == "inconsistent"
    assert inconsistency(profile(1000), CRASH) is CRASH
