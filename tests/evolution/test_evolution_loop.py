from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from toy import (
    GAINS,
    PLAIN_S,
    TOY_INFO,
    ShuffledThreads,
    ToyAgents,
    best_time_s,
    evaluate_toy,
    read,
    run_toy,
    strategy,
    true_time_s,
    write,
)

from cupilot.contracts import Revision
from cupilot.errors import CupilotError, MachineError, ModelError
from cupilot.evolution.progress import Progress
from cupilot.evolution.store import SqliteStore, create_store, open_store
from cupilot.records import Evaluation, Failure, Individual, Kernel, Strategy, Task, Timing
from cupilot.threads import DaemonThreads


@pytest.mark.parametrize("seed", range(5))
def test_finds_the_best_combination(store: SqliteStore, seed: int) -> None:
    result = run_toy(store, info=replace(TOY_INFO, seed=seed, generations=10))
    assert result.first.time_s == PLAIN_S
    assert result.best.time_s == pytest.approx(best_time_s())
    assert read(result.best.kernel) == result.best.strategy.cards


def test_a_seed_gives_the_same_run_however_it_is_scheduled(tmp_path: Path) -> None:
    histories = []
    for number, threads in enumerate((ShuffledThreads(Random(1)), ShuffledThreads(Random(2)), DaemonThreads(3))):
        store = create_store(tmp_path / str(number))
        run_toy(store, ToyAgents(repairs=True), threads=threads)
        threads.close()
        histories.append((list(store.individuals()), list(store.notes())))
        store.close()
    assert histories[0] == histories[1] == histories[2]


def test_other_seeds_search_elsewhere(tmp_path: Path) -> None:
    orders = set()
    for seed in range(4):
        store = create_store(tmp_path / str(seed))
        run_toy(store, info=replace(TOY_INFO, seed=seed))
        orders.add(tuple(one.kernel.digest for one in store.individuals()))
        store.close()
    assert len(orders) == 4


def test_nothing_is_evaluated_twice(store: SqliteStore) -> None:
    calls: Counter[str] = Counter()

    def counting(task: Task, kernel: Kernel) -> Evaluation:
        calls[kernel.digest] += 1
        return evaluate_toy(task, kernel)

    result = run_toy(store, ToyAgents(repairs=True), counting)
    assert set(calls.values()) == {1}
    assert result.evaluations == len(calls)


def test_the_store_tells_the_whole_story(store: SqliteStore, tmp_path: Path) -> None:
    result = run_toy(store, folder=tmp_path / "run")
    individuals = list(store.individuals())
    assert store.info() == TOY_INFO
    assert store.result() == result
    assert [one.id for one in individuals] == list(range(result.evaluations))
    assert individuals[0].origin == "plain"
    assert {one.origin for one in individuals} >= {"plain", "initial", "cross", "mutate"}
    for one in individuals[1:]:
        assert one.parents
        assert max(one.parents) < one.id
        assert one.reason
    kinds = {kind for kind, _ in store.notes()}
    assert kinds >= {"guidance", "select", "best", "stop"}
    for kind, text in store.notes():
        if kind == "select":
            chosen = re.findall(r"\d+", text.partition(":")[2].partition(";")[0])
            assert len(chosen) == len(set(chosen)), "nobody is chosen twice"


def test_failures_are_kept_and_never_win(store: SqliteStore) -> None:
    result = run_toy(store)
    failed = [one for one in store.individuals() if not one.evaluation.correct]
    assert result.failures == len(failed) > 0
    assert all(one.strategy.cards >= {"vector", "stage"} for one in failed)
    parents = {parent for one in store.individuals() for parent in one.parents}
    assert not parents & {one.id for one in failed}, "a failed individual does not breed"


class FirstFails(ToyAgents):
    """Starts from a strategy that fails; `revise` takes out what it is told to, or makes it no better."""

    def __init__(self, drop: str = "") -> None:
        super().__init__()
        self.drop = drop

    def initialize(self, *arguments: Any) -> tuple[Strategy, ...]:
        return strategy(frozenset({"vector", "stage", "pad"})), strategy(frozenset({"tile"}))

    def revise(self, brief: Any, kernel: Kernel, strategy_: Strategy, evaluation: Evaluation) -> Revision | Failure:
        if evaluation.correct:
            return super().revise(brief, kernel, strategy_, evaluation)
        cards = read(kernel)
        cards = cards - {self.drop} if self.drop else cards | {min(GAINS.keys() - cards)}
        return Revision(write(cards), strategy(cards))


