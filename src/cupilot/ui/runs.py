"""Runs as frozen records, read from their stores; nothing is written.

A store is read again only when it has changed, so polling a hundred runs every second is cheap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from cupilot.errors import StoreError
from cupilot.evolution.progress import WHY
from cupilot.evolution.ranking import WIDEST_TIE, best_of
from cupilot.evolution.result import moves_text
from cupilot.evolution.store import FILE, LOG, SqliteStore, read_store
from cupilot.records import Individual, Outline, RunInfo, Timing
from cupilot.records.verdict import verdict_sentence
from cupilot.ui.paths import SEPARATOR, below, folders_with
from cupilot.ui.run_lock import is_running

RUNNING, STOPPED, FINISHED, UNREADABLE = STATES = ("running", "stopped", "finished", "unreadable")
INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class BestKernel:
    """The fastest kernel of a run; ``baseline`` is PyTorch's time, ``plain_s`` the plain kernel's."""

    id: int
    generation: int
    timing: Timing
    baseline: Timing | None
    speedup: float | None
    plain_s: float
    strategy: str
    verdict: str


@dataclass(frozen=True)
class RunSummary:
    """A summary of a run.  ``name`` is its folder's path below the runs folder.

    ``state`` is one of `STATES`; ``why`` says why the run ended or cannot be read.  ``best_times_s`` is the best time
    after each timed individual, ``failures`` are (stage and kind, count) pairs, ``changed_s`` is the time of the last
    change.
    """

    name: str
    state: str
    info: RunInfo | None = None
    best: BestKernel | None = None
    individuals: int = 0
    generation: int = 0
    failures: tuple[tuple[str, int], ...] = ()
    best_times_s: tuple[float, ...] = ()
    why: str = ""
    changed_s: float = 0.0

    @property
    def failed(self) -> int:
        return sum(count for _, count in self.failures)

    @property
    def last_generation(self) -> int:
        """The number of the last generation, if the run does not end early."""
        return 0 if self.info is None else self.info.epochs * (self.info.generations + 1) - 1


Files = tuple[tuple[int, int], ...]
Stamp = tuple[bool, Files, tuple[int, int]]
"""Changes with the run: whether it is running, its files' times and sizes and, while it is running, its counts."""


class RunsFolder:
    """All runs below one folder; thread-safe."""

    def __init__(self, root: Path, is_running: Callable[[Path], bool] = is_running) -> None:
        self.root = root
        self._is_running = is_running
        self._lock = Lock()
        self._known: dict[str, tuple[Stamp, RunSummary]] = {}

    def path(self, name: str) -> Path | None:
        """The folder of a run; None if there is none below the root."""
        folder = below(self.root, name)
        # the store itself may be a link to a file elsewhere
        if folder is None or not folder.is_dir() or below(self.root, f"{name}{SEPARATOR}{FILE}") is None:
            return None
        return folder

    def names(self) -> Iterator[str]:
        yield from (name for name in folders_with(self.root, FILE) if self.path(name) is not None)

    def summaries(self) -> tuple[RunSummary, ...]:
        """All runs: running ones first, then the most recently changed."""
        found = [each for name in self.names() if (each := self.summary(name)) is not None]
        with self._lock:
            for gone in self._known.keys() - {each.name for each in found}:
                del self._known[gone]
        return tuple(sorted(found, key=lambda each: (each.state != RUNNING, -each.changed_s, each.name)))

    def summary(self, name: str) -> RunSummary | None:
        """One run, or None."""
        folder = self.path(name)
        if folder is None:
            return None
        # taken before the store is read: what is added meanwhile changes the stamp, and is read the next time
        running = self._is_running(folder)
        stamp = (running, _files(folder), _counts(folder) if running else (0, 0))
        with self._lock:
            known = self._known.get(name)
        if known is None or known[0] != stamp:
            known = (stamp, _read(name, folder))
            with self._lock:
                self._known[name] = known
        summary = known[1]
        # a store that is being created cannot be read yet; that is not an error
        return replace(summary, state=RUNNING, why="") if running else summary


def _counts(folder: Path) -> tuple[int, int]:
    """The files are not enough: SQLite writes its log before readers see the contents."""
    try:
        with closing(read_store(folder)) as store:
            return store.counts()
    except StoreError:
        return 0, 0


def _files(folder: Path) -> Files:
    found = []
    for name in (FILE, LOG):
        try:
            status = (folder / name).stat()
        except OSError:
            continue
        found.append((status.st_mtime_ns, status.st_size))
    return tuple(found)


def _changed_s(folder: Path) -> float:
    # readers create empty logs
    return max((changed for changed, size in _files(folder) if size), default=0) * 1e-9


def _read(name: str, folder: Path) -> RunSummary:
    try:
        with closing(read_store(folder)) as store:
            return _summarise(name, store, _changed_s(folder))
    except StoreError as error:
        return RunSummary(name, UNREADABLE, why=str(error), changed_s=_changed_s(folder))


def _summarise(name: str, store: SqliteStore, changed_s: float) -> RunSummary:
    if not store.begun:
        return RunSummary(name, STOPPED, why="it has no results yet", changed_s=changed_s)
    result = store.result()
    state = STOPPED if result is None or result.stopped == INTERRUPTED else FINISHED
    why = "it was killed, or its process ended early" if result is None else WHY.get(result.stopped, result.stopped)
    outlines = store.outlines()
    ranked = _ranked(outlines)
    failures = Counter(each.failure for each in outlines if each.failure is not None)
    return RunSummary(
        name,
        state,
        store.info(),
        _best(store, ranked),
        len(outlines),
        max((each.generation for each in outlines), default=0),
        tuple(failures.most_common()),
        tuple(_best_times_s(ranked)),
        why,
        changed_s,
    )


def _ranked(outlines: tuple[Outline, ...]) -> tuple[Outline, ...]:
    """The timed individuals of one source and device: times of different kinds are never ranked together."""
    timed = [each for each in outlines if each.time_s is not None]
    return tuple(each for each in timed if (each.source, each.device) == (timed[0].source, timed[0].device))


def _best_times_s(ranked: tuple[Outline, ...]) -> Iterator[float]:
    best_s = float("inf")
    for each in ranked:
        assert each.time_s is not None
        best_s = min(best_s, each.time_s)
        yield best_s


def _best(store: SqliteStore, ranked: tuple[Outline, ...]) -> BestKernel | None:
    if not ranked:
        return None
    fastest_s = min(each.time_s for each in ranked if each.time_s is not None)
    # no tie is wider: the others' records need not be read
    near = [each.id for each in ranked if each.time_s is not None and each.time_s * (1.0 - WIDEST_TIE) <= fastest_s]
    best: Individual = best_of(map(store.individual, near), store.info().tie)
    evaluation = best.evaluation
    assert evaluation.timing is not None, "ranked individuals have a time"
    return BestKernel(
        best.id,
        best.generation,
        evaluation.timing,
        evaluation.baseline,
        evaluation.speedup,
        ranked[0].time_s or 0.0,
        moves_text(best.strategy),
        verdict_sentence(evaluation),
    )
