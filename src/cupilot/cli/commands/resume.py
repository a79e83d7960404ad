"""Go on with a run that was stopped or killed; it ends as it would have ended then.

The run is repeated from its seed; evaluations that its store holds are not made again.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from cupilot import __version__
from cupilot.cli.choices import add_json, choose_device, positive
from cupilot.cli.pooling import PoolMemory, pool_path
from cupilot.cli.searching import Search, run_search, show
from cupilot.cli.team import Lengths, open_team
from cupilot.cli.terminal import Terminal
from cupilot.errors import StoreError
from cupilot.evolution.result import replace_file
from cupilot.evolution.store import open_store

HELP = "go on with a run that was stopped"
TASK_FILE = "task.py"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="RUN", help="the run's folder")
    add_json(parser)
    parser.add_argument("--jobs", metavar="N", type=positive, help="evaluations at a time (processors, at most 4)")
    parser.add_argument("--quiet", action="store_true", help="say nothing but errors")


def run(options: Namespace, terminal: Terminal) -> int:
    from cupilot.tasks import load_task

    folder = Path(options.folder)
    store = open_store(folder)
    try:
        info = store.info()
        if info.version != __version__:
            raise StoreError(f"{folder} was begun by cupilot {info.version}; this is {__version__}")
        # the user's file may have changed or moved since; the store has it as it was
        replace_file(folder / TASK_FILE, info.task_source)
        task = replace(load_task(folder / TASK_FILE, info.precision), name=info.task)
        device = choose_device(info.device, terminal)
        if info.gpu and info.gpu != device.spec.name:
            raise StoreError(f"{folder} was begun on {info.gpu}; {device.name} is {device.spec.name} here")
        known = store.repeat()
        memory = PoolMemory(task, info, store, pool_path(store, None))
        team = open_team(info, store, memory.deck, Lengths())
        terminal.line(f"run {folder}: seed {info.seed}, {len(known)} individuals so far")
        search = Search(task, device, team, info, folder, store, memory, known, options.jobs)
        result = run_search(search, terminal)
    finally:
        store.close()
    show(result, terminal, folder / TASK_FILE, info.device)
    return 0
