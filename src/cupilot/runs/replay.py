"""Searches replayed on a table of evaluated strategies: the real loop and the expert's real choices, in milliseconds.

What differs from a search: kernels are not written, and times are looked up.  The expert keeps to the frame that the
table holds whole, so that every legal strategy it can think of is in the table, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from cupilot import __version__
from cupilot.contracts import Brief, Revision
from cupilot.errors import DataError
from cupilot.evolution.loop import Evolution
from cupilot.evolution.result import moves_text
from cupilot.expert import crossover
from cupilot.expert.space import Space
from cupilot.gpu.spec import GpuSpec
from cupilot.records import (
    Evaluation,
    EvaluationRequest,
    Failure,
    Guidance,
    Individual,
    Kernel,
    Move,
    PoolRecord,
    RunInfo,
    RunResult,
    Strategy,
    Task,
    Timing,
)
from cupilot.runs.strategy_table import TableEntry


@dataclass(frozen=True)
class Table:
    """A task, the strategies of its frame with and without starting points, their times, and what the pool knows."""

    task: Task
    spec: GpuSpec
    device: str
    known: Space
    unknown: Space
    entries: dict[str, TableEntry]
    similar: tuple[PoolRecord, ...] = ()

    @property
    def best_s(self) -> float:
        return min(entry.time_s for entry in self.entries.values() if entry.time_s is not None)


@dataclass(frozen=True)
class Method:
    """The method with parts changed or taken out.

    ``starts`` are those that recipes know; ``crossing`` is ``strategies``, ``code`` or empty (a parent is mutated
    instead).  ``loss`` is the probability that a move is lost when a strategy is written as code.
    """

    guided: bool = True
    pooled: bool = False
    starts: bool = False
    crossing: str = "strategies"
    steady: bool = True
    tie: float = 0.02
    population: int = 8
    in_flight: int = 4
    islands: int = 1
    loss: float = 0.0


class FastSpace(Space):
    """Remembers what was repaired and checked; reasons of moves are those of the first time."""

    def __init__(self, space: Space) -> None:
        super().__init__(space.problem, space.deck, space.capability, space.only)
        object.__setattr__(self, "_memory", {})

    def _once(self, what: str, strategy: Strategy, more: object, make: Callable[[], Any]) -> Any:
        memory: dict[object, Any] = self.__dict__["_memory"]
        key = what, tuple((move.card, move.parameters) for move in strategy.moves), more
        if key not in memory:
            memory[key] = make()
        return memory[key]

    def repair(self, strategy: Strategy, keep: frozenset[str] = frozenset()) -> Strategy:
        repair = super().repair
        return self._once("repair", strategy, keep, lambda: repair(strategy, keep))  # type: ignore[no-any-return]

    def effective(self, strategy: Strategy) -> Strategy:
        effective = super().effective
        return self._once("effective", strategy, None, lambda: effective(strategy))  # type: ignore[no-any-return]

    def faults(self, strategy: Strategy) -> tuple[str, ...]:
        faults = super().faults
        return self._once("faults", strategy, None, lambda: faults(strategy))  # type: ignore[no-any-return]


class ReplayAgents:
    """The expert on a table: a kernel is the list of its moves."""

    name = "replay"

    def __init__(self, table: Table, method: Method, seed: int) -> None:
        self._table, self._method, self._seed = table, method, seed
        self._space = table.known if method.starts else table.unknown
        self.kept = self.written = 0  # crossed children with all their moves, and all of them

    def generate(self, brief: Brief) -> Kernel:
        return write(Strategy())

    def foresee(self, task: Task, evaluation: Evaluation, spec: GpuSpec, kernel: Kernel | None = None) -> Guidance:
        entry = self._table.entries[evaluation.kernel]
        return Guidance(entry.zone, entry.aim, entry.headroom, "")

    def initialize(self, brief: Brief, count: int, rng: Random) -> tuple[Strategy, ...]:
        return crossover.initialize(self._space, brief, count, rng)

    def read(self, brief: Brief, kernel: Kernel, evaluation: Evaluation) -> Strategy:
        return Strategy()

    def cross(self, brief: Brief, rng: Random) -> Strategy:
        strategies = [one.strategy for one in sorted(brief.parents, key=lambda one: one.time_s or 0.0)]
        if len(strategies) > 1 and self._method.crossing == "code":
            return by_chance(strategies, rng)
        if len(strategies) > 1 and not self._method.crossing:
            strategies = strategies[:1]
        return crossover.cross(self._space, strategies, brief.guidance, rng)

    def translate(self, brief: Brief, strategy: Strategy) -> Kernel | Failure:
        """The moves that were not lost; at the level of code they are to be found before they can be written."""
        crossed, loss = len(brief.parents) > 1, self._method.loss
        code = crossed and self._method.crossing == "code"
        if loss:
            rng = Random(f"{self._seed}/{brief.sample}/loss")
            chance = 1.0 - (1.0 - loss) ** (2 if code else 1)
            left = Strategy(tuple(move for move in strategy.moves if rng.random() >= chance))
            self.written += crossed
            self.kept += crossed and len(left.moves) == len(strategy.moves)
            # what needs a lost move is not there either
            strategy = left if code else self._space.repair(left)
        faults = self._space.faults(strategy)
        if faults:
            return Failure("translate", "illegal-strategy", faults[0])
        return write(self._space.effective(strategy))

    def align(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Strategy:
        """As the code is: what was lost is not claimed."""
        kept = set(kernel.source.split(" + "))
        present = tuple(move for move in strategy.moves if moves_text(Strategy((move,))) in kept)
        if moves_text(Strategy(present)) == kernel.source:
            return Strategy(present)
        entry = self._space.effective(self._space.repair(Strategy(present)))
        return entry if moves_text(entry) == kernel.source else Strategy(present)

    def revise(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Revision | Failure:
        return Failure("revise", "given-up", "a table's kernel cannot be repaired")


def write(strategy: Strategy) -> Kernel:
    return Kernel(moves_text(strategy) or "plain")


def by_chance(parents: list[Strategy], rng: Random) -> Strategy:
    """Crossover without strategies: each move and each parameter comes from either parent by chance.

    What needs what is not known at this level, so children may be illegal; they are failures.
    """
    moves = []
    for card in sorted(parents[0].cards | parents[1].cards):
        choices = [parent.move(card) for parent in parents]
        if rng.random() < (1.0 if None not in choices else 0.5):
            held = [move for move in choices if move is not None]
            values = {name: value for move in held for name, value in move.parameters}
            picked = {name: dict(rng.choice(held).parameters).get(name, values[name]) for name in sorted(values)}
            moves.append(Move.of(card, "by chance", **picked))
    return Strategy(tuple(moves))


class TableExecutor:
    """Looks up what a kernel took."""

    slots = 1
    busy = False

    def __init__(self, table: Table) -> None:
        self._table = table

    def submit(self, request: EvaluationRequest) -> Future[Evaluation]:
        moves = "" if request.kernel.source == "plain" else request.kernel.source
        entry = self._table.entries.get(moves)
        if entry is None:
            raise DataError(f"{moves!r} is not in the table of {self._table.task.name}")
        found: Future[Evaluation] = Future()
        blank = Evaluation(moves, self._table.task.name, self._table.device)
        if entry.time_s is None:
            stage, _, kind = entry.failure.partition(": ")
            found.set_result(replace(blank, failure=Failure(stage, kind, entry.failure)))
        else:
            timing = Timing(entry.time_s, "modelled", self._table.device, entry.limit)
            found.set_result(replace(blank, timing=timing))
        return found

    def close(self, *, cancel: bool = False) -> None:
        pass

    def abandon(self) -> bool:
        return False


class AtOnce:
    """Carries out what is submitted before it returns."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(function(*arguments))
        return done


