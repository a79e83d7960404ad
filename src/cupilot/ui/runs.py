"""Runs as frozen records, read from their stores and never written.

A store is read again only when it has changed, so that looking at a hundred runs every second costs little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from cupilot.errors import StoreError
from cupilot.evolution.ledger import fitness
from cupilot.evolution.loop import WHY
from cupilot.evolution.result import moves_text
from cupilot.evolution.store import FILE, LOG, SqliteStore, read_store
from cupilot.records import Individual, Outline, RunInfo, Timing
from cupilot.ui.paths import SEPARATOR, below, holders
from cupilot.ui.writing import is_written

RUNNING, STOPPED, FINISHED, UNREADABLE = STATES = ("running", "stopped", "finished", "unreadable")
INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Best:
    """The fastest kernel of a run; ``timing`` says where its time is from, ``baseline`` is PyTorch's."""

    id: int
    generation: int
    timing: Timing
    baseline: Timing | None
    speedup: float | None
    plain_s: float
    strategy: str


@dataclass(frozen=True)
class RunSummary:
    """A run at a glance.  ``name`` is its folder's path below the runs folder.

    ``state`` is one of `STATES`; ``why`` says why it ended or cannot be read.  ``course_s`` is the best time after
    each individual that has one, ``failures`` are (stage and kind, count) pairs, ``changed_s`` is the time of day of
    the last change.
    """

    name: str
    state: str
    info: RunInfo | None = None
    best: Best | None = None
    individuals: int = 0
    generation: int = 0
    failures: tuple[tuple[str, int], ...] = ()
    course_s: tuple[float, ...] = ()
    why: str = ""
    changed_s: float = 0.0

    @property
    def failed(self) -> int:
        return sum(count for _, count in self.failures)

    @property
    def last_generation(self) -> int:
        """The number of the last generation, if the run goes on to its end."""
        return 0 if self.info is None else self.info.epochs * (self.info.generations + 1) - 1


Files = tuple[tuple[int, int], ...]
Stamp = tuple[bool, Files, tuple[int, int]]
"""Differs when a run does: whether it goes on, its files' times and sizes and, if it goes on, what was counted."""


class RunsFolder:
    """All runs below one folder.  For any thread."""

    def __init__(self, root: Path, written: Callable[[Path], bool] = is_written) -> None:
        self.root = root
        self._written = written
        self._lock = Lock()
        self._known: dict[str, tuple[Stamp, RunSummary]] = {}

    def path(self, name: str) -> Path | None:
        """The folder of a run; None where there is none, or it is not below the root."""
        folder = below(self.root, name)
        # the store may itself be a link to somewhere else
        if folder is None or not folder.is_dir() or below(self.root, f"{name}{SEPARATOR}{FILE}") is None:
            return None
        return folder

    def names(self) -> Iterator[str]:
        yield from (name for name in holders(self.root, FILE) if self.path(name) is not None)

    def summaries(self) -> tuple[RunSummary, ...]:
        """All runs, those that changed last first."""
        found = [each for name in self.names() if (each := self.summary(name)) is not None]
        with self._lock:
            for gone in self._known.keys() - {each.name for each in found}:
                del self._known[gone]
        return tuple(sorted(found, key=lambda each: (each.state != RUNNING, -each.changed_s, each.name)))

    def summary(self, name: str) -> RunSummary | None:
        """One run; None where there is none."""
        folder = self.path(name)
        if folder is None:
            return None
        # before the store is read: what is added meanwhile changes the stamp, and is read the next time
        running = self._written(folder)
        stamp = (running, _files(folder), _counts(folder) if running else (0, 0))
        with self._lock:
            known = self._known.get(name)
        if known is None or known[0] != stamp:
            known = (stamp, _read(name, folder))
            with self._lock:
                self._known[name] = known
        summary = known[1]
        # a store that is just being made cannot be read yet, which is no news
        return replace(summary, state=RUNNING, why="") if running else summary


def _counts(folder: Path) -> tuple[int, int]:
    """The files alone do not tell: SQLite writes its log before readers see what is in it."""
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
    # an empty log is one that some reader's SQLite has made
    return max((changed for changed, size in _files(folder) if size), default=0) * 1e-9


def _read(name: str, folder: Path) -> RunSummary:
    try:
        with closing(read_store(folder)) as store:
            return _summarise(name, store, _changed_s(folder))
    except StoreError as error:
        return RunSummary(name, UNREADABLE, why=str(error), changed_s=_changed_s(folder))


def _summarise(name: str, store: SqliteStore, changed_s: float) -> RunSummary:
    if not store.begun:
        return RunSummary(name, STOPPED, why="nothing was kept yet", changed_s=changed_s)
    result = store.result()
    state = STOPPED if result is None or result.stopped == INTERRUPTED else FINISHED
    why = "it was killed, or its program ended early" if result is None else WHY.get(result.stopped, result.stopped)
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
        tuple(_course_s(ranked)),
        why,
        changed_s,
    )


def _ranked(outlines: tuple[Outline, ...]) -> tuple[Outline, ...]:
    """Those with times of one kind: modelled and measured ones, or of two devices, are never ranked together."""
    timed = [each for each in outlines if each.time_s is not None]
    return tuple(each for each in timed if (each.source, each.device) == (timed[0].source, timed[0].device))


def _course_s(ranked: tuple[Outline, ...]) -> Iterator[float]:
    best_s = float("inf")
    for each in ranked:
        assert each.time_s is not None
        best_s = min(best_s, each.time_s)
        yield best_s


def _best(store: SqliteStore, ranked: tuple[Outline, ...]) -> Best | None:
    if not ranked:
        return None
    fastest_s = min(each.time_s for each in ranked if each.time_s is not None)
    best: Individual = min((store.individual(each.id) for each in ranked if each.time_s == fastest_s), key=fitness)
    evaluation = best.evaluation
    assert evaluation.timing is not None, "ranked individuals have a time"
    return Best(
        best.id,
        best.generation,
        evaluation.timing,
        evaluation.baseline,
        evaluation.speedup,
        ranked[0].time_s or 0.0,
        moves_text(best.strategy),
    )
