"""Resume a run that was stopped or killed; it ends as it would have ended.

The run is repeated from its seed; evaluations that its store holds are not made again.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from cupilot.cli.choices import add_jobs, add_json, settings_of
from cupilot.cli.run_table import show_result
from cupilot.cli.terminal import Terminal
from cupilot.cli.terminal_observer import TerminalObserver

HELP = "resume a run that was stopped"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="RUN", help="the run's folder")
    add_json(parser)
    add_jobs(parser)
    parser.add_argument("--quiet", action="store_true", help="say nothing but errors")


def run(options: Namespace, terminal: Terminal) -> int:
    from cupilot.runs import resume
    from cupilot.runs.session import TASK_FILE

    folder = Path(options.folder)
    result = resume(folder, settings_of(options), TerminalObserver(terminal))
    show_result(result, terminal, folder / TASK_FILE, result.info.device)
    return 0
