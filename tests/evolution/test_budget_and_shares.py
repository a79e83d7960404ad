"""Budgets are checked before each spend; shares follow what pays; nothing is evaluated twice."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from toy import PLAIN_S, TOY_INFO, TOY_TASK, InlineExecutor, ShuffledThreads, ToyAgents, evaluate_toy, strategy, write

from cupilot.contracts import Brief
from cupilot.evolution.budget import Spending
from cupilot.evolution.evaluation_cache import EvaluationCache
from cupilot.evolution.loop import Evolution
from cupilot.evolution.operators import FLOOR, Shares
from cupilot.evolution.store import SqliteStore, create_store
from cupilot.llm import OverBudget
from cupilot.records import Budget, Evaluation, EvaluationRequest, Kernel, RunResult, Strategy, Task, TaskSource
from cupilot.testing.samples import SPEC


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(evaluations=3), "3 evaluations"),
        (Budget(wall_s=10.0), "10 s of wall time"),
        (Budget(device_s=2.0), "2 s on the device"),
        (Budget(tokens=500), "500 tokens"),
        (Budget(usd=0.25), "0.25 USD"),
    ],
)
def test_each_cap_ends_the_spending(budget: Budget, words: str) -> None:
    now = [0.0]
    spent = [0, 0.0]
    spending = Spending(budget, lambda: now[0], lambda: (int(spent[0]), spent[1]))
    assert spending.exhausted() == ""
    assert spending.left() == words
    for _ in range(3):
        spending.reserve(1)
    now[0], spent[:] = 10.0, [500, 0.25]
    spending.add_device_s(2.0)
    assert spending.exhausted() == words


def test_no_cap_never_ends() -> None:
    spending = Spending(Budget(), lambda: 0.0)
    for _ in range(1000):
        spending.reserve(1)
    assert spending.exhausted() == ""
    assert spending.left() == ""


def search(store: SqliteStore, agents: ToyAgents, evaluator: Any, budget: Budget, **options: Any) -> RunResult:
    return Evolution(
        task=TOY_TASK, info=replace(TOY_INFO, budget=budget), agents=agents, executor=InlineExecutor(evaluator),
        threads=ShuffledThreads(Random(1)), store=store, spec=SPEC, spending=Spending(budget, lambda: 0.0), **options,
    ).run()  # fmt: skip


@pytest.mark.parametrize("cap", [1, 5, 9])
def test_a_run_stops_at_its_evaluations(tmp_path: Path, cap: int) -> None:
    budget = Budget(evaluations=cap)
    with closing(create_store(tmp_path / "run")) as store:
        result = search(store, ToyAgents(), evaluate_toy, budget)
        notes = dict(store.notes())
    assert result.stopped == "budget"
    assert result.evaluations <= cap
    assert notes["budget"] == f"{cap} evaluations are spent"


class FirstFails(ToyAgents):
    def initialize(self, brief: Brief, count: int, rng: Random) -> tuple[Strategy, ...]:
        return (strategy(frozenset({"vector", "stage"})), *super().initialize(brief, count - 1, rng))


@pytest.mark.parametrize("cap", [1, 2, 3, 5, 8, 13])
def test_repairs_count_as_evaluations_and_nothing_is_left_unused(tmp_path: Path, cap: int) -> None:
    budget = Budget(evaluations=cap)
    made: list[str] = []

    def counting(task: Task, kernel: Kernel) -> Evaluation:
        made.append(kernel.digest)
        return evaluate_toy(task, kernel)

    with closing(create_store(tmp_path / "run")) as store:
        result = search(store, FirstFails(repairs=True), counting, budget)
        origins = {one.origin for one in store.individuals()}
    assert (result.stopped, result.evaluations, len(made)) == ("budget", cap, cap)
    assert ("revise" in origins) == (cap > 2), "a repair is tried when its evaluation is left"


def test_what_is_reserved_stays_below_the_cap() -> None:
    spending = Spending(Budget(evaluations=3), lambda: 0.0)
    assert (spending.reserve(2), spending.reserve(2)) == (2, 1)
    assert spending.exhausted() == "3 evaluations"
    spending.give_back(1)
    assert (spending.exhausted(), spending.left()) == ("", "1 evaluations")


class Penniless(ToyAgents):
    """Has money for the first strategies and some of the children."""

    def __init__(self, children: int) -> None:
        super().__init__()
        self.left = children

    def cross(self, brief: Brief, rng: Random) -> Strategy:
        if self.left == 0:
            raise OverBudget("500 tokens are spent")
        self.left -= 1
        return super().cross(brief, rng)


def test_a_call_that_may_not_be_made_ends_the_run_with_what_it_has(tmp_path: Path) -> None:
    with closing(create_store(tmp_path / "run")) as store:
        result = search(store, Penniless(3), evaluate_toy, Budget(), folder=tmp_path / "run")
        notes = dict(store.notes())
    assert (result.stopped, notes["budget"]) == ("budget", "500 tokens are spent")
    assert result.best.time_s is not None
    assert result.best.time_s < PLAIN_S
    assert (tmp_path / "run" / "best.cu").read_text() == result.best.kernel.source


def test_shares_follow_what_pays_and_never_vanish() -> None:
    shares = Shares()
    assert shares.share("cross") == shares.share("mutate") == pytest.approx(0.5)
    for _ in range(200):
        shares.begin("cross")
        shares.begin("mutate")
        shares.record("cross", won=True)
        shares.record("mutate", won=False)
    assert shares.share("cross") > 0.75
    assert FLOOR <= shares.share("mutate") < 0.25
    assert shares.share("cross") + shares.share("mutate") == pytest.approx(1.0)
    rng = Random(3)
    drawn = [shares.draw(rng) for _ in range(500)]
    assert drawn.count("cross") / 500 == pytest.approx(shares.share("cross"), abs=0.06)


def test_a_third_is_crossed_whatever_pays() -> None:
    shares, rng = Shares(), Random(5)
    for number in range(1, 301):
        drawn = shares.draw(rng)
        shares.begin(drawn)
        shares.record(drawn, won=drawn == "mutate")
        assert shares.begun["cross"] >= number / 3
    assert shares.begun["cross"] < 130, "no more than that"


def test_a_crossing_that_became_a_mutation_is_made_up_for() -> None:
    shares, rng = Shares(), Random(5)
    for _ in range(30):
        drawn = shares.draw(rng)
        shares.begin(drawn)
        shares.record("mutate", won=True, begun=drawn)
        assert shares.begun["cross"] == 0
        assert shares.draw(rng) == "cross"


def test_two_threads_share_one_evaluation() -> None:
    calls: list[str] = []
    gate = threading.Barrier(2)

    def evaluator(task: Task, kernel: Kernel) -> Evaluation:
        calls.append(kernel.digest)
        return evaluate_toy(task, kernel)

    def request(kernel: Kernel) -> EvaluationRequest:
        return EvaluationRequest(task=TaskSource.of(TOY_TASK), kernel=kernel, device="sample")

    cache = EvaluationCache(InlineExecutor(evaluator), request, Spending(Budget(), lambda: 0.0))

    def ask(_: int) -> Evaluation:
        gate.wait()
        return cache(write(frozenset({"tile"})))

    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(ask, range(2))
    assert one is other
    assert len(calls) == 1
