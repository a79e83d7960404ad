"""Strategy-coordinated evolution: strategies are crossed, kernels are written from them.

One run: a plain kernel, a first population of strategies, then generations of crossing, mutating
and selecting.  Everything that costs or decides is passed in.  All choices are made here, in one
thread and in a fixed order (results are taken in the order of submission), so a seed gives the
same run however the executor schedules it.  Not here yet: epochs, the pool, budgets, resuming.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from cupilot.contracts import Agents, Executor, Store
from cupilot.errors import CupilotError
from cupilot.evolution.ledger import Candidate, Ledger, Proposal, fitness
from cupilot.evolution.selection import mate, survivors, tournament
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Evaluation, Failure, Guidance, Individual, Kernel, RunInfo, RunResult, Strategy, Task

Evaluator = Callable[[Task, Kernel], Evaluation]

ELITE = 2
MUTATION_SHARE = 0.4
DRAWS = 12  # tries to breed a strategy that was not tried before
REVISIONS = 1
NEAR_LIMIT = 1.05
LEAST_GAIN = 0.001


@dataclass(frozen=True)
class Progress:
    """What an observer is told; ``kind`` is ``plain``, ``individual`` or ``generation``."""

    kind: str
    generation: int
    result: RunResult


def evolve(
    task: Task,
    agents: Agents,
    evaluator: Evaluator,
    *,
    spec: GpuSpec,
    executor: Executor,
    store: Store,
    info: RunInfo,
    folder: Path | None = None,
    limit_s: float | None = None,
    patience: int = 3,
    on_event: Callable[[Progress], None] = lambda progress: None,
) -> RunResult:
    """Search for a faster kernel; seed, population and generations are those of ``info``.

    Ends when the generations are done, after ``patience`` of them without a gain, within 5 % of
    ``limit_s``, when no new strategy is to be found, or on Ctrl-C, which keeps the best so far.
    ``folder`` receives the best kernel whenever there is a better one.  The executor and the store
    stay the caller's.  A plain kernel that fails is a `CupilotError`: there is nothing to start from.
    """
    search = _Search(task, agents, evaluator, spec, executor, Ledger(info, store, folder), on_event)
    try:
        plain = agents.generate(task)
        store.begin(info)
        try:
            search.start(plain)
            stopped = search.go(limit_s, patience)
        except KeyboardInterrupt:
            if not search.ledger.correct:
                raise
            stopped = "interrupted"
            search.salvage({individual.id for individual in store.individuals()})
    finally:
        search.cancel()
    search.ledger.note("stop", WHY[stopped])
    return search.ledger.finish(stopped)


WHY = {
    "generations": "all generations were done",
    "plateau": "no gain for several generations",
    "limit": "the best kernel is within 5 % of the task's limit on this device",
    "exhausted": "no strategy was found that had not been tried",
    "interrupted": "interrupted by the user",
}


@dataclass
class _Search:
    """One run of `evolve`; holds what its steps share."""

    task: Task
    agents: Agents
    evaluator: Evaluator
    spec: GpuSpec
    executor: Executor
    ledger: Ledger
    on_event: Callable[[Progress], None]
    pending: deque[tuple[Candidate, Future[Evaluation]]] = field(default_factory=deque)

    # --- the course of a run -------------------------------------------------------------

    def start(self, plain: Kernel) -> None:
        """Evaluate the plain kernel; it must be correct."""
        proposal = Proposal(0, "plain", Strategy(), (), "the plain kernel, to start from")
        candidate = self.ledger.plan(proposal, plain, REVISIONS)
        assert candidate is not None, "nothing was planned before the plain kernel"
        individuals = self.assess(iter([candidate]))
        if not self.ledger.correct:
            failure = individuals[0].evaluation.failure
            why = "it was not timed" if failure is None else f"{failure.stage}, {failure.kind}: {failure.message}"
            raise CupilotError(f"the plain kernel for {self.task.name} failed ({why}); there is nothing to start from")
        self.report("plain", 0)

    def go(self, limit_s: float | None, patience: int) -> str:
        """All generations; returns why it ended."""
        info = self.ledger.info
        population: tuple[Individual, ...] = (self.ledger.first,)
        stale = 0
        for generation in range(info.generations + 1):
            if self.near(limit_s):
                return "limit"
            if stale >= patience:
                return "plateau"
            # a generator per generation: a resumed run needs no state but the seed
            rng = Random(f"{info.seed}/{generation}")
            before, tried = fitness(self.ledger.best)[0], self.ledger.tried
            self.assess(self.breed(generation, population, rng))
            if generation > 0 and self.ledger.tried == tried:
                return "exhausted"
            population = self.select(generation, population, rng)
            stale = 0 if fitness(self.ledger.best)[0] < before * (1 - LEAST_GAIN) else stale + 1
            self.report("generation", generation)
        return "limit" if self.near(limit_s) else "generations"

    def near(self, limit_s: float | None) -> bool:
        return limit_s is not None and fitness(self.ledger.best)[0] <= NEAR_LIMIT * limit_s

    def report(self, kind: str, generation: int) -> None:
        self.on_event(Progress(kind, generation, self.ledger.result("running")))

    # --- breeding and selecting ----------------------------------------------------------

    def breed(self, generation: int, population: Sequence[Individual], rng: Random) -> Iterator[Candidate]:
        """The candidates of a generation, one by one, so that the first run while the next are written."""
        best, size = self.ledger.best, self.ledger.info.population
        guidance = self.agents.foresee(self.task, best.evaluation, self.spec)
        self.ledger.note("guidance", f"{best.id}: {guidance.sentence}")
        first = generation == 0
        proposals = self.initial(guidance, rng) if first else self.children(generation, population, guidance, rng)
        enough = self.ledger.tried + (size if first else max(1, size - ELITE))
        while self.ledger.tried < enough and (proposal := next(proposals, None)) is not None:
            if not self.ledger.knows(proposal.strategy):
                yield from self.translate(proposal)

    def initial(self, guidance: Guidance, rng: Random) -> Iterator[Proposal]:
        plain = self.ledger.first.id
        for strategy in self.agents.initialize(self.task, guidance, self.ledger.info.population, rng):
            yield Proposal(0, "initial", strategy, (plain,), f"a first strategy; limit: {guidance.limit}")

    def children(
        self, generation: int, population: Sequence[Individual], guidance: Guidance, rng: Random
    ) -> Iterator[Proposal]:
        for _ in range(DRAWS * self.ledger.info.population):
            parents = self.parents(population, rng)
            strategy = self.agents.cross(self.task, parents, guidance, rng)
            origin = "cross" if len(parents) == 2 else "mutate"
            ids = tuple(one.id for one in parents)
            reason = f"{origin} of {_ids(parents)}; limit: {guidance.limit}"
            yield Proposal(generation, origin, strategy, ids, reason)

    def parents(self, population: Sequence[Individual], rng: Random) -> tuple[Individual, ...]:
        first = tournament(population, rng)
        if rng.random() < MUTATION_SHARE:
            return (first,)
        second = mate(first, population, rng)
        return (first,) if second is None else (first, second)

    def select(self, generation: int, population: Sequence[Individual], rng: Random) -> tuple[Individual, ...]:
        """The next parents, out of the last ones and what was made of them."""
        known = {one.id for one in population}
        pool = [one for one in self.ledger.correct if one.id in known or one.generation == generation]
        chosen = survivors(pool, self.ledger.info.population, ELITE, rng)
        elite, rest = chosen[:ELITE], chosen[ELITE:]
        text = f"generation {generation}: {_ids(elite)} as the fastest"
        self.ledger.note("select", text + (f", {_ids(rest)} by tournament" if rest else ""))
        return chosen

    # --- strategies to kernels to individuals --------------------------------------------

    def translate(self, proposal: Proposal) -> Iterator[Candidate]:
        """The candidate of a proposal; none when the translator fails (kept) or the kernel is known."""
        source = min((one for one in self.ledger.correct if one.id in proposal.parents), key=fitness).kernel
        kernel = self.agents.translate(self.task, source, proposal.strategy)
        if isinstance(kernel, Failure):
            self.ledger.reject(proposal, kernel)
        elif (candidate := self.ledger.plan(proposal, kernel)) is not None:
            yield candidate

    def assess(self, candidates: Iterator[Candidate]) -> list[Individual]:
        """Evaluate new candidates and, at most once each, what the revisor makes of failed ones."""
        for candidate in candidates:
            self.submit(candidate)
        individuals = []
        while self.pending:
            candidate, future = self.pending[0]
            individual = self.take(candidate, future.result())
            individuals.append(individual)
            self.pending.popleft()
            failure = individual.evaluation.failure
            if failure is not None and candidate.revisions < REVISIONS:
                self.revise(candidate, failure, individual.evaluation)
        return individuals

    def submit(self, candidate: Candidate) -> None:
        self.pending.append((candidate, self.executor.submit(self.evaluator, self.task, candidate.kernel)))

    def take(self, candidate: Candidate, evaluation: Evaluation) -> Individual:
        strategy = candidate.proposal.strategy
        if evaluation.correct:
            strategy = self.agents.align(self.task, candidate.kernel, strategy)
        individual = self.ledger.admit(candidate, evaluation, strategy)
        if self.ledger.correct:
            self.report("individual", individual.generation)
        return individual

    def revise(self, candidate: Candidate, failure: Failure, evaluation: Evaluation) -> None:
        proposal = candidate.proposal
        kernel = self.agents.revise(self.task, candidate.kernel, proposal.strategy, evaluation)
        if kernel is None:
            self.ledger.note("given-up", f"{candidate.id}: the revisor sees no repair for the {failure.kind}")
            return
        reason = f"repairs the {failure.kind} of {candidate.id}"
        repair = replace(proposal, origin="revise", parents=(candidate.id,), reason=reason)
        revised = self.ledger.plan(repair, kernel, candidate.revisions + 1)
        if revised is not None:
            self.submit(revised)

    # --- ending early --------------------------------------------------------------------

    def cancel(self) -> None:
        for _, future in self.pending:
            future.cancel()

    def salvage(self, stored: set[int]) -> None:
        """After Ctrl-C: drop what has not started, wait for what is running, keep what came out right.

        Failures are not kept: the signal may have reached a compiler in the middle of its work.
        A second Ctrl-C ends the wait.
        """
        self.cancel()
        try:
            for candidate, future in self.pending:
                if future.cancelled() or candidate.id in stored or future.exception() is not None:
                    continue
                if future.result().correct:
                    self.take(candidate, future.result())
        except KeyboardInterrupt:
            self.ledger.note("interrupted", "candidates in flight were given up")


def _ids(individuals: Sequence[Individual]) -> str:
    return ", ".join(str(one.id) for one in individuals)
