"""What somebody who looks on knows of a run, event by event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from toy import ToyAgents

from cupilot.contracts import DONE, REFERENCE, Brief, Step
from cupilot.evolution.observed_agents import ObservedAgents
from cupilot.evolution.progress import Progress
from cupilot.evolution.run_state import RunState, Work, fold
from cupilot.records import Individual, Strategy, Timing
from cupilot.testing.samples import EVALUATION, FAILED, INDIVIDUAL, INFO, RESULT, SPEC, TASK

START = RunState(INFO, 100.0)


def timed(number: int, time_s: float) -> Individual:
    evaluation = replace(EVALUATION, timing=Timing(time_s, "modelled", "sample", "dram"))
    return replace(INDIVIDUAL, id=number, evaluation=evaluation)


def taken(individual: Individual, best: Individual, **facts: int) -> Progress:
    result = replace(RESULT, best=best, evaluations=individual.id + 1)
    return Progress("individual", individual.generation, result, individual=individual, population=(best,), **facts)


def test_the_best_so_far_is_kept_for_every_individual() -> None:
    first, second, third = timed(0, 4e-6), timed(1, 2e-6), timed(2, 3e-6)
    state = START
    for individual, best in ((first, first), (second, second), (third, second)):
        state = fold(state, taken(individual, best, begun=5, taken=individual.id + 1), 101.0)
    assert state.history == (4e-6, 2e-6, 2e-6)
    assert state.result is not None
    assert state.result.best is second
    assert (state.begun, state.taken, state.population) == (5, 3, (second,))


def test_events_that_are_about_no_individual_add_nothing_to_history() -> None:
    state = fold(START, taken(INDIVIDUAL, INDIVIDUAL), 101.0)
    for kind in ("plain", "begun", "generation"):
        state = fold(state, Progress(kind, 0, RESULT, individual=INDIVIDUAL if kind == "plain" else None), 102.0)
    assert len(state.history) == 1
    assert not state.stopping


def test_failures_are_counted_by_kind_the_most_frequent_first() -> None:
    state = START
    assert FAILED.failure is not None
    for number, kind in enumerate(("time-out", "wrong-result", "crash", "wrong-result")):
        failed = replace(FAILED, failure=replace(FAILED.failure, kind=kind))
        state = fold(state, taken(replace(INDIVIDUAL, id=number, evaluation=failed), INDIVIDUAL), 101.0)
    assert state.failures == (("wrong-result", 2), ("crash", 1), ("time-out", 1))


def test_a_generation_is_never_taken_back() -> None:
    state = fold(START, Progress("generation", 2, RESULT), 101.0)
    assert fold(state, Progress("begun", 1, RESULT), 102.0).generation == 2


@pytest.mark.parametrize(("generation", "epoch"), [(0, 1), (2, 1), (3, 2), (5, 2)])
def test_epochs_are_counted_from_one(generation: int, epoch: int) -> None:
    state = replace(START, info=replace(INFO, epochs=2, generations=2), generation=generation)
    assert (state.epoch, state.last_generation) == (epoch, 5)


def test_what_is_planned_is_what_there_can_be_at_most() -> None:
    info = replace(INFO, population=8, generations=4, epochs=2)
    assert replace(START, info=info).planned == 1 + 2 * (8 + 4 * 6)


def test_stopping_stays() -> None:
    state = fold(START, Progress("stopping", 0, RESULT), 101.0)
    assert fold(state, Progress("generation", 0, RESULT), 102.0).stopping


def test_a_kernel_is_at_one_stage_at_a_time_and_leaves() -> None:
    state = fold(START, Step("building", "a"), 101.0)
    state = fold(state, Step("building", "b"), 102.0)
    state = fold(state, Step("checking", "a"), 103.0)
    assert state.at("building") == (Work("b", "building", "", 102.0),)
    assert state.at("checking") == (Work("a", "checking", "", 103.0),)
    state = fold(fold(state, Step(DONE, "a"), 104.0), Step(DONE, "b"), 104.0)
    assert state.work == ()


def test_those_that_are_there_longest_come_first() -> None:
    state = START
    for number, who in enumerate("cab"):
        state = fold(state, Step("building", who), 101.0 + number)
    assert [one.who for one in state.at("building")] == ["c", "a", "b"]


def test_a_reference_is_over_when_nothing_is_said_of_it() -> None:
    state = fold(START, Step(REFERENCE, "", "relu, normal inputs"), 101.0)
    assert [one.what for one in state.at(REFERENCE)] == ["relu, normal inputs"]
    assert fold(state, Step(REFERENCE, ""), 102.0).work == ()


def test_folding_leaves_the_old_state_as_it_was() -> None:
    fold(START, taken(INDIVIDUAL, INDIVIDUAL), 101.0)
    assert RunState(INFO, 100.0) == START


# --- agents ----------------------------------------------------------------------------------


def test_every_role_is_seen_at_work_and_gives_what_it_gave() -> None:
    seen: list[Step] = []
    agents, watched = ToyAgents(), ObservedAgents(ToyAgents(), seen.append)
    brief = Brief(TASK, SPEC)
    calls: dict[str, Callable[[ToyAgents | ObservedAgents], object]] = {
        "generator": lambda who: who.generate(brief),
        "prophet": lambda who: who.foresee(TASK, EVALUATION, SPEC),
        "translator": lambda who: who.translate(brief, Strategy()),
    }
    for role, call in calls.items():
        seen.clear()
        assert call(watched) == call(agents)
        (writing, done) = seen
        assert (writing.stage, writing.what, done.stage) == ("writing", role, DONE)
        assert writing.who == done.who


def test_a_role_that_raises_is_not_at_work_any_more() -> None:
    class Silent(ToyAgents):
        def generate(self, brief: Brief) -> object:  # type: ignore[override]
            raise ValueError("nothing")

    seen: list[Step] = []
    with pytest.raises(ValueError, match="nothing"):
        ObservedAgents(Silent(), seen.append).generate(Brief(TASK, SPEC))
    assert [step.stage for step in seen] == ["writing", DONE]
