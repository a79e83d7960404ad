"""Everything a run has tried so far: individuals, the best, and the counts.

The ledger hands out ids, keeps every individual in the store before it is used, and leaves the best
kernel on disk whenever it improves.
"""

from __future__ import annotations

from pathlib import Path

from cupilot.contracts import Store
from cupilot.evolution.development import Attempt, Development
from cupilot.evolution.result import moves_text, write_best
from cupilot.records import Individual, RunInfo, RunResult
from cupilot.records.turn import NO_TOOLS


class Ledger:
    """The memory of one run.  Not for several threads: only the loop touches it."""

    def __init__(self, info: RunInfo, store: Store, folder: Path | None) -> None:
        self.info = info
        self.evaluations = 0
        self.failures = 0
        self.tools = NO_TOOLS
        self.all: list[Individual] = []
        self.correct: list[Individual] = []
        self.strategies: set[str] = set()
        self._store = store
        self._folder = folder
        self._kernels: dict[str, int] = {}

    @property
    def first(self) -> Individual:
        """The plain kernel."""
        return self.correct[0]

    @property
    def best(self) -> Individual:
        """The fastest so far; of equal ones the earliest."""
        return min(self.correct, key=fitness)

    def note(self, kind: str, text: str) -> None:
        self._store.note(kind, text)

    def admit(self, development: Development) -> list[Individual]:
        """Keep what came of an assignment; kernels that are known already are only noted."""
        assignment = development.assignment
        if assignment.strategy is not None:
            self.strategies.add(moves_text(assignment.strategy))
        added: list[Individual] = []
        for attempt in development.attempts:
            self.strategies.add(moves_text(attempt.strategy))
            self.tools = self.tools.plus(attempt.turns)
            digest = attempt.kernel.digest
            if attempt.kernel.source and digest in self._kernels:
                moves = moves_text(attempt.strategy) or "no move"
                self.note("duplicate", f"{moves} gives the same kernel as {self._kernels[digest]}")
                continue
            added.append(self._keep(development, attempt, added[-1] if added else None))
        for kind, text in development.remarks:
            self.note(kind, f"{added[-1].id}: {text}" if added else text)
        return added

    def result(self, stopped: str) -> RunResult:
        folder = "" if self._folder is None else str(self._folder)
        return RunResult(
            self.info, self.first, self.best, self.evaluations, self.failures, stopped, folder, self.tools
        )  # fmt: skip

    def finish(self, stopped: str) -> RunResult:
        result = self.result(stopped)
        self._store.finish(result)
        if self._folder is not None:
            write_best(self._folder, result)
        return result

    def _keep(self, development: Development, attempt: Attempt, before: Individual | None) -> Individual:
        assignment = development.assignment
        parents = tuple(one.id for one in assignment.brief.parents)
        origin, reason = assignment.origin, assignment.reason
        if before is not None:
            failure = before.evaluation.failure
            parents, origin = (before.id,), "revise"
            reason = f"repairs the {failure.kind if failure is not None else 'regression'} of {before.id}"
        individual = Individual(
            len(self.all), assignment.generation, origin, attempt.strategy, attempt.kernel, attempt.evaluation,
            parents, reason, attempt.turns,
        )  # fmt: skip
        self._store.add(individual)
        self.all.append(individual)
        if attempt.kernel.source:
            self._kernels[attempt.kernel.digest] = individual.id
            self.evaluations += 1
        if individual.time_s is None:
            self.failures += 1
        elif self.correct and not comparable(individual, self.first):
            self.note("not-ranked", f"{individual.id}: its time is of another kind than that of the plain kernel")
        else:
            self._rank(individual)
        return individual

    def _rank(self, individual: Individual) -> None:
        self.correct.append(individual)
        if self.best is individual:
            self.note("best", f"{individual.id} is the fastest so far: {individual.evaluation.timing}")
            if self._folder is not None:
                write_best(self._folder, self.result("running"))


def fitness(individual: Individual) -> tuple[float, float, int]:
    """Smaller is better: time, then how little the limiting unit is used, then age.

    The id makes the order total, so that it never depends on chance.
    """
    timing = individual.evaluation.timing
    assert timing is not None, "only correct individuals are ranked"
    used = max((seconds for _, seconds in timing.breakdown), default=0.0) / timing.time_s
    return timing.time_s, -used, individual.id


def comparable(one: Individual, other: Individual) -> bool:
    """Modelled, measured and recorded times, and times of different devices, are never ranked together."""
    left, right = one.evaluation.timing, other.evaluation.timing
    return left is not None and right is not None and (left.source, left.device) == (right.source, right.device)