@dataclass
class InMemory:
    """A store that keeps individuals only, until it is forgotten."""

    kept: list[Individual] = field(default_factory=list)

    def begin(self, info: RunInfo) -> None:
        pass

    def add(self, individual: Individual) -> None:
        self.kept.append(individual)

    def note(self, kind: str, text: str) -> None:
        pass

    def finish(self, result: RunResult) -> None:
        pass

    def individuals(self) -> Iterator[Individual]:
        yield from self.kept


class Unwatched(Evolution):
    def report(self, kind: str, generation: int, individual: Individual | None = None) -> None:
        """Nobody looks on."""


@dataclass(frozen=True)
class Trace:
    """One search: the best time after each candidate over the best of the table, the plain kernel's first."""

    task: str
    method: str
    seed: int
    over_best: tuple[float, ...]
    crossed: int = 0
    kept: int = 0


def replay(table: Table, name: str, method: Method, seed: int, candidates: int) -> Trace:
    """One search of so many candidates after the plain kernel; fewer when nothing new was found."""
    offspring = max(1, method.population - 2)
    generations = max(0, -(-(candidates - method.population) // offspring)) + 1
    info = RunInfo(
        table.task.name, "", table.device, "replay", seed, method.population, generations, __version__,
        in_flight=method.in_flight, guided=method.guided, patience=10**6, islands=method.islands, tie=method.tie,
        steady=method.steady,
    )  # fmt: skip
    agents, store = ReplayAgents(table, method, seed), InMemory()
    similar = table.similar if method.pooled else ()
    search: Any = Unwatched
    search(
        task=table.task, info=info, agents=agents, executor=TableExecutor(table), threads=AtOnce(), store=store,
        spec=table.spec, recall=lambda task, evaluation: similar,
    ).run()  # fmt: skip
    best_s, over = float("inf"), []
    for one in store.kept[: candidates + 1]:
        best_s = min(best_s, one.time_s or float("inf"))
        over.append(best_s / table.best_s)
    over += over[-1:] * (candidates + 1 - len(over))
    return Trace(table.task.name, name, seed, tuple(over), agents.written, agents.kept)
