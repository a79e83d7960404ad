"""A search problem with a known answer: cards that multiply the time by known factors."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any

from cupilot.contracts import Brief, Revision
from cupilot.evolution.loop import Evolution
from cupilot.evolution.store import SqliteStore
from cupilot.gpu.spec import GpuSpec
from cupilot.records import (
    Evaluation,
    EvaluationRequest,
    Failure,
    Guidance,
    Kernel,
    Move,
    RunResult,
    Strategy,
    Task,
    Timing,
)
from cupilot.testing.samples import INFO, SPEC, TASK

GAINS = {"tile": 0.4, "vector": 0.7, "unroll": 0.9, "swizzle": 0.8, "stage": 0.6, "pad": 1.2}
FORBIDDEN = frozenset({"vector", "stage"})
PLAIN_S = 1e-3
TOY_TASK = TASK
TOY_INFO = replace(INFO, population=6, generations=6)


def true_time_s(cards: frozenset[str]) -> float:
    time_s = PLAIN_S
    for card in sorted(cards):
        time_s *= GAINS[card]
    return time_s


def allowed(cards: frozenset[str]) -> bool:
    return not cards >= FORBIDDEN


def best_time_s() -> float:
    subsets = [frozenset(c) for size in range(len(GAINS) + 1) for c in combinations(GAINS, size)]
    return min(true_time_s(cards) for cards in subsets if allowed(cards))


class ToyAgents:
    """Kernels are texts that name their moves; `revise` drops the offending one when it may."""

    name = "toy"

    def __init__(self, *, repairs: bool = False, untranslatable: frozenset[str] = frozenset()) -> None:
        self.repairs = repairs
        self.untranslatable = untranslatable

    def generate(self, brief: Brief) -> Kernel:
        return write(frozenset())

    def foresee(self, task: Task, evaluation: Evaluation, spec: GpuSpec, kernel: Kernel | None = None) -> Guidance:
        return Guidance("memory-bound", "dram", 2.0, "memory-bound; aim for fewer bytes")

    def initialize(self, brief: Brief, count: int, rng: Random) -> tuple[Strategy, ...]:
        cards = rng.sample(sorted(GAINS), min(count, len(GAINS)))
        return tuple(strategy(frozenset({card})) for card in cards)

    def read(self, brief: Brief, kernel: Kernel, evaluation: Evaluation) -> Strategy:
        return strategy(read(kernel))

    def cross(self, brief: Brief, rng: Random) -> Strategy:
        cards = brief.parents[0].strategy.cards
        if len(brief.parents) == 2:
            union = cards | brief.parents[1].strategy.cards
            return strategy(union if allowed(union) else union - {rng.choice(sorted(FORBIDDEN))})
        return strategy(cards ^ {rng.choice(sorted(GAINS))})

    def translate(self, brief: Brief, strategy: Strategy) -> Kernel | Failure:
        if strategy.cards & self.untranslatable:
            return Failure("build", "unsupported", "no recipe for this move")
        return write(strategy.cards)

    def align(self, brief: Brief, kernel: Kernel, strategy_: Strategy, evaluation: Evaluation) -> Strategy:
        return strategy(read(kernel))

    def revise(self, brief: Brief, kernel: Kernel, strategy_: Strategy, evaluation: Evaluation) -> Revision | Failure:
        if self.repairs and not evaluation.correct:
            cards = strategy_.cards - {"vector"}
            return Revision(write(cards), strategy(cards))
        return Failure("revise", "given-up", "nothing to repair")


def strategy(cards: frozenset[str]) -> Strategy:
    return Strategy(tuple(Move.of(card) for card in sorted(cards)))


def write(cards: frozenset[str]) -> Kernel:
    return Kernel(f"// moves: {' '.join(sorted(cards))}\n")


def read(kernel: Kernel) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", kernel.source.removeprefix("// moves:")))


def evaluate_toy(task: Task, kernel: Kernel) -> Evaluation:
    cards = read(kernel)
    verdict = Evaluation(kernel.digest, task.name, "sample", baseline=Timing(PLAIN_S, "modelled", "sample"))
    if not allowed(cards):
        return replace(verdict, failure=Failure("verify", "wrong-result", "vector and stage do not go together"))
    return replace(verdict, timing=Timing(true_time_s(cards), "modelled", "sample", "dram"))


class InlineExecutor:
    """Evaluates when a request is submitted."""

    slots = 4
    busy = False

    def __init__(self, evaluate: Callable[[Task, Kernel], Evaluation] = evaluate_toy) -> None:
        self._evaluate = evaluate

    def submit(self, request: EvaluationRequest) -> Future[Evaluation]:
        future: Future[Evaluation] = Future()
        try:
            future.set_result(self._evaluate(TOY_TASK, request.kernel))
        except BaseException as error:
            future.set_exception(error)
        return future

    def close(self, *, cancel: bool = False) -> None:
        pass

    def abandon(self) -> bool:
        return False


class ShuffledThreads:
    """Runs what was submitted when the first result is asked for, in an order of its own."""

    count = 4

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._waiting: list[tuple[_Lazy, Callable[..., Any], tuple[Any, ...]]] = []

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future = _Lazy(self)
        self._waiting.append((future, function, arguments))
        return future

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._rng.shuffle(waiting)
        for future, function, arguments in waiting:
            if future.set_running_or_notify_cancel():
                future.set_result(function(*arguments))

    def close(self, *, cancel: bool = False) -> None:
        self.flush()


class _Lazy(Future[Any]):
    def __init__(self, threads: ShuffledThreads) -> None:
        super().__init__()
        self._threads = threads

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self._threads.flush()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.done():
            self._threads.flush()
        return super().exception(timeout)


def run_toy(store: SqliteStore, agents: Any = None, evaluator: Any = evaluate_toy, **options: Any) -> RunResult:
    """A search for the best combination; ``options`` are those of `Evolution`."""
    info = options.pop("info", TOY_INFO)
    parts = {"threads": ShuffledThreads(Random(7)), "executor": InlineExecutor(evaluator), **options}
    return Evolution(task=TOY_TASK, info=info, agents=agents or ToyAgents(), store=store, spec=SPEC, **parts).run()
