"""Children are bred from what has been evaluated: population 4, three generations, as a user would run it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from toy import (
    PLAIN_S,
    TOY_INFO,
    TOY_TASK,
    ShuffledThreads,
    ToyAgents,
    evaluate_toy,
    run_toy,
    strategy,
    true_time_s,
    write,
)

from cupilot.contracts import Brief, Revision
from cupilot.evolution.progress import Progress
from cupilot.evolution.ranking import is_faster
from cupilot.evolution.store import SqliteStore, create_store
from cupilot.records import Evaluation, Failure, Individual, Kernel, RunResult, Strategy, Task
from cupilot.runs import SearchOptions
from cupilot.threads import DaemonThreads

SMALL = replace(TOY_INFO, population=4, generations=3, in_flight=2, patience=9)


class Noting(ToyAgents):
    """Keeps the briefs of its children."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.briefs: dict[int, Brief] = {}

    def translate(self, brief: Brief, strategy: Strategy) -> Kernel | Failure:
        self.briefs[brief.sample] = brief
        return super().translate(brief, strategy)


def run(store: SqliteStore, agents: Any = None, evaluator: Any = evaluate_toy, **options: Any) -> RunResult:
    return run_toy(store, agents, evaluator, **{"info": SMALL, **options})


def children(store: SqliteStore) -> list[Individual]:
    return [one for one in store.individuals() if one.origin in ("cross", "mutate")]


@pytest.mark.parametrize("seed", range(20))
def test_no_child_comes_from_the_plain_kernel_once_another_is_faster(store: SqliteStore, seed: int) -> None:
    run(store, info=replace(SMALL, seed=seed))
    by_id = {one.id: one for one in store.individuals()}
    faster = min(id_ for id_, one in by_id.items() if is_faster(one.evaluation, by_id[0].evaluation))
    bred = children(store)
    assert len(bred) >= 3
    assert faster < min(one.id for one in bred), "something of the first population was faster"
    assert not any(0 in one.parents for one in bred)


@pytest.mark.parametrize("seed", range(20))
def test_a_third_of_the_children_are_crossings_of_two_different_strategies(store: SqliteStore, seed: int) -> None:
    run(store, info=replace(SMALL, seed=seed))
    by_id, bred = {one.id: one for one in store.individuals()}, children(store)
    crossed = [one for one in bred if one.origin == "cross"]
    assert len(crossed) >= len(bred) / 3
    for one in crossed:
        first, second = (by_id[parent].strategy.cards for parent in one.parents)
        assert first != second
        assert first
        assert second
    assert all(len(one.parents) == 1 for one in bred if one.origin == "mutate")


def test_children_know_all_results_but_those_under_way(store: SqliteStore) -> None:
    begun: list[tuple[int, int]] = []
    run(store, observer=lambda event: begun.append((event.begun, event.taken)) if event.kind == "begun" else None)
    # the plain kernel, then the first population: at most two under way, of which one is the newest
    assert all(begun_ - taken <= 2 for begun_, taken in begun)


@pytest.mark.parametrize("in_flight", [1, 2, 3, 8])
def test_nothing_is_bred_before_half_of_the_first_population_is_known(store: SqliteStore, in_flight: int) -> None:
    known: list[int] = []

    def observer(event: Progress) -> None:
        if event.kind == "begun" and event.begun == 6:  # plain, four first ones, and the first child
            known.append(event.taken)

    run(store, info=replace(SMALL, in_flight=in_flight), observer=observer)
    assert known
    assert known[0] >= 3


def test_half_the_population_is_under_way_by_default() -> None:
    asked = SearchOptions(task=TOY_TASK, device="virtual:a100-80gb")
    found = [replace(asked, population=size).info().in_flight for size in (1, 4, 8, 50)]
    assert found == [1, 2, 4, 4]
    models = replace(asked, models=(("all", "some/model"),))
    assert [replace(models, population=size).info().in_flight for size in (4, 8, 50)] == [2, 4, 12]
    assert replace(models, in_flight=20).info().in_flight == 20


def test_a_generation_can_be_waited_for(store: SqliteStore) -> None:
    """For the ablation: nobody of a generation is bred from another of it."""
    run(store, info=replace(SMALL, steady=False, in_flight=3))
    by_id = {one.id: one for one in store.individuals()}
    bred = children(store)
    assert bred
    assert all(by_id[parent].generation < one.generation for one in bred for parent in one.parents)


# --- what comes back -------------------------------------------------------------------------


def test_a_repaired_individual_is_superseded_and_no_failure(store: SqliteStore) -> None:
    class Repairing(Noting):
        def initialize(self, *arguments: Any) -> tuple[Strategy, ...]:
            return strategy(frozenset({"vector", "stage"})), strategy(frozenset({"tile"}))

    agents = Repairing(repairs=True)
    result = run(store, agents)
    by_id = {one.id: one for one in store.individuals()}
    failed, repair = by_id[1], by_id[2]
    assert (failed.time_s, failed.superseded_by, repair.origin) == (None, repair.id, "revise")
    assert result.failures == sum(one.time_s is None and one.superseded_by is None for one in by_id.values())
    shown = {one.id for brief in agents.briefs.values() for one in brief.tried}
    assert not any(by_id[one].superseded_by for one in shown)


