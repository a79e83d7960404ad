"""Everything a run has tried so far: candidates, individuals, the best, and the counts.

The ledger hands out ids, refuses what was tried before, keeps every individual in the store
before it is used, and leaves the best kernel on disk whenever it improves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cupilot.contracts import Store
from cupilot.evolution.result import moves_text, write_best
from cupilot.records import Evaluation, Failure, Individual, Kernel, RunInfo, RunResult, Strategy


@dataclass(frozen=True)
class Proposal:
    """A strategy that is to be tried, and where it came from; see `Individual` for the words."""

    generation: int
    origin: str
    strategy: Strategy
    parents: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Candidate:
    """A proposal turned into a kernel, with the id it will have; ``revisions`` counts repairs."""

    id: int
    proposal: Proposal
    kernel: Kernel
    revisions: int = 0


class Ledger:
    """The memory of one run.  Not for several threads: only the loop touches it."""

    def __init__(self, info: RunInfo, store: Store, folder: Path | None) -> None:
        self.info = info
        self.tried = 0
        self.evaluations = 0
        self.failures = 0
        self.correct: list[Individual] = []
        self._store = store
        self._folder = folder
        self._strategies: set[str] = set()
        self._kernels: dict[str, int] = {}

    @property
    def first(self) -> Individual:
        """The plain kernel."""
        return self.correct[0]

    @property
    def best(self) -> Individual:
        """The fastest so far; of equal ones the earliest."""
        return min(self.correct, key=fitness)

    def knows(self, strategy: Strategy) -> bool:
        """Whether a strategy with the same moves was tried, whatever became of it."""
        return moves_text(strategy) in self._strategies

    def note(self, kind: str, text: str) -> None:
        self._store.note(kind, text)

    def plan(self, proposal: Proposal, kernel: Kernel, revisions: int = 0) -> Candidate | None:
        """A candidate with an id of its own; None when its kernel was tried before."""
        self._strategies.add(moves_text(proposal.strategy))
        if kernel.digest in self._kernels:
            text = (
                f"{moves_text(proposal.strategy) or 'no move'} gives the same kernel as {self._kernels[kernel.digest]}"
            )
            self.note("duplicate", text)
            return None
        candidate = Candidate(self._take_id(), proposal, kernel, revisions)
        self._kernels[kernel.digest] = candidate.id
        return candidate

    def admit(self, candidate: Candidate, evaluation: Evaluation, strategy: Strategy) -> Individual:
        """Keep an evaluated candidate under its (aligned) strategy."""
        self.evaluations += 1
        self._strategies.add(moves_text(strategy))
        proposal = replace(candidate.proposal, strategy=strategy)
        return self._keep(candidate.id, proposal, candidate.kernel, evaluation)

    def reject(self, proposal: Proposal, failure: Failure) -> None:
        """Keep a strategy that could not be turned into a kernel; nothing was evaluated."""
        self._strategies.add(moves_text(proposal.strategy))
        evaluation = Evaluation("", self.info.task, self.info.device, failure)
        self._keep(self._take_id(), proposal, Kernel(""), evaluation)

    def result(self, stopped: str) -> RunResult:
        folder = "" if self._folder is None else str(self._folder)
        return RunResult(self.info, self.first, self.best, self.evaluations, self.failures, stopped, folder)

    def finish(self, stopped: str) -> RunResult:
        result = self.result(stopped)
        self._store.finish(result)
        if self._folder is not None:
            write_best(self._folder, result)
        return result

    def _keep(self, id_: int, proposal: Proposal, kernel: Kernel, evaluation: Evaluation) -> Individual:
        individual = Individual(
            id_,
            proposal.generation,
            proposal.origin,
            proposal.strategy,
            kernel,
            evaluation,
            proposal.parents,
            proposal.reason,
        )
        self._store.add(individual)
        if individual.time_s is None:
            self.failures += 1
        elif self.correct and not comparable(individual, self.first):
            self.note("not-ranked", f"{id_}: its time is of another kind than that of the plain kernel")
        else:
            self._rank(individual)
        return individual

    def _rank(self, individual: Individual) -> None:
        self.correct.append(individual)
        if self.best is individual:
            self.note("best", f"{individual.id} is the fastest so far: {individual.evaluation.timing}")
            if self._folder is not None:
                write_best(self._folder, self.result("running"))

    def _take_id(self) -> int:
        self.tried += 1
        return self.tried - 1


def fitness(individual: Individual) -> tuple[float, int]:
    """Smaller is better; the id makes the order total, so that it never depends on chance."""
    assert individual.time_s is not None, "only correct individuals are ranked"
    return individual.time_s, individual.id


def comparable(one: Individual, other: Individual) -> bool:
    """Modelled, measured and recorded times, and times of different devices, are never ranked together."""
    left, right = one.evaluation.timing, other.evaluation.timing
    return left is not None and right is not None and (left.source, left.device) == (right.source, right.device)