def test_a_repair_is_an_individual_of_its_own(store: SqliteStore) -> None:
    run_toy(store, FirstFails(drop="vector"))
    failed, repaired = list(store.individuals())[1:3]
    assert not failed.evaluation.correct
    assert repaired.evaluation.correct
    assert (repaired.origin, repaired.parents) == ("revise", (failed.id,))
    assert repaired.strategy.cards == {"stage", "pad"}, "the strategy is aligned to the repaired code"


def test_the_revisor_gets_one_try(store: SqliteStore) -> None:
    run_toy(store, FirstFails())
    by_id = {one.id: one for one in store.individuals()}
    revised = [one for one in by_id.values() if one.origin == "revise"]
    assert revised
    assert not any(one.evaluation.correct for one in revised)
    assert all(by_id[one.parents[0]].origin != "revise" for one in revised)


def test_the_revisor_is_given_regressions(store: SqliteStore) -> None:
    asked: list[tuple[float, float]] = []

    class Padding(ToyAgents):
        """Its kernels are twice as slow as their parents until they are revised."""

        def revise(self, brief: Any, kernel: Kernel, strategy_: Strategy, evaluation: Evaluation) -> Revision | Failure:
            assert evaluation.timing is not None
            asked.append((evaluation.timing.time_s, min(one.time_s for one in brief.parents)))
            cards = frozenset({"tile", "unroll", "swizzle"})
            return Revision(write(cards), strategy(cards))

    def slow_padding(task: Task, kernel: Kernel) -> Evaluation:
        evaluation = evaluate_toy(task, kernel)
        if evaluation.timing is None or "pad" not in read(kernel):
            return evaluation
        return replace(evaluation, timing=replace(evaluation.timing, time_s=2 * PLAIN_S))

    run_toy(store, Padding(), slow_padding, info=replace(TOY_INFO, generations=1))
    revised = [one for one in store.individuals() if "regression" in one.reason]
    assert asked
    assert all(slower > 1.5 * parent for slower, parent in asked)
    assert revised
    assert all(one.origin == "revise" for one in revised)


def test_a_strategy_without_a_kernel_is_kept_but_not_evaluated(store: SqliteStore) -> None:
    result = run_toy(store, ToyAgents(untranslatable=frozenset({"tile"})))
    rejected = [one for one in store.individuals() if "tile" in one.strategy.cards]
    assert rejected
    assert all(one.evaluation.failure == Failure("build", "unsupported", "no recipe for this move") for one in rejected)
    assert result.evaluations == len(list(store.individuals())) - len(rejected)


def test_a_plain_kernel_that_fails_is_an_error_with_its_reason(store: SqliteStore) -> None:
    class Wrong(ToyAgents):
        def generate(self, brief: Any) -> Kernel:
            return write(frozenset({"vector", "stage"}))

    with pytest.raises(CupilotError, match=r"plain kernel for relu failed.*wrong-result.*do not go together"):
        run_toy(store, Wrong())
    assert [one.evaluation.correct for one in store.individuals()] == [False]


def test_a_spare_kernel_takes_the_place_of_a_plain_one_that_fails(store: SqliteStore) -> None:
    class Wrong(ToyAgents):
        def generate(self, brief: Any) -> Kernel:
            return write(frozenset({"vector", "stage"}))

    class Silent(ToyAgents):
        def generate(self, brief: Any) -> Kernel:
            raise ModelError("no answer")

    result = run_toy(store, Wrong(), fallback_kernel=lambda task: write(frozenset()))
    assert (result.first.id, result.first.origin, result.first.time_s) == (1, "plain", PLAIN_S)
    assert result.best.time_s is not None
    assert result.best.time_s < PLAIN_S
    with pytest.raises(ModelError):
        run_toy(store, Silent())