def test_relatives_that_did_not_pay_come_back_with_their_evaluations(tmp_path: Path) -> None:
    pairs: list[tuple[Individual, Brief]] = []
    for seed in range(4):
        agents, store = Noting(), create_store(tmp_path / str(seed))
        run(store, agents, info=replace(SMALL, generations=8, seed=seed))
        store.close()
        pairs += [(one, brief) for brief in agents.briefs.values() for one in brief.tried]
    assert any(one.time_s is None for one, _ in pairs), "some failed"
    assert any(one.time_s is not None for one, _ in pairs), "some were slower"
    for one, brief in pairs:
        ids = {parent.id for parent in brief.parents}
        assert one.id not in ids
        assert set(one.parents) & ids
        assert not any(is_faster(one.evaluation, parent.evaluation) for parent in brief.parents)


def slow_padding(task: Task, kernel: Kernel) -> Evaluation:
    """What is padded takes a tenth more than what it came from."""
    return evaluate_toy(task, kernel)


@pytest.mark.parametrize(("repair_slower", "asked"), [(1.0, True), (1.1, True), (1.5, False), (None, False)])
def test_slow_kernels_are_repaired_from_where_one_is_told(
    store: SqliteStore, repair_slower: float | None, asked: bool
) -> None:
    """`pad` makes a kernel 1.2 times slower."""
    slow: list[float] = []

    class Unpadding(ToyAgents):
        def initialize(self, *arguments: Any) -> tuple[Strategy, ...]:
            return (strategy(frozenset({"pad"})), strategy(frozenset({"tile"})))

        def revise(self, brief: Any, kernel: Kernel, strategy_: Strategy, evaluation: Evaluation) -> Revision | Failure:
            if evaluation.timing is None:
                return Failure("revise", "given-up", "not this one")
            slow.append(evaluation.timing.time_s / min(one.time_s for one in brief.parents))
            cards = strategy_.cards - {"pad"} | {"unroll"}
            return Revision(write(cards), strategy(cards))

    run(store, Unpadding(), info=replace(SMALL, repair_slower=repair_slower, generations=0))
    assert bool(slow) == asked
    if asked:
        assert slow == [pytest.approx(1.2)]
        padded, repair = list(store.individuals())[1:3]
        assert (padded.superseded_by, repair.origin) == (repair.id, "revise"), "slower, and a repair took its place"


def test_a_tie_is_not_repaired(store: SqliteStore) -> None:
    def nearly_flat(task: Task, kernel: Kernel) -> Evaluation:
        evaluation = evaluate_toy(task, kernel)
        if evaluation.timing is None:
            return evaluation
        slower = PLAIN_S * (1.0 + 0.0025 * len(kernel.source.split()))
        return replace(
            evaluation, timing=replace(evaluation.timing, time_s=slower if "moves: " in kernel.source else 1)
        )

    class Never(ToyAgents):
        def revise(self, brief: Any, kernel: Kernel, strategy_: Strategy, evaluation: Evaluation) -> Revision | Failure:
            assert evaluation.timing is None
            return super().revise(brief, kernel, strategy_, evaluation)

    result = run(store, Never(), nearly_flat)
    assert result.best.id == 0, "nobody is faster by more than a tie, and the plain kernel is the simplest"
    assert result.stopped in ("plateau", "generations")


# --- a kernel of the user's ------------------------------------------------------------------


def test_a_strategy_is_read_out_of_a_kernel_that_is_given(store: SqliteStore) -> None:
    given = write(frozenset({"tile", "pad"}))
    result = run(store, info=replace(SMALL, kernel=given))
    assert result.first.strategy.cards == {"tile", "pad"}
    assert result.first.origin == "plain"
    by_id = {one.id: one for one in store.individuals()}
    crossed = [one for one in children(store) if one.origin == "cross"]
    assert all(by_id[parent].strategy.moves for one in crossed for parent in one.parents)
    assert result.best.time_s is not None
    assert result.best.time_s < true_time_s(frozenset({"tile", "pad"}))


# --- islands ---------------------------------------------------------------------------------


def test_islands_breed_among_themselves_until_an_epoch_ends(store: SqliteStore) -> None:
    info = replace(TOY_INFO, population=12, generations=3, epochs=2, islands=2, in_flight=1, patience=99)
    run(store, info=info)
    by_id = {one.id: one for one in store.individuals()}
    island: dict[int, set[int]] = {0: {0, 1}}
    for one in list(by_id.values())[1:]:
        if one.origin == "initial" and one.generation == 0:
            island[one.id] = {one.id % 2}
    first_epoch = [one for one in children(store) if one.generation <= info.generations]
    assert len(first_epoch) > 4
    for one in first_epoch:
        shared = set.intersection(*(island.get(parent, {0, 1}) for parent in one.parents))
        assert shared, "both parents are of one island"
        island[one.id] = shared


def test_islands_are_deterministic_and_small_populations_have_one(tmp_path: Path) -> None:
    info = replace(TOY_INFO, population=9, islands=3, epochs=2)
    histories = []
    for number, threads in enumerate((ShuffledThreads(Random(1)), DaemonThreads(3))):
        store = create_store(tmp_path / str(number))
        run(store, info=info, threads=threads)
        threads.close()
        histories.append((list(store.individuals()), list(store.notes())))
        store.close()
    assert histories[0] == histories[1]
    assert any(" | " in text for kind, text in histories[0][1] if kind == "select")
    store = create_store(tmp_path / "small")
    run(store, info=replace(SMALL, islands=3))
    assert not any(" | " in text for kind, text in store.notes() if kind == "select")
    store.close()
