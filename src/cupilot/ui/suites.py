"""Benchmarks of a suite as frozen records, read from the results of ``cupilot bench``; nothing is written."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from threading import Lock

from cupilot.errors import UserError
from cupilot.evolution.bench_results import RESULTS_JSON, figures, read_bench_rows
from cupilot.ui.paths import SEPARATOR, below, folders_with

Stamp = tuple[int, int]


@dataclass(frozen=True)
class SuiteSummary:
    """A summary of a benchmark.  ``name`` is its folder's path below the runs folder, empty for that folder itself.

    ``speedup`` is the geometric mean over PyTorch, ``sources`` the sources of its times; ``why`` says why it cannot be
    read.
    """

    name: str
    title: str
    problems: int = 0
    correct: int = 0
    speedup: float | None = None
    sources: tuple[str, ...] = ()
    why: str = ""
    changed_s: float = 0.0

    def holds(self, run: str) -> bool:
        """Whether a run belongs to this benchmark."""
        return not self.name or run.startswith(self.name + SEPARATOR)


class SuitesFolder:
    """All benchmarks below one folder, which may be a benchmark itself; thread-safe."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = Lock()
        self._known: dict[str, tuple[Stamp, SuiteSummary]] = {}

    def path(self, name: str) -> Path | None:
        """The folder of a benchmark; None if there is none below the root."""
        results = below(self.root, f"{name}{SEPARATOR}{RESULTS_JSON}" if name else RESULTS_JSON)
        if results is None or not results.is_file():
            return None
        return below(self.root, name) if name else self.root.resolve()

    def summaries(self) -> tuple[SuiteSummary, ...]:
        """All benchmarks, the most recently changed first."""
        names = folders_with(self.root, RESULTS_JSON)
        found = [summary for name in names if (summary := self.summary(name)) is not None]
        with self._lock:
            for gone in self._known.keys() - {each.name for each in found}:
                del self._known[gone]
        return tuple(sorted(found, key=lambda each: (-each.changed_s, each.name)))

    def summary(self, name: str) -> SuiteSummary | None:
        """One benchmark, or None; read again only when its results have changed."""
        folder = self.path(name)
        if folder is None:
            return None
        try:
            status = (folder / RESULTS_JSON).stat()
        except OSError:  # removed meanwhile
            return None
        stamp = (status.st_mtime_ns, status.st_size)
        with self._lock:
            known = self._known.get(name)
        if known is None or known[0] != stamp:
            known = (stamp, _read(name, folder, status.st_mtime))
            with self._lock:
                self._known[name] = known
        return known[1]


def _read(name: str, folder: Path, changed_s: float) -> SuiteSummary:
    title = name or folder.name
    try:
        rows = read_bench_rows(folder)
    except UserError as error:
        return SuiteSummary(name, title, why=str(error), changed_s=changed_s)
    found = figures(rows)
    sources = (source for each in rows for source in (each.source, each.baseline_source) if source)
    return SuiteSummary(
        name, title, found.problems, found.correct, found.geometric if isfinite(found.geometric) else None,
        tuple(dict.fromkeys(sources)), changed_s=changed_s,
    )  # fmt: skip