def test_stops_on_a_plateau(store: SqliteStore) -> None:
    def flat(task: Task, kernel: Kernel) -> Evaluation:
        return Evaluation(kernel.digest, task.name, "sample", timing=Timing(PLAIN_S, "modelled", "sample"))

    seen: list[Progress] = []
    result = run_toy(store, evaluator=flat, info=replace(TOY_INFO, patience=2), observer=seen.append)
    assert result.stopped == "plateau"
    assert result.best.id == 0, "of equal kernels the first is kept"
    assert [one.generation for one in seen if one.kind == "generation"] == [0, 1]


def test_whoever_looks_on_is_told_of_every_candidate(store: SqliteStore) -> None:
    seen: list[Progress] = []
    result = run_toy(store, observer=seen.append)
    added = [one.individual for one in seen if one.kind == "individual"]
    assert added == list(store.individuals())
    # the plain kernel is begun before there is anything to tell
    assert sum(one.kind == "begun" for one in seen) == seen[-1].begun - 1
    assert seen[-1].begun == seen[-1].taken
    for one in seen:
        assert one.taken <= one.begun <= one.taken + TOY_INFO.in_flight
        times = [each.time_s or 0.0 for each in one.population]
        assert times == sorted(times)
        assert len(times) <= TOY_INFO.population
    assert seen[-1].population[0] == result.best


def test_stops_near_the_limit(store: SqliteStore) -> None:
    target = frozenset({"tile", "stage"})
    result = run_toy(store, limit_s=true_time_s(target) / 1.04)
    assert result.stopped == "limit"
    assert result.best.time_s <= true_time_s(target)
    assert result.evaluations < len(list(range(6 + 6 * 6)))


def test_a_plain_kernel_at_the_limit_ends_the_run(store: SqliteStore) -> None:
    assert run_toy(store, limit_s=PLAIN_S).evaluations == 1


def test_stops_when_there_is_nothing_new(store: SqliteStore) -> None:
    class Stuck(ToyAgents):
        def cross(self, *arguments: Any) -> Strategy:
            return Strategy()

    result = run_toy(store, Stuck())
    assert result.stopped == "exhausted"
    assert result.evaluations == 7


def test_times_of_different_kinds_are_never_ranked_together(store: SqliteStore) -> None:
    def mixed(task: Task, kernel: Kernel) -> Evaluation:
        evaluation = evaluate_toy(task, kernel)
        if "tile" in kernel.source and evaluation.timing is not None:
            return replace(evaluation, timing=replace(evaluation.timing, source="measured"))
        return evaluation

    result = run_toy(store, evaluator=mixed)
    assert result.best.evaluation.timing is not None
    assert result.best.evaluation.timing.source == "modelled"
    assert "not-ranked" in {kind for kind, _ in store.notes()}
    parents = {parent for one in store.individuals() for parent in one.parents}
    by_id: dict[int, Individual] = {one.id: one for one in store.individuals()}
    assert all("tile" not in by_id[parent].strategy.cards for parent in parents)


def test_guidance_follows_the_best(store: SqliteStore) -> None:
    asked: list[Evaluation] = []

    class Watching(ToyAgents):
        def foresee(self, task: Task, evaluation: Evaluation, spec: Any, kernel: Kernel | None = None) -> Any:
            asked.append(evaluation)
            return super().foresee(task, evaluation, spec)

    run_toy(store, Watching())
    times = [one.timing.time_s for one in asked if one.timing is not None]
    assert times[0] == PLAIN_S
    assert times == sorted(times, reverse=True)
    assert times[-1] < PLAIN_S


# --- interruptions ---------------------------------------------------------------------------


def interrupt_after(count: int) -> Callable[[Task, Kernel], Evaluation]:
    calls = iter(range(count))

    def evaluator(task: Task, kernel: Kernel) -> Evaluation:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return evaluate_toy(task, kernel)

    return evaluator


class DirectThreads(ShuffledThreads):
    """Raises in the caller, as Ctrl-C does, when the evaluator raises."""

    def __init__(self) -> None:
        super().__init__(Random(0))

    def flush(self) -> None:
        future, function, arguments = self._waiting.pop(0)
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)
            raise


