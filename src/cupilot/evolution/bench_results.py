"""What a benchmark over a suite comes to: one row per problem, and figures over many of them."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from io import StringIO
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import Any

from cupilot.errors import DataError
from cupilot.evolution.result import replace_file, to_json
from cupilot.files import read_json
from cupilot.records import from_plain, to_plain
from cupilot.tasks.suite import SYSTEMS, TITLES

RESULTS_CSV, RESULTS_JSON = "results.csv", "results.json"
FAST = (1.0, 1.5, 2.0)
"""Speed-ups p of fast_p: the share of all problems with a correct kernel that is faster by more than p."""


@dataclass(frozen=True)
class BenchRow:
    """One problem.  ``baseline_ms`` is PyTorch's time and ``baseline_source`` where it is from (``recorded``,
    ``modelled`` or ``measured``); ``plain_ms`` is the first kernel's time, ``source`` where our times are from;
    ``kernel`` is a path; ``why`` says in words what went wrong where nothing is correct."""

    problem: int
    name: str
    category: str
    correct: bool
    time_ms: float | None
    baseline_ms: float | None
    speedup: float | None
    precision: str
    roofline_fraction: float | None
    evaluations: int
    kernel: str
    baseline_source: str = ""
    source: str = ""
    plain_ms: float | None = None
    roofline_ms: float | None = None
    stopped: str = ""
    why: str = ""
    recorded_ms: tuple[tuple[str, float], ...] = ()
    broken: tuple[str, ...] = ()

    def recorded_speedup(self, system: str) -> float | None:
        """Of another system over PyTorch, both as recorded; None where there is no time, or one that means nothing."""
        times = dict(self.recorded_ms)
        if system in self.broken or system not in times or "pytorch" not in times:
            return None
        return times["pytorch"] / times[system]


COLUMNS = tuple(each.name for each in fields(BenchRow))[:11]
"""What results.csv has; the rest is in results.json."""


@dataclass(frozen=True)
class Figures:
    """Over some problems: how many there are and have a kernel, speed-ups, and the share of the roofline reached."""

    problems: int
    correct: int
    fast: tuple[float, ...]
    mean: float
    geometric: float
    median: float
    roofline: float


def figures(
    rows: Sequence[BenchRow], speedup: Callable[[BenchRow], float | None] = lambda each: each.speedup
) -> Figures:
    """Over the problems that have a speed-up; `fast` and `correct` are over all that are given."""
    found = [value for each in rows if (value := speedup(each)) is not None and value > 0]
    shares = [each.roofline_fraction for each in rows if each.roofline_fraction is not None]
    count = max(len(rows), 1)
    return Figures(
        len(rows),
        sum(each.correct for each in rows),
        tuple(sum(value > p for value in found) / count for p in FAST),
        fmean(found) if found else math.nan,
        geometric_mean(found) if found else math.nan,
        median(found) if found else math.nan,
        fmean(shares) if shares else math.nan,
    )


def by_category(rows: Sequence[BenchRow]) -> dict[str, tuple[BenchRow, ...]]:
    names = dict.fromkeys(each.category for each in rows)
    return {name: tuple(each for each in rows if each.category == name) for name in names}


def recorded_ones(rows: Sequence[BenchRow]) -> list[BenchRow]:
    return [each for each in rows if each.baseline_source == "recorded"]


def other_systems() -> tuple[str, ...]:
    """Those whose times are recorded, PyTorch aside."""
    return tuple(system for system in SYSTEMS if system != "pytorch")


def comparisons(rows: Sequence[BenchRow]) -> list[tuple[str, Figures]]:
    """By category, over all recorded problems, and against other systems where their kernels are right."""
    listed = recorded_ones(rows)
    found = [(name, figures(each)) for name, each in by_category(listed).items()]
    found.append(("all recorded", figures(listed)))
    sound = [each for each in listed if not each.broken]
    found.append(("without wrong published ones", figures(sound)))
    for system in other_systems():
        own = [each for each in sound if each.recorded_speedup(system) is not None]
        found.append((f"{TITLES[system]}, where right", others_figures(own, system)))
        found.append(("  ours on the same", figures(own)))
    rest = [each for each in rows if each.baseline_source == "modelled"]
    if rest:
        found.append(("PyTorch modelled, the others", figures(rest)))
    return found


def others_figures(rows: Sequence[BenchRow], system: str) -> Figures:
    """As the other system has them, whose kernels are right; how much of the roofline it reached is not recorded."""
    found = figures(rows, lambda each: each.recorded_speedup(system))
    return replace(found, correct=len(rows), roofline=math.nan)


# --- files ---------------------------------------------------------------------------------------


def write_csv(path: Path, rows: Iterable[BenchRow]) -> None:
    """results.csv, replaced as a whole; numbers with five digits, what is not known is empty."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in rows:
        writer.writerow([_cell(getattr(each, name)) for name in COLUMNS])
    replace_file(path, text.getvalue())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def write_bench_rows(folder: Path, rows: Sequence[BenchRow]) -> None:
    """results.csv for tables and results.json with everything, each replaced as a whole."""
    write_csv(folder / RESULTS_CSV, rows)
    replace_file(folder / RESULTS_JSON, to_json({"results": to_plain(rows)}))


def read_bench_rows(folder: Path) -> tuple[BenchRow, ...]:
    """What a folder's results.json holds; nothing when there is none."""
    path = folder / RESULTS_JSON
    if not path.exists():
        return ()
    data = read_json(path, "the results of a benchmark")
    try:
        return tuple(from_plain(BenchRow, each, where=path.name) for each in data["results"])
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} is no result of this version: {error}") from error
