"""Strategy-coordinated evolution: strategies are crossed, kernels are written from them.

One run: a plain kernel, a first population of strategies, then children of those; several epochs of that, each starting
from the best so far.  Everything that costs or decides is passed in.

The population is in a steady state: a child is begun when a result was taken, from the population as it then is, so
that it is bred from what has been evaluated.  A generation is a number of children.

Candidates are developed several at a time (see `development`), but all choices are made here, in one thread: results
are taken in the order of submission, and a new candidate is begun when `in_flight` are under way, knowing exactly the
results taken so far.  So a seed gives the same run however the executor schedules it, on one machine or on many, and a
killed run is resumed by repeating it with the evaluations that the store holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from cupilot.contracts import Agents, Brief, Executor, Store
from cupilot.errors import ModelError, NoKernel
from cupilot.evolution.budget import Spending
from cupilot.evolution.development import Assignment, Development, OpenTools, develop, no_tools
from cupilot.evolution.evaluation_cache import EvaluationCache
from cupilot.evolution.ledger import Ledger
from cupilot.evolution.operators import OPERATORS, Shares
from cupilot.evolution.progress import WHY, Progress
from cupilot.evolution.ranking import ranked
from cupilot.evolution.result import moves_text
from cupilot.evolution.selection import ELITE, Population
from cupilot.gpu.spec import GpuSpec
from cupilot.llm import OverBudget
from cupilot.records import (
    Budget,
    Evaluation,
    EvaluationRequest,
    Guidance,
    Individual,
    Kernel,
    PoolRecord,
    RunInfo,
    RunResult,
    Strategy,
    Task,
    TaskSource,
)
from cupilot.threads import DaemonThreads, wait_for

REVISIONS = 1
NEAR_LIMIT = 1.05
"""A kernel this close to the attainable limit ends the search: the limit itself, made of the bandwidths and rates that
measured kernels reach, is not known better, and what is left to gain is little more than a tie."""
FRUITLESS = 2  # generations' worth of candidates that brought nothing new
OTHER_PAIRS = 2  # to cross, or single ones to mutate, when those that were chosen give nothing new
LEAST_ISLAND = 3  # members of an island: fewer leave nothing to choose from
REMEMBERED = 5  # attempts of a lineage that a role is told about


@dataclass(kw_only=True)
class Evolution:
    """One search for a faster kernel: what it works with, and how far it has come; `run` carries it out.

    What a run is asked for is in ``info``.  ``threads`` develop candidates, at most
    ``info.in_flight`` at a time; ``executor`` evaluates their kernels.  Both, and the ``store``, stay the caller's.
    ``folder`` receives the best kernel whenever there is a better one.  ``limit_s`` is the least time that is
    attainable.  ``recall`` returns pool records similar to a task, given the plain kernel's evaluation;
    ``remember`` gets the plain and the best individual at the end of each epoch.  ``fallback_kernel`` gives a plain
    kernel for when the agents have none that works.  ``tools`` opens those of who writes a kernel, given the run's
    evaluations.  ``known`` are the individuals of a run that is resumed.
    ``observer`` sees every step and cannot affect the search.
    """

    task: Task
    info: RunInfo
    agents: Agents
    executor: Executor
    threads: DaemonThreads
    store: Store
    spec: GpuSpec
    folder: Path | None = None
    limit_s: float | None = None
    spending: Spending = field(default_factory=lambda: Spending(Budget(), lambda: 0.0))
    recall: Callable[[Task, Evaluation], tuple[PoolRecord, ...]] = lambda task, evaluation: ()
    remember: Callable[[Individual, Individual, Guidance | None], None] = lambda plain, best, guidance: None
    fallback_kernel: Callable[[Task], Kernel | None] = lambda task: None
    tools: Callable[[EvaluationCache], OpenTools] = lambda evaluate: no_tools
    known: Iterable[Individual] = ()
    observer: Callable[[Progress], None] = lambda progress: None

    ledger: Ledger = field(init=False)
    evaluate: EvaluationCache = field(init=False)
    shares: Shares = field(init=False, default_factory=Shares)
    pending: deque[tuple[Assignment, Future[Development]]] = field(init=False, default_factory=deque)
    admitting: bool = field(init=False, default=False)
    number: int = field(init=False, default=0)
    generation: int = field(init=False, default=0)
    shown: int = field(init=False, default=0)  # the generation whose candidates are being taken
    stale: int = field(init=False, default=0)
    fruitless: int = field(init=False, default=0)  # candidates in a row that brought nothing new
    placed: Guidance | None = field(init=False, default=None)  # where the plain kernel stands
    islands: list[Population] = field(init=False, default_factory=list)
    alternatives: tuple[Brief, ...] = field(init=False, default=())  # for the next child
    newcomers: list[tuple[int, Individual]] = field(init=False, default_factory=list)  # not in a population yet

    def __post_init__(self) -> None:
        count = min(self.info.islands, max(1, self.info.population // LEAST_ISLAND))
        self.islands = [Population(max(1, self.info.population // count), self.info.tie) for _ in range(count)]
        self.ledger = Ledger(self.info, self.store, self.folder)
        self.evaluate = EvaluationCache(self.executor, self.request, self.spending, self.known)

    def run(self) -> RunResult:
        """Search until all epochs are done, or until there is a reason to stop.

        Reasons are several generations without a gain beyond a tie, a time within 5 % of ``limit_s``, no new strategy,
        a spent budget, and Ctrl-C, which keeps the best so far.  A plain kernel that fails is `NoKernel`: there is
        nothing to start from.
        """
        try:
            plain = self.info.kernel or self.generate()
            self.store.begin(self.info)
            try:
                self.start(plain)
                stopped = self.run_epochs()
            except KeyboardInterrupt:
                if not self.ledger.correct:
                    raise
                stopped = "interrupted"
                self.salvage()
        finally:
            self.cancel()
        self.ledger.note("stop", WHY[stopped])
        return self.ledger.finish(stopped)

    def request(self, kernel: Kernel) -> EvaluationRequest:
        info = self.info
        return EvaluationRequest(
            task=TaskSource.of(self.task), kernel=kernel, device=info.device, gpu=info.gpu, seed=info.seed,
            timeout_s=info.timeout_s, require=info.require,
        )  # fmt: skip

    # --- the course of a run ---------------------------------------------------------------

    def generate(self) -> Kernel:
        """The agents' plain kernel, or the fallback when they cannot write one."""
        try:
            return self.agents.generate(Brief(self.task, self.spec))
        except (ModelError, OverBudget):
            fallback = self.fallback_kernel(self.task)
            if fallback is None:
                raise
            return fallback

    def start(self, plain: Kernel) -> None:
        """Evaluate the plain kernel; it must be correct, or else the fallback."""
        brief = Brief(self.task, self.spec)
        given = self.info.kernel is not None
        reason = "the user's kernel, to start from" if given else "the plain kernel, to start from"
        self.submit("plain", brief, reason, Strategy(), plain, read=given)
        self.take()
        if not self.ledger.correct and (fallback := self.fallback_kernel(self.task)) is not None:
            self.submit("plain", brief, "the agents' plain kernel failed: a built-in one", Strategy(), fallback)
            self.take()
        if not self.ledger.correct:
            failure = self.ledger.all[0].evaluation.failure
            why = "it was not timed" if failure is None else f"{failure.stage}, {failure.kind}: {failure.message}"
            raise NoKernel(f"the plain kernel for {self.task.name} failed ({why}); there is nothing to start from")
        self.newcomers = [(island, self.ledger.first) for island in range(len(self.islands))]
        self.settle()
        self.report("plain", 0, self.ledger.first)

    def run_epochs(self) -> str:
        """All epochs; returns why it ended."""
        for epoch in range(self.info.epochs):
            try:
                stopped = self.epoch(epoch)
                self.drain()
            except OverBudget as error:
                self.ledger.note("budget", str(error))
                stopped = "budget"
                self.salvage()
            self.tell_population()
            self.report("generation", self.shown)
            self.shown += 1
            self.remember(self.ledger.first, self.ledger.best, self.placed)
            if stopped:
                return stopped
        return "generations"

    def epoch(self, epoch: int) -> str:
        """A first population and its children; returns why the run is to end, if it is.

        Nothing is waited for in between: children are begun while the last of the first population are under way, so
        that neither agents nor device stand idle.
        """
        guidance = self.guidance(self.ledger.best)
        self.placed = self.placed or guidance
        if epoch:
            self.migrate()
        for round_ in range(self.info.generations + 1):
            self.generation = epoch * (self.info.generations + 1) + round_
            if stopped := self.over():
                return stopped
            before = self.ledger.best
            if round_ == 1:  # nothing is bred before half of the first population is known
                self.drain(to=self.info.population // 2)
            first = round_ == 0
            proposals = self.initial(epoch, guidance) if first else self.children()
            if stopped := self.breed(proposals, self.info.population if first else self.offspring):
                return stopped
            if round_ == self.info.generations or not self.info.steady:
                self.drain()
                self.settle()
            gained = self.ledger.is_faster(self.ledger.best.evaluation, before.evaluation)
            self.stale = 0 if gained else self.stale + 1
        return "limit" if self.near() else ""

    def migrate(self) -> None:
        """The best of each island goes to the next as well."""
        best = [island.members[0] for island in self.islands]
        for place, one in enumerate(best if len(best) > 1 else ()):
            there = (place + 1) % len(best)
            if all(one.id != member.id for member in self.islands[there].members):
                self.newcomers.append((there, one))
        self.settle()

    @property
    def offspring(self) -> int:
        return max(1, self.info.population - ELITE)

    def over(self) -> str:
        if self.near():
            return "limit"
        return "plateau" if self.stale >= self.info.patience else ""

    def near(self) -> bool:
        best_s = self.ledger.best.time_s
        return self.limit_s is not None and best_s is not None and best_s <= NEAR_LIMIT * self.limit_s

    def breed(self, proposals: Iterator[tuple[str, Brief, str, Strategy | None]], count: int) -> str:
        """Begin up to ``count`` candidates, taking the oldest when enough are under way."""
        for _, (origin, brief, reason, strategy) in zip(range(count), proposals, strict=False):
            while (spent := self.spending.exhausted()) and self.pending:
                self.take()  # it may give back what was reserved for it
            if spent:
                self.ledger.note("budget", f"{spent} are spent")
                return "budget"
            self.submit(origin, brief, reason, strategy)
            while len(self.pending) >= self.info.in_flight:
                self.take()
            if self.near():
                return "limit"
            if self.fruitless >= FRUITLESS * self.offspring:
                return "exhausted"
        return ""

    def drain(self, to: int = 0) -> None:
        """Take results until only so many candidates are under way."""
        while len(self.pending) > to:
            self.take()

    # --- what is tried ---------------------------------------------------------------------

    def guidance(self, individual: Individual) -> Guidance | None:
        """Where an individual stands; None when the run goes without guidance."""
        if not self.info.guided:
            return None
        guidance = self.agents.foresee(self.task, individual.evaluation, self.spec, individual.kernel)
        self.ledger.note("guidance", f"{individual.id}: {guidance.sentence}")
        return guidance

    def initial(self, epoch: int, guidance: Guidance | None) -> Iterator[tuple[str, Brief, str, Strategy | None]]:
        best = self.ledger.best
        similar = self.recall(self.task, self.ledger.first.evaluation)
        brief = self.brief((best,), guidance, similar)
        rng = Random(f"{self.info.seed}/epoch {epoch}")
        aim = f"; limit: {guidance.limit}" if guidance is not None else ""
        for strategy in self.agents.initialize(brief, self.info.population, rng):
            if moves_text(strategy) not in self.ledger.strategies:
                yield "initial", replace(brief, sample=self.number), f"a first strategy{aim}", strategy

    def children(self) -> Iterator[tuple[str, Brief, str, Strategy | None]]:
        guidance = self.guidance(self.ledger.best)
        while True:
            rng = Random(f"{self.info.seed}/parents {self.number}")
            parents, *others = self.parents(rng)
            origin = "cross" if len(parents) == 2 else "mutate"
            aim = f"; limit: {guidance.limit}" if guidance is not None else ""
            self.alternatives = tuple(self.brief(other, guidance) for other in others)
            yield origin, self.brief(parents, guidance), f"{origin} of {_ids(parents)}{aim}", None

    def parents(self, rng: Random) -> list[tuple[Individual, ...]]:
        """Of the island whose turn it is, one to mutate or two to cross, the best first; then whom to take instead when
        nothing new comes of them: for a crossing other pairs, then single ones."""
        island = self.islands[self.number % len(self.islands)]
        first = island.parent(rng)
        found: list[tuple[Individual, ...]] = []
        if self.shares.draw(rng) == "cross":
            for one in (first, *(island.parent(rng) for _ in range(OTHER_PAIRS))):
                second = island.mate(one, rng)
                if second is not None:
                    found.append(tuple(ranked((one, second), self.info.tie)))
                    island.crossed.add(frozenset((one.id, second.id)))
        return [*found, (first,), *((island.parent(rng),) for _ in range(OTHER_PAIRS))]

    def brief(
        self, parents: tuple[Individual, ...], guidance: Guidance | None, similar: tuple[PoolRecord, ...] = ()
    ) -> Brief:
        tried = self.ledger.relatives(parents)[-REMEMBERED:]
        return Brief(self.task, self.spec, guidance, parents, tried, similar, self.number)

    def settle(self) -> None:
        """Let those that were taken into the populations; what a repair has superseded stays out."""
        for place, one in self.newcomers:
            if one.superseded_by is None:
                self.islands[place].admit(one, Random(f"{self.info.seed}/admit {one.id}/{place}"))
        self.newcomers.clear()

    # --- candidates under way --------------------------------------------------------------

    def submit(
        self, origin: str, brief: Brief, reason: str, strategy: Strategy | None, kernel: Kernel | None = None,
        *, read: bool = False,
    ) -> None:  # fmt: skip
        info = self.info
        assignment = Assignment(
            self.number, self.generation, origin, brief, reason, strategy, kernel, frozenset(self.ledger.strategies),
            self.spending.reserve(1 + REVISIONS), read, info.repair_slower, info.tie, self.number % len(self.islands),
            self.alternatives,
        )  # fmt: skip
        self.alternatives = ()
        self.number += 1
        if origin in OPERATORS:
            self.shares.begin(origin)
        future = self.threads.submit(
            develop, assignment, self.agents, self.evaluate, info.seed, self.tools(self.evaluate)
        )
        self.pending.append((assignment, future))
        if self.ledger.correct:
            self.report("begun", self.shown)

    def take(self) -> None:
        """Wait for the oldest candidate and take it in."""
        assignment, future = self.pending[0]
        wait_for(future)
        development = future.result()
        if assignment.generation > self.shown:  # the first of a generation: the one before is complete
            self.tell_population()
            self.report("generation", self.shown)
            self.shown = assignment.generation
        before = self.ledger.evaluations
        self.admitting = True
        self.pending.popleft()
        added = self.ledger.admit(development)
        self.admitting = False
        self.spending.give_back(assignment.evaluations - (self.ledger.evaluations - before))
        self.fruitless = 0 if added else self.fruitless + 1
        self.count(development, added)
        if self.islands[0].members:  # the plain kernel is there
            rankable = {one.id for one in self.ledger.correct}
            self.newcomers += [(assignment.island, one) for one in added if one.id in rankable]
            if self.info.steady:
                self.settle()
        for individual in added:
            if self.ledger.correct:
                self.report("individual", assignment.generation, individual)

    def count(self, development: Development, added: Sequence[Individual]) -> None:
        """A child that is faster than its parents pays for the way it was made."""
        begun, parents = development.assignment.origin, development.brief.parents
        if begun in OPERATORS:
            won = any(
                all(self.ledger.is_faster(one.evaluation, parent.evaluation) for parent in parents) for one in added
            )
            self.shares.record(development.origin, won, begun)

    def tell_population(self) -> None:
        members = " | ".join(_ids(island.members) for island in self.islands)
        text = f"population after generation {self.shown}, the best first: {members}"
        self.ledger.note("select", f"{text}; shares: {self.shares}")

    def report(self, kind: str, generation: int, individual: Individual | None = None) -> None:
        """Tell the observer; nothing here depends on whether there is one."""
        self.observer(
            Progress(
                kind, generation, self.ledger.result("running"), self.spending.left(), individual, self.fastest(),
                self.number, self.number - len(self.pending), tuple(self.spending.spent().items()),
            )
        )  # fmt: skip

    def fastest(self) -> tuple[Individual, ...]:
        """Those that parents are chosen from now, and the newcomers of a generation that is waited for; best first."""
        members = [one for island in self.islands for one in island.members]
        known = {one.id: one for one in (*members, *(one for _, one in self.newcomers))}
        return tuple(ranked([*known.values()], self.info.tie)[: self.info.population])

    # --- ending early ----------------------------------------------------------------------

    def cancel(self) -> None:
        """Drop what has not started: candidates, and evaluations that wait for a slot."""
        for _, future in self.pending:
            future.cancel()
        self.evaluate.cancel()

    def salvage(self) -> None:
        """At an early end: drop what has not started, wait for what is running and keep it.

        Compilers and workers have process groups of their own, so that Ctrl-C does not reach them and their
        verdicts hold.  Nothing is kept behind a candidate that was dropped: a run that goes on would find the
        individuals in another order.  A (second) Ctrl-C ends the wait.
        """
        self.cancel()
        if self.admitting:  # interrupted in the middle: this one is the last
            return
        try:
            self.report("stopping", self.shown)
            for _, future in self.pending:
                wait_for(future)
                if future.cancelled() or future.exception() is not None:
                    break
                self.ledger.admit(future.result())
        except KeyboardInterrupt:
            self.ledger.note("interrupted", "candidates in flight were given up")


def _ids(individuals: Sequence[Individual]) -> str:
    return ", ".join(str(one.id) for one in individuals)
