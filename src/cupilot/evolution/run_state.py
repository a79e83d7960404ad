"""The state of a run as an observer knows it: a record, and how each event changes it.

Nothing here knows how the state is shown, and the search does not depend on being observed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cupilot.contracts import DONE, REFERENCE, Step
from cupilot.evolution.progress import Progress
from cupilot.evolution.selection import ELITE
from cupilot.records import Individual, RunInfo, RunResult


@dataclass(frozen=True)
class Work:
    """A piece of work under way, and since when; see `Step`."""

    who: str
    stage: str
    what: str
    since_s: float


@dataclass(frozen=True)
class RunState:
    """A run as it stands; times ending in ``_s`` without more are those of one clock.

    ``result`` is None until the plain kernel is timed.  ``history`` is the best time after each individual,
    ``failures`` are (kind, count) pairs, the most frequent first, ``limit_s`` is the attainable limit.
    """

    info: RunInfo
    began_s: float
    limit_s: float | None = None
    result: RunResult | None = None
    generation: int = 0
    begun: int = 0
    taken: int = 0
    history: tuple[float, ...] = ()
    population: tuple[Individual, ...] = ()
    failures: tuple[tuple[str, int], ...] = ()
    spent: tuple[tuple[str, float], ...] = ()
    work: tuple[Work, ...] = ()
    stopping: bool = False

    @property
    def last_generation(self) -> int:
        return self.info.epochs * (self.info.generations + 1) - 1

    @property
    def epoch(self) -> int:
        """From one."""
        return self.generation // (self.info.generations + 1) + 1

    @property
    def planned(self) -> int:
        """Candidates there will be at most: the plain one, first populations, and their children."""
        brood = max(1, self.info.population - ELITE)
        return 1 + self.info.epochs * (self.info.population + self.info.generations * brood)

    def at(self, stage: str) -> tuple[Work, ...]:
        """What is at a stage, the longest there first."""
        return tuple(sorted((one for one in self.work if one.stage == stage), key=lambda one: one.since_s))


def fold(state: RunState, event: Progress | Step, now_s: float) -> RunState:
    """The state after an event."""
    return _stepped(state, event, now_s) if isinstance(event, Step) else _progressed(state, event)


def _stepped(state: RunState, step: Step, now_s: float) -> RunState:
    others = tuple(one for one in state.work if one.who != step.who)
    over = step.stage == DONE or (step.stage == REFERENCE and not step.what)
    return replace(state, work=others if over else (*others, Work(step.who, step.stage, step.what, now_s)))


def _progressed(state: RunState, progress: Progress) -> RunState:
    newest = progress.individual if progress.kind == "individual" else None
    history, best_s = state.history, progress.result.best.time_s
    if newest is not None and best_s is not None:
        history = (*history, best_s)
    return replace(
        state,
        result=progress.result,
        generation=max(state.generation, progress.generation),
        begun=progress.begun,
        taken=progress.taken,
        history=history,
        population=progress.population,
        failures=_counted(state.failures, newest),
        spent=progress.spent,
        stopping=state.stopping or progress.kind == "stopping",
    )


def _counted(failures: tuple[tuple[str, int], ...], newest: Individual | None) -> tuple[tuple[str, int], ...]:
    failure = newest.evaluation.failure if newest is not None else None
    if failure is None:
        return failures
    counts = dict(failures)
    counts[failure.kind] = counts.get(failure.kind, 0) + 1
    return tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
