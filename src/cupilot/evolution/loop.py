"""Strategy-coordinated evolution: strategies are crossed, kernels are written from them.

One run: a plain kernel, a first population of strategies, then generations of crossing and mutating; several epochs of
that, each starting from the best so far.  Everything that costs or decides is passed in.

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
from cupilot.evolution.ledger import Ledger, fitness
from cupilot.evolution.operators import Shares
from cupilot.evolution.result import moves_text
from cupilot.evolution.selection import mate, survivors, tournament
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

ELITE = 2
REVISIONS = 1
NEAR_LIMIT = 1.05
LEAST_GAIN = 0.001
FRUITLESS = 2  # generations' worth of candidates that brought nothing new
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


WHY = {
    "generations": "all generations were done",
    "plateau": "no gain for several generations",
    "limit": "the best kernel is within 5 % of the task's limit on this device",
    "exhausted": "no strategy was found that had not been tried",
    "budget": "the budget is spent",
    "interrupted": "interrupted by the user",
}


@dataclass(kw_only=True)
class Evolution:
    """One search for a faster kernel: what it works with, and how far it has come; `run` carries it out.

    Seed, population, generations, epochs and guidance are those of ``info``.  ``threads`` develop candidates, at most
    ``info.in_flight`` at a time; ``executor`` evaluates their kernels.  Both, and the ``store``, stay the caller's.
    ``folder`` receives the best kernel whenever there is a better one.  ``limit_s`` is the shortest time that the
    device allows.  ``recall`` returns pool records similar to a task, given the plain kernel's evaluation;
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
    population: tuple[Individual, ...] = field(init=False, default=())
    newcomers: list[Individual] = field(init=False, default_factory=list)  # taken since the last selection

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.info, self.store, self.folder)
        self.evaluate = EvaluationCache(self.executor, self.request, self.spending, self.known)

    def run(self) -> RunResult:
        """Search until all epochs are done, or until there is a reason to stop.

        Reasons are several generations without a gain, a time within 5 % of ``limit_s``, no new strategy, a spent
        budget, and Ctrl-C, which keeps the best so far.  A plain kernel that fails is `NoKernel`: there is
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
        self.submit("plain", brief, "the plain kernel, to start from", Strategy(), plain)
        self.take()
        if not self.ledger.correct and (fallback := self.fallback_kernel(self.task)) is not None:
            self.submit("plain", brief, "the agents' plain kernel failed: a built-in one", Strategy(), fallback)
            self.take()
        if not self.ledger.correct:
            failure = self.ledger.all[0].evaluation.failure
            why = "it was not timed" if failure is None else f"{failure.stage}, {failure.kind}: {failure.message}"
            raise NoKernel(f"the plain kernel for {self.task.name} failed ({why}); there is nothing to start from")
        self.population = (self.ledger.first,)
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
            self.report("generation", self.shown)
            self.shown += 1
            self.remember(self.ledger.first, self.ledger.best, self.placed)
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
            if stopped := self.breed(proposals, self.info.population if first else self.offspring):
                return stopped
            if round_ == self.info.generations:
                self.drain()
            self.select()
            self.stale = 0 if fitness(self.ledger.best)[0] < before * (1 - LEAST_GAIN) else self.stale + 1
        return "limit" if self.near() else ""

    @property
    def offspring(self) -> int:
        return max(1, self.info.population - ELITE)

    def over(self) -> str:
        if self.near():
            return "limit"
        return "plateau" if self.stale >= self.info.patience else ""

    def near(self) -> bool:
        return self.limit_s is not None and fitness(self.ledger.best)[0] <= NEAR_LIMIT * self.limit_s

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

    def drain(self) -> None:
        while self.pending:
            self.take()

    # --- what is tried ---------------------------------------------------------------------

    def guidance(self, individual: Individual) -> Guidance | None:
        """Where an individual stands; None when the run goes without guidance."""
        if not self.info.guided:
            return None
        guidance = self.agents.foresee(self.task, individual.evaluation, self.spec)
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
        return Brief(self.task, self.spec, guidance, parents, tuple(tried[-REMEMBERED:]), similar, self.number)

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
            self.spending.reserve(1 + REVISIONS),
        )  # fmt: skip
        self.number += 1
        future = self.threads.submit(
            develop, assignment, self.agents, self.evaluate, self.info.seed, self.tools(self.evaluate)
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
            self.report("generation", self.shown)
            self.shown = assignment.generation
        before = self.ledger.evaluations
        self.admitting = True
        self.pending.popleft()
        added = self.ledger.admit(development)
        self.admitting = False
        self.spending.give_back(assignment.evaluations - (self.ledger.evaluations - before))
        self.newcomers += added
        self.fruitless = 0 if added else self.fruitless + 1
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
        self.observer(
            Progress(
                kind, generation, self.ledger.result("running"), self.spending.left(), individual, self.fastest(),
                self.number, self.number - len(self.pending), tuple(self.spending.spent().items()),
            )
        )  # fmt: skip

    def fastest(self) -> tuple[Individual, ...]:
        """Those that parents are chosen from now, and the newcomers among which the next are chosen."""
        ids = {one.id for one in (*self.population, *self.newcomers)}
        return tuple(sorted((one for one in self.ledger.correct if one.id in ids), key=fitness)[: self.info.population])

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
