"""From a folder to a page."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from cupilot.errors import UserError
from cupilot.evolution.standings import RESULTS_JSON, read_standings
from cupilot.evolution.store import open_store
from cupilot.report.render import render


def run_report(folder: Path) -> str:
    """The HTML text for a run's folder; the run may still be going on."""
    with closing(open_store(folder)) as store:
        title = store.info().task if store.begun else folder.name
        count = sum(1 for _ in store.individuals())
    return render("run.html.j2", title=title, count=count)


def suite_report(folder: Path) -> str:
    """The HTML text for a folder of ``cupilot bench level1``; the benchmark may still be going on."""
    standings = read_standings(folder)
    if not standings:
        raise UserError(f"{folder} holds no results of a benchmark: there is no {RESULTS_JSON} in it")
    return render("suite.html.j2", title=folder.name, count=len(standings))
