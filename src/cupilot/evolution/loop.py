"""Strategy-coordinated evolution: strategies are crossed, kernels are written from them.

One run: a plain kernel, a first population of strategies, then generations of crossing and mutating;
several epochs of that, each starting from the best so far.  Everything that costs or decides is
passed in.

Candidates are developed several at a time (see `development`), but all choices are made here, in one
thread: results are taken in the order of submission, and a new candidate is begun when `in_flight`
are under way, knowing exactly the results taken so far.  So a seed gives the same run however the
executor schedules it, and a killed run is resumed by repeating it with the evaluations that the
store remembers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from cupilot.contracts import Agents, Brief, Executor, Store
from cupilot.errors import CupilotError, ModelError
from cupilot.evolution.budget import Spending
from cupilot.evolution.development import Assignment, Development, develop
from cupilot.evolution.executor import wait_for
from cupilot.evolution.ledger import Ledger, fitness
from cupilot.evolution.memory import Evaluator, Memory
from cupilot.evolution.operators import Shares
from cupilot.evolution.result import moves_text
from cupilot.evolution.selection import mate, survivors, tournament
from cupilot.gpu.spec import GpuSpec
from cupilot.llm import OverBudget
from cupilot.records import (
    Budget,
    Evaluation,
    Guidance,
    Individual,
    Kernel,
    PoolRecord,
    RunInfo,
    RunResult,
    Strategy,
    Task,
)

ELITE = 2
REVISIONS = 1
NEAR_LIMIT = 1.05
LEAST_GAIN = 0.001
BARREN = 2  # broods in which nothing new came up
REMEMBERED = 5  # attempts of a lineage that a role is told about


@dataclass(frozen=True)
class Progress:
    """What an observer is told; ``kind`` is ``plain``, ``begun``, ``individual``, ``generation`` or ``stopping``.

    ``individual`` is the newest, where the event is about one; ``population`` are the fastest that parents are chosen
    from.  ``begun`` and ``taken`` count candidates, ``spent`` has the budget's words.
    """

    kind: str
    generation: int
    result: RunResult
    left: str = ""
    individual: Individual | None = None
    population: tuple[Individual, ...] = ()
    begun: int = 0
    taken: int = 0
    spent: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Surroundings:
    """What a search has around it; every part but the first three may be left out.

    ``recall`` gives pool records similar to a task, given the plain kernel's evaluation; ``remember``
    is told the best individual at the end of each epoch.  ``spare`` gives a plain kernel for when the
    agents' own is not to be had or fails.  ``known`` are individuals of a killed run.
    """

    spec: GpuSpec
    executor: Executor
    store: Store
    folder: Path | None = None
    limit_s: float | None = None
    spending: Spending = field(default_factory=lambda: Spending(Budget(), lambda: 0.0))
    recall: Callable[[Task, Evaluation], tuple[PoolRecord, ...]] = lambda task, evaluation: ()
    remember: Callable[[Individual, Individual, Guidance | None], None] = lambda plain, best, guidance: None
    on_event: Callable[[Progress], None] = lambda progress: None
    spare: Callable[[Task], Kernel | None] = lambda task: None
    known: Iterable[Individual] = ()


def evolve(
    task: Task,
    agents: Agents,
    evaluator: Evaluator,
    info: RunInfo,
    around: Surroundings,
) -> RunResult:
    """Search for a faster kernel; seed, population, generations, epochs and guidance are those of ``info``.

    Ends when all epochs are done, after several generations without a gain, within 5 % of
    ``limit_s``, when no new strategy is to be found, when the budget is spent, or on Ctrl-C, which
    keeps the best so far.  ``folder`` receives the best kernel whenever there is a better one.  The
    executor and the store stay the caller's.  A plain kernel that fails is a `CupilotError`: there is
    nothing to start from.
    """
    memory = Memory(evaluator, around.spending, around.known)
    search = _Search(task, agents, memory, info, around, Ledger(info, around.store, around.folder))
    try:
        plain = info.kernel or search.generate()
        around.store.begin(info)
        try:
            search.start(plain)
            stopped = search.run()
        except KeyboardInterrupt:
            if not search.ledger.correct:
                raise
            stopped = "interrupted"
            search.salvage()
    finally:
        search.cancel()
    search.ledger.note("stop", WHY[stopped])
    return search.ledger.finish(stopped)


WHY = {
    "generations": "all generations were done",
    "plateau": "no gain for several generations",
    "limit": "the best kernel is within 5 % of the task's limit on this device",
    "exhausted": "no strategy was found that had not been tried",
    "budget": "the budget is spent",
    "interrupted": "interrupted by the user",
}


@dataclass
class _Search:
    """One run of `evolve`; holds what its steps share."""

    task: Task
    agents: Agents
    evaluator: Memory
    info: RunInfo
    around: Surroundings
    ledger: Ledger
    shares: Shares = field(default_factory=Shares)
    pending: deque[tuple[Assignment, Future[Development]]] = field(default_factory=deque)
    admitting: bool = False
    number: int = 0
    generation: int = 0
    shown: int = 0  # the generation whose candidates are being taken
    stale: int = 0
    barren: int = 0  # candidates in a row that brought nothing new
    placed: Guidance | None = None  # where the plain kernel stands
    population: tuple[Individual, ...] = ()
    newcomers: list[Individual] = field(default_factory=list)  # taken since the last selection

    # --- the course of a run ---------------------------------------------------------------

    def generate(self) -> Kernel:
        """The agents' plain kernel, or a spare one when they cannot write any."""
        try:
            return self.agents.generate(Brief(self.task, self.around.spec))
        except (ModelError, OverBudget):
            spare = self.around.spare(self.task)
            if spare is None:
                raise
            return spare

    def start(self, plain: Kernel) -> None:
        """Evaluate the plain kernel; it must be correct, or the spare one in its place."""
        brief = Brief(self.task, self.around.spec)
        self.submit("plain", brief, "the plain kernel, to start from", Strategy(), plain)
        self.take()
        if not self.ledger.correct and (spare := self.around.spare(self.task)) is not None:
            self.submit("plain", brief, "the agents' plain kernel failed: a built-in one", Strategy(), spare)
            self.take()
        if not self.ledger.correct:
            failure = self.ledger.all[0].evaluation.failure
            why = "it was not timed" if failure is None else f"{failure.stage}, {failure.kind}: {failure.message}"
            raise CupilotError(f"the plain kernel for {self.task.name} failed ({why}); there is nothing to start from")
        self.population = (self.ledger.first,)
        self.report("plain", 0, self.ledger.first)

    def run(self) -> str:
        """All epochs; returns why it ended."""
        for epoch in range(self.info.epochs):
            try:
                stopped = self.epoch(epoch)
                self.drain()
            except OverBudget as error:
                self.ledger.note("budget", str(error))
                stopped = "budget"
                self.salvage()
            self.report("generation", self.shown)
            self.shown += 1
            self.around.remember(self.ledger.first, self.ledger.best, self.placed)
            if stopped:
                return stopped
        return "generations"

    def epoch(self, epoch: int) -> str:
        """A first population and its generations; returns why the run is to end, if it is.

        Generations are not waited for: the first children of one are begun while the last of the one
        before are under way, so that neither agents nor device stand idle.
        """
        guidance = self.guidance(self.ledger.best)
        self.placed = self.placed or guidance
        for round_ in range(self.info.generations + 1):
            self.generation = epoch * (self.info.generations + 1) + round_
            if stopped := self.over():
                return stopped
            before = fitness(self.ledger.best)[0]
            first = round_ == 0
            proposals = self.initial(epoch, guidance) if first else self.children()
            if stopped := self.breed(proposals, self.info.population if first else self.brood):
                return stopped
            if round_ == self.info.generations:
                self.drain()
            self.select()
            self.stale = 0 if fitness(self.ledger.best)[0] < before * (1 - LEAST_GAIN) else self.stale + 1
        return "limit" if self.near() else ""

    @property
    def brood(self) -> int:
        return max(1, self.info.population - ELITE)

    def over(self) -> str:
        if self.near():
            return "limit"
        return "plateau" if self.stale >= self.info.patience else ""

    def near(self) -> bool:
        limit_s = self.around.limit_s
        return limit_s is not None and fitness(self.ledger.best)[0] <= NEAR_LIMIT * limit_s

    def breed(self, proposals: Iterator[tuple[str, Brief, str, Strategy | None]], count: int) -> str:
        """Begin up to ``count`` candidates, taking the oldest when enough are under way."""
        for _, (origin, brief, reason, strategy) in zip(range(count), proposals, strict=False):
            while (spent := self.around.spending.exhausted()) and self.pending:
                self.take()  # it may give back what was reserved for it
            if spent:
                self.ledger.note("budget", f"{spent} are spent")
                return "budget"
            self.submit(origin, brief, reason, strategy)
            while len(self.pending) >= self.info.in_flight:
                self.take()
            if self.near():
                return "limit"
            if self.barren >= BARREN * self.brood:
                return "exhausted"
        return ""

    def drain(self) -> None:
        while self.pending:
            self.take()

    # --- what is tried ---------------------------------------------------------------------

    def guidance(self, individual: Individual) -> Guidance | None:
        """Where an individual stands; None when the run goes without guidance."""
        if not self.info.guided:
            return None
        guidance = self.agents.foresee(self.task, individual.evaluation, self.around.spec)
        self.ledger.note("guidance", f"{individual.id}: {guidance.sentence}")
        return guidance

    def initial(self, epoch: int, guidance: Guidance | None) -> Iterator[tuple[str, Brief, str, Strategy | None]]:
        best = self.ledger.best
        similar = self.around.recall(self.task, self.ledger.first.evaluation)
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
            parents = self.parents(rng)
            origin = "cross" if len(parents) == 2 else "mutate"
            aim = f"; limit: {guidance.limit}" if guidance is not None else ""
            yield origin, self.brief(parents, guidance), f"{origin} of {_ids(parents)}{aim}", None

    def parents(self, rng: Random) -> tuple[Individual, ...]:
        first = tournament(self.population, rng)
        if self.shares.draw(rng) == "mutate":
            return (first,)
        second = mate(first, self.population, rng)
        return (first,) if second is None else tuple(sorted((first, second), key=fitness))

    def brief(
        self, parents: tuple[Individual, ...], guidance: Guidance | None, similar: tuple[PoolRecord, ...] = ()
    ) -> Brief:
        ids = {one.id for one in parents}
        fastest_s = min(one.time_s or 0.0 for one in parents)
        tried = [
            one for one in self.ledger.all if ids & set(one.parents) and (one.time_s is None or one.time_s > fastest_s)
        ]
        return Brief(self.task, self.around.spec, guidance, parents, tuple(tried[-REMEMBERED:]), similar, self.number)

    def select(self) -> None:
        """The next parents, out of the last ones and what was made of them."""
        ranked = {one.id for one in self.ledger.correct}
        known = {one.id for one in self.population}
        pool = [*self.population, *(one for one in self.newcomers if one.id in ranked - known)]
        self.newcomers.clear()
        rng = Random(f"{self.info.seed}/select {self.generation}")
        self.population = survivors(pool, self.info.population, ELITE, rng)
        elite, rest = self.population[:ELITE], self.population[ELITE:]
        text = f"generation {self.generation}: {_ids(elite)} as the fastest"
        text += f", {_ids(rest)} by tournament" if rest else ""
        self.ledger.note("select", f"{text}; shares: {self.shares}")

    # --- candidates under way --------------------------------------------------------------

    def submit(
        self, origin: str, brief: Brief, reason: str, strategy: Strategy | None, kernel: Kernel | None = None
    ) -> None:
        assignment = Assignment(
            self.number, self.generation, origin, brief, reason, strategy, kernel, frozenset(self.ledger.strategies),
            self.around.spending.reserve(1 + REVISIONS),
        )  # fmt: skip
        self.number += 1
        future = self.around.executor.submit(develop, assignment, self.agents, self.evaluator, self.info.seed)
        self.pending.append((assignment, future))
        if self.ledger.correct:
            self.report("begun", self.shown)

    def take(self) -> None:
        """Wait for the oldest candidate and take it in."""
        assignment, future = self.pending[0]
        wait_for(future)
        development = future.result()
        if assignment.generation > self.shown:  # the first of a generation: the one before is complete
            self.report("generation", self.shown)
            self.shown = assignment.generation
        before = self.ledger.evaluations
        self.admitting = True
        self.pending.popleft()
        added = self.ledger.admit(development)
        self.admitting = False
        self.around.spending.give_back(assignment.evaluations - (self.ledger.evaluations - before))
        self.newcomers += added
        self.barren = 0 if added else self.barren + 1
        if assignment.origin in ("cross", "mutate"):
            parent_s = min((one.time_s or 0.0 for one in assignment.brief.parents), default=0.0)
            self.shares.record(
                assignment.origin, any(one.time_s is not None and one.time_s < parent_s for one in added)
            )
        for individual in added:
            if self.ledger.correct:
                self.report("individual", assignment.generation, individual)

    def report(self, kind: str, generation: int, individual: Individual | None = None) -> None:
        """Tell the observer; nothing here depends on whether there is one."""
        spending = self.around.spending
        self.around.on_event(
            Progress(
                kind, generation, self.ledger.result("running"), spending.left(), individual, self.fastest(),
                self.number, self.number - len(self.pending), tuple(spending.spent().items()),
            )
        )  # fmt: skip

    def fastest(self) -> tuple[Individual, ...]:
        """Those that parents are chosen from now, and the newcomers among which the next are chosen."""
        ids = {one.id for one in (*self.population, *self.newcomers)}
        return tuple(sorted((one for one in self.ledger.correct if one.id in ids), key=fitness)[: self.info.population])

    # --- ending early ----------------------------------------------------------------------

    def cancel(self) -> None:
        for _, future in self.pending:
            future.cancel()

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
