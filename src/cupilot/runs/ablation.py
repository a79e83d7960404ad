"""What each part of the method is worth: the same searches with one part taken out.

For each task and seed the full system and its variants search with the same number of candidates.
What counts is how many candidates a variant needs to reach 95 % of the gain (plain time over best time)
that the full system has at its end, and the time after the first epoch and after the second.  A pool that knows a
similar task often holds the answer, and so do the starting points that a recipe knows; then nothing else matters.  So
guidance and crossover are taken out with both, without the pool, and from nothing, where the first strategies are
drawn; each variant is compared with the one that differs in this part only.  Kernels are evaluated once per task
whatever variants ask for them; every candidate of a search counts all the same.
"""

from __future__ import annotations

import math
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean

from cupilot.contracts import Brief, Executor
from cupilot.evolution.store import create_store
from cupilot.expert import Expert
from cupilot.expert.recipe import load_recipes
from cupilot.records import Evaluation, EvaluationRequest, Individual, Move, PoolRecord, RunInfo, Strategy, Task
from cupilot.runs.session import Session, search

SHARE = 0.95
EPOCHS = 2


@dataclass(frozen=True)
class Variant:
    """A system with parts taken out, and the one it is compared with."""

    name: str
    against: str
    pool: bool = True
    starts: bool = True
    guided: bool = True
    code_level: bool = False


VARIANTS = (
    Variant("full", "full"),
    Variant("no pool", "full", pool=False),
    Variant("no roofline", "full", guided=False),
    Variant("code-level crossover", "full", code_level=True),
    Variant("no pool, no roofline", "no pool", pool=False, guided=False),
    Variant("no pool, code-level crossover", "no pool", pool=False, code_level=True),
    Variant("from nothing", "full", pool=False, starts=False),
    Variant("from nothing, no roofline", "from nothing", pool=False, starts=False, guided=False),
    Variant("from nothing, code-level crossover", "from nothing", pool=False, starts=False, code_level=True),
)

Recall = Callable[[Task, Evaluation], tuple[PoolRecord, ...]]


class CodeLevel(Expert):
    """Crossover without strategies: each move and each parameter comes from either parent by chance.

    What needs what is not known at this level, so children may be illegal; they are failures.
    """

    def cross(self, brief: Brief, rng: Random) -> Strategy:
        parents = [parent.strategy for parent in brief.parents]
        if len(parents) < 2:
            return super().cross(replace(brief, guidance=None), rng)
        moves = []
        for card in sorted(parents[0].cards | parents[1].cards):
            choices = [parent.move(card) for parent in parents]
            if rng.random() < (1.0 if None not in choices else 0.5):
                held = [move for move in choices if move is not None]
                values = {name: value for move in held for name, value in move.parameters}
                picked = {name: dict(rng.choice(held).parameters).get(name, values[name]) for name in sorted(values)}
                moves.append(Move.of(card, "by chance", **picked))
        return Strategy(tuple(moves))


@dataclass(frozen=True)
class Trace:
    """One search: the best time after each candidate, the plain kernel's first."""

    task: str
    variant: str
    seed: int
    best_s: tuple[float, ...]
    first_epoch: int

    def needed(self, goal_s: float) -> int:
        """Candidates until a time is reached; one more than there were when it is not."""
        return next((n for n, time_s in enumerate(self.best_s) if time_s <= goal_s), len(self.best_s))


@dataclass(frozen=True)
class Row:
    """One variant over all tasks and seeds; ratios are to the variant it is compared with."""

    variant: str
    against: str
    needed: float
    needed_ratio: float
    one_epoch_ratio: float
    two_epochs_ratio: float
    reached: float


def run_ablation(
    tasks: Sequence[Task],
    session: Session,
    recall: Recall,
    seeds: Iterable[int],
    info: RunInfo,
    on_trace: Callable[[Trace], None] = lambda trace: None,
) -> tuple[Trace, ...]:
    """All searches, task by task; deterministic for the same seeds and pool."""
    traces = []
    for task in tasks:
        shared = replace(session, executor=SharedEvaluations(session.executor, info.seed))
        for seed in seeds:
            for variant in VARIANTS:
                asked = replace(info, task=task.name, task_source=task.source, seed=seed)
                trace = search_variant(task, shared, recall, asked, variant)
                traces.append(trace)
                on_trace(trace)
    return tuple(traces)


def agents_of(variant: Variant) -> Expert:
    recipes = load_recipes() if variant.starts else [replace(recipe, starts=()) for recipe in load_recipes()]
    return (CodeLevel if variant.code_level else Expert)(recipes=recipes)


class SharedEvaluations:
    """An executor that evaluates a kernel once for all searches of a task, whatever their seeds."""

    def __init__(self, executor: Executor, seed: int) -> None:
        self._executor, self._seed = executor, seed
        self._futures: dict[str, Future[Evaluation]] = {}
        self._lock = threading.Lock()

    @property
    def slots(self) -> int:
        return self._executor.slots

    @property
    def busy(self) -> bool:
        return self._executor.busy

    def submit(self, request: EvaluationRequest) -> Future[Evaluation]:
        digest = request.kernel.digest
        with self._lock:
            if digest not in self._futures or self._futures[digest].cancelled():
                self._futures[digest] = self._executor.submit(replace(request, seed=self._seed))
            return self._futures[digest]

    def close(self, *, cancel: bool = False) -> None:
        self._executor.close(cancel=cancel)

    def abandon(self) -> bool:
        return self._executor.abandon()


def search_variant(task: Task, session: Session, recall: Recall, info: RunInfo, variant: Variant) -> Trace:
    """One search by one variant."""
    info = replace(info, guided=variant.guided, patience=99, epochs=EPOCHS)
    asked = recall if variant.pool else lambda task, evaluation: ()
    with tempfile.TemporaryDirectory() as folder, closing(create_store(Path(folder) / "run")) as store:
        search(session, task, info, store, agents_of(variant), recall=asked, limited=False)
        individuals = list(store.individuals())
    first = sum(1 for one in individuals if one.generation <= info.generations)
    return Trace(task.name, variant.name, info.seed, best_so_far(individuals), first)


def best_so_far(individuals: Sequence[Individual]) -> tuple[float, ...]:
    best, times = math.inf, []
    for one in individuals:
        best = min(best, one.time_s if one.time_s is not None else math.inf)
        times.append(best)
    return tuple(times)


def summarize(traces: Sequence[Trace]) -> tuple[Row, ...]:
    """Each variant against another of the same task and seed; the goal is the full system's."""
    found = {(t.variant, t.task, t.seed): t for t in traces}
    rows = []
    for variant in VARIANTS:
        needed, ratios, first, final, reached = [], [], [], [], []
        for trace in (t for t in traces if t.variant == variant.name):
            base = found[variant.against, trace.task, trace.seed]
            goal_s = found["full", trace.task, trace.seed].best_s[-1] / SHARE
            needed.append(trace.needed(goal_s))
            ratios.append(max(trace.needed(goal_s), 1) / max(base.needed(goal_s), 1))
            first.append(trace.best_s[trace.first_epoch - 1] / base.best_s[base.first_epoch - 1])
            final.append(trace.best_s[-1] / base.best_s[-1])
            reached.append(trace.best_s[-1] <= goal_s)
        share = sum(reached) / len(reached)
        rows.append(Row(variant.name, variant.against, fmean(needed), _mean(ratios), _mean(first), _mean(final), share))
    return tuple(rows)


def _mean(ratios: Sequence[float]) -> float:
    """Geometric."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