@pytest.mark.parametrize("count", [1, 3, 7, 9, 12])
def test_an_interrupted_run_leaves_the_best_so_far(store: SqliteStore, tmp_path: Path, count: int) -> None:
    folder = tmp_path / "run"
    result = run_toy(store, evaluator=interrupt_after(count), threads=DirectThreads(), folder=folder)
    assert result.stopped == "interrupted"
    individuals = list(store.individuals())
    assert len(individuals) == result.evaluations == count
    best = min((one for one in individuals if one.time_s is not None), key=lambda one: (one.time_s, one.id))
    assert result.best == best
    assert (folder / "best.cu").read_text() == best.kernel.source
    report = json.loads((folder / "result.json").read_text())
    assert report["stopped"] == "interrupted"
    assert report["best"]["kernel"] == best.kernel.digest
    assert store.result() == result


def test_an_interrupt_before_the_first_result_is_the_callers(store: SqliteStore) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_toy(store, evaluator=interrupt_after(0), threads=DirectThreads())
    assert list(store.individuals()) == []


def test_candidates_in_flight_are_kept(store: SqliteStore) -> None:
    """Ctrl-C while a generation is running: it does not reach compilers and workers, so failures count too."""

    class Three(ToyAgents):
        def initialize(self, *arguments: Any) -> tuple[Strategy, ...]:
            return tuple(strategy(frozenset(cards)) for cards in (["pad"], ["vector", "stage"], ["tile"]))

    def on_event(progress: Progress) -> None:
        if progress.kind == "individual" and progress.result.evaluations == 2:
            raise KeyboardInterrupt

    result = run_toy(store, Three(), observer=on_event, info=replace(TOY_INFO, generations=0))
    assert result.stopped == "interrupted"
    assert [sorted(one.strategy.cards) for one in store.individuals()] == [[], ["pad"], ["stage", "vector"], ["tile"]]
    assert (result.evaluations, result.failures, result.best.strategy.cards) == (4, 1, {"tile"})


def test_a_second_ctrl_c_gives_up_what_is_in_flight(store: SqliteStore) -> None:
    waits: list[str] = []

    class Endless(Future[Any]):
        """Is running and never done; whoever waits for it is interrupted."""

        def exception(self, timeout: float | None = None) -> BaseException | None:
            assert timeout is not None, "a signal may come just before the wait"
            waits.append("interrupted")
            raise KeyboardInterrupt

    class Stuck(ShuffledThreads):
        def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
            if arguments[0].origin == "plain":
                return super().submit(function, *arguments)
            future = Endless()
            future.set_running_or_notify_cancel()
            return future

    result = run_toy(store, threads=Stuck(Random(0)))
    assert waits == ["interrupted"] * 2, "when it was waited for, and when the rest was"
    assert result.stopped == "interrupted"
    assert ("interrupted", "candidates in flight were given up") in list(store.notes())


def test_an_error_of_the_machine_ends_the_run_and_cancels_the_rest(store: SqliteStore, tmp_path: Path) -> None:
    evaluated: list[str] = []

    def failing(task: Task, kernel: Kernel) -> Evaluation:
        evaluated.append(kernel.digest)
        if len(evaluated) == 3:
            raise MachineError("the disk is full")
        return evaluate_toy(task, kernel)

    with pytest.raises(MachineError, match="disk is full"):
        run_toy(store, evaluator=failing, threads=DirectThreads(), folder=tmp_path / "run")
    assert len(evaluated) == 3
    assert (tmp_path / "run" / "best.cu").exists()


# --- what is on disk -------------------------------------------------------------------------


def test_the_best_is_on_disk_whenever_it_improves(store: SqliteStore, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    seen = 0

    def on_event(progress: Progress) -> None:
        nonlocal seen
        seen += 1
        assert (folder / "best.cu").read_text() == progress.result.best.kernel.source
        report = json.loads((folder / "result.json").read_text())
        assert report["best"]["timing"]["time_s"] == progress.result.best.time_s
        with_reader = open_store(folder)
        assert len(list(with_reader.individuals())) == progress.result.evaluations
        with_reader.close()

    result = run_toy(store, folder=folder, observer=on_event)
    assert seen > result.evaluations
    assert json.loads((folder / "result.json").read_text())["stopped"] == result.stopped
    assert {path.name for path in folder.iterdir() if not path.name.startswith("run.sqlite")} == {
        "best.cu",
        "result.json",
    }
