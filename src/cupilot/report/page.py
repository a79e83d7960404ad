"""From a folder to a page."""

from __future__ import annotations

from pathlib import Path

from cupilot.errors import UserError
from cupilot.evolution.bench_results import RESULTS_JSON, read_bench_rows
from cupilot.records import to_plain
from cupilot.report.data import run_view
from cupilot.report.render import as_data, render
from cupilot.report.run import read_run
from cupilot.report.suite import suite_view


def run_report(folder: Path) -> str:
    """The HTML text for a run's folder; the run may still be going on."""
    view = run_view(read_run(folder))
    return render(
        "run.html.j2", ("tips", "charts", "diff", "lineage"), view=view, sources=as_data(to_plain(view.sources))
    )


def suite_report(folder: Path) -> str:
    """The HTML text for a folder of ``cupilot bench level1``; the benchmark may still be going on."""
    rows = read_bench_rows(folder)
    if not rows:
        raise UserError(f"{folder} holds no results of a benchmark: there is no {RESULTS_JSON} in it")
    return render("suite.html.j2", ("tips", "charts", "table"), view=suite_view(folder.absolute().name, rows))
