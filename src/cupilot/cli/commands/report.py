"""Write a report that opens in a browser: one HTML file of a run, or of a benchmark over a suite.

The file needs nothing else: no server, no network.  A run that is still going on is shown as far as it is.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from cupilot.cli.choices import add_json
from cupilot.cli.terminal import Terminal
from cupilot.errors import UserError
from cupilot.evolution.bench_results import RESULTS_JSON
from cupilot.evolution.result import replace_file
from cupilot.evolution.store import FILE, holds_run

HELP = "an HTML page of a run or a benchmark"
REPORT = "report.html"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="RUN", help="the folder of a run, or of cupilot bench level1")
    parser.add_argument("--out", metavar="FILE.html", help=f"what to write ({REPORT} in the folder)")
    add_json(parser)


def run(options: Namespace, terminal: Terminal) -> int:
    folder = Path(options.folder)
    out = folder / REPORT if options.out is None else Path(options.out)
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    if not out.absolute().parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.absolute().parent}")
    if out.is_dir():
        raise UserError(f"--out {out}: that is a folder")
    if not holds_run(folder) and not (folder / RESULTS_JSON).exists():
        raise UserError(f"{folder} holds neither a run ({FILE}) nor the results of a benchmark ({RESULTS_JSON})")

    from cupilot.report import run_report, suite_report

    text = run_report(folder) if holds_run(folder) else suite_report(folder)
    replace_file(out, text)
    terminal.line(f"report: {out}")
    terminal.report({"report": str(out)})
    return 0
