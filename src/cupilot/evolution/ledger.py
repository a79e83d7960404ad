"""Everything a run has tried so far: individuals, the best, and the counts.

The ledger hands out ids, keeps every individual in the store before it is used, and leaves the best
kernel on disk whenever it improves.
"""

from __future__ import annotations

from pathlib import Path

from cupilot.contracts import Store
from cupilot.evolution.development import Attempt, Development
from cupilot.evolution.ranking import best_of, comparable, is_faster
from cupilot.evolution.result import moves_text, write_best
from cupilot.records import Evaluation, Individual, RunInfo, RunResult
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
        self._bred_from: dict[int, frozenset[int]] = {}
        self._best: Individual | None = None

    @property
    def first(self) -> Individual:
        """The plain kernel."""
        return self.correct[0]

    @property
    def best(self) -> Individual:
        """The fastest so far, or what ties with it and has fewer moves."""
        if self._best is None:
            self._best = best_of(self.correct, self.info.tie)
        return self._best

    def is_faster(self, one: Evaluation, other: Evaluation) -> bool:
        return is_faster(one, other, self.info.tie)

    def relatives(self, parents: tuple[Individual, ...]) -> tuple[Individual, ...]:
        """What was made of these parents, or of one of them, and did not pay: failed, or no faster than they are.

        What a repair has superseded is left out.  The newest are last.
        """
        ids = {one.id for one in parents}
        return tuple(
            one
            for one in self.all
            if ids & self._bred_from[one.id]
            and one.superseded_by is None
            and not any(self.is_faster(one.evaluation, parent.evaluation) for parent in parents)
            and one.id not in ids
        )

    def note(self, kind: str, text: str) -> None:
        self._store.note(kind, text)

    def admit(self, development: Development) -> list[Individual]:
        """Keep what came of an assignment; kernels that are known already are only noted."""
        assignment = development.assignment
        if assignment.strategy is not None:
            self.strategies.add(moves_text(assignment.strategy))
        for attempt in development.attempts:
            self.tools = self.tools.plus(attempt.turns)
        attempts = [one for one in development.attempts if self._is_new(one, development.attempts)]
        added: list[Individual] = []
        for number, attempt in enumerate(attempts):
            repair = next((n for n in range(number + 1, len(attempts)) if self._repairs(attempts[n], attempt)), None)
            superseded = None if repair is None else len(self.all) + repair - number
            added.append(self._keep(development, attempt, added[-1] if added else None, superseded))
        for kind, text in development.remarks:
            self.note(kind, f"{added[-1].id}: {text}" if added else text)
        return added

    def _is_new(self, attempt: Attempt, attempts: list[Attempt]) -> bool:
        """Whether its kernel is known neither from before nor from an earlier attempt; if it is, that is noted."""
        self.strategies.add(moves_text(attempt.strategy))
        digest = attempt.kernel.digest
        if not attempt.kernel.source:
            return True
        if digest in self._kernels:
            moves = moves_text(attempt.strategy) or "no move"
            self.note("duplicate", f"{moves} gives the same kernel as {self._kernels[digest]}")
            return False
        return next(one for one in attempts if one.kernel.digest == digest) is attempt

    def _repairs(self, later: Attempt, attempt: Attempt) -> bool:
        """Whether a later attempt takes the place of one that failed, or that was slow."""
        if not later.evaluation.correct:
            return False
        return not attempt.evaluation.correct or self.is_faster(later.evaluation, attempt.evaluation)

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

    def _keep(
        self, development: Development, attempt: Attempt, before: Individual | None, superseded_by: int | None
    ) -> Individual:
        assignment = development.assignment
        bred_from = tuple(one.id for one in development.brief.parents)
        parents, origin, reason = bred_from, development.origin, assignment.reason
        if before is not None:
            failure = before.evaluation.failure
            parents, origin = (before.id,), "revise"
            reason = f"repairs the {failure.kind if failure is not None else 'regression'} of {before.id}"
        elif parents != tuple(one.id for one in assignment.brief.parents):
            reason = f"{origin} of {', '.join(map(str, parents))}: {reason} gave nothing new"
        individual = Individual(
            len(self.all), assignment.generation, origin, attempt.strategy, attempt.kernel, attempt.evaluation,
            parents, reason, superseded_by, attempt.turns,
        )  # fmt: skip
        self._bred_from[individual.id] = frozenset(bred_from)
        self._store.add(individual)
        self.all.append(individual)
        if attempt.kernel.source:
            self._kernels[attempt.kernel.digest] = individual.id
            self.evaluations += 1
        if individual.time_s is None:
            self.failures += superseded_by is None
        elif self.correct and not comparable(individual, self.first):
            self.note("not-ranked", f"{individual.id}: its time is of another kind than that of the plain kernel")
        else:
            self._rank(individual)
        return individual

    def _rank(self, individual: Individual) -> None:
        before = self.best if self.correct else None
        self.correct.append(individual)
        self._best = None
        if self.best is not before:
            # another than the newcomer, if that is faster than what tied with the fastest of before
            self.note("best", f"{self.best.id} is the best so far: {self.best.evaluation.timing}")
            if self._folder is not None:
                write_best(self._folder, self.result("running"))
