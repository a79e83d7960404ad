"""What the report of a benchmark over a suite shows: rows, figures over them, and one chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cupilot.evolution.bench_results import FAST, BenchRow, Figures, by_category, comparisons, figures, other_systems
from cupilot.numbers import PAGE
from cupilot.report.chart import Row, chart, fine_ticks
from cupilot.report.run_charts import Chart
from cupilot.tasks.suite import TITLES

OURS = "this benchmark"
BAND = 16
"""Height of one system in one category."""


@dataclass(frozen=True)
class Recorded:
    """Another system's time for a problem; ``broken``: its kernel does not compute the operator."""

    system: str
    time_ms: float | None
    speedup: float | None
    broken: bool


@dataclass(frozen=True)
class SuiteRow:
    result: BenchRow
    others: tuple[Recorded, ...]


@dataclass(frozen=True)
class SuiteView:
    """A whole report; ``systems`` are the titles of the others in the order of `SuiteRow.others`."""

    name: str
    rows: tuple[SuiteRow, ...]
    categories: tuple[str, ...]
    systems: tuple[str, ...]
    whole: Figures
    comparisons: tuple[tuple[str, Figures], ...]
    fast: tuple[float, ...]
    chart: Chart | None
    sources: tuple[str, ...]
    broken: int


def suite_view(name: str, rows: Sequence[BenchRow]) -> SuiteView:
    systems = tuple(system for system in other_systems() if any(system in dict(s.recorded_ms) for s in rows))
    return SuiteView(
        name=name,
        rows=tuple(SuiteRow(each, tuple(recorded(each, system) for system in systems)) for each in rows),
        categories=tuple(by_category(rows)),
        systems=tuple(TITLES[system] for system in systems),
        whole=figures(rows),
        comparisons=tuple((title, found) for title, found in comparisons(rows) if found.problems),
        fast=FAST,
        chart=speedups(rows, systems),
        sources=tuple(dict.fromkeys(each.source for each in rows if each.source)),
        broken=sum(len(each.broken) for each in rows),
    )


def recorded(each: BenchRow, system: str) -> Recorded:
    time_ms = dict(each.recorded_ms).get(system)
    return Recorded(system, time_ms, each.recorded_speedup(system), system in each.broken)


def speedups(rows: Sequence[BenchRow], systems: Sequence[str]) -> Chart | None:
    """Every problem as a dot, ours and the others'; None while there is no speed-up at all."""
    dots: list[Row] = []
    for each in rows:
        if each.speedup is not None and each.time_ms is not None:
            dots.append(_dot(each, OURS, each.speedup, f"{PAGE.duration(each.time_ms / 1e3)} ({each.source})"))
        for system in systems:
            found = recorded(each, system)
            if found.speedup is not None and found.time_ms is not None:
                dots.append(
                    _dot(each, TITLES[system], found.speedup, f"{PAGE.duration(found.time_ms / 1e3)} (recorded)")
                )
    if not dots:
        return None
    values = [float(str(dot["x"])) for dot in dots]
    domain = [min(*values, 1.0) / 1.3, max(*values, 1.0) * 1.3]
    text = chart(
        "suite", {"dots": dots, "one": [{"x": 1.0}]},
        description=f"Speed-up over PyTorch of {len(rows)} problems, by category",
        x_domain=domain, x_ticks=fine_ticks(*domain), categories=list(by_category(rows)),
        systems=[OURS, *(TITLES[system] for system in systems)],
        height=BAND * len(by_category(rows)) * (1 + len(systems)),
    )  # fmt: skip
    return Chart(text, ("right of the dashed line is faster than PyTorch; kernels known to be wrong are left out",))


def _dot(each: BenchRow, system: str, speedup: float, time: str) -> Row:
    return {
        "problem": each.name, "category": each.category, "system": system, "x": speedup, "speedup": PAGE.ratio(speedup),
        "time": time, "label": f"{each.name}, {system}: {PAGE.ratio(speedup)}",
    }  # fmt: skip
