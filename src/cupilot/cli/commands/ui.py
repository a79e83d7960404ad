"""Serve the live page: all runs below a folder, their reports while they go on; start, stop, resume, compare.

Only this machine can reach it, unless --host says otherwise; then a token is needed, which is given or made and
printed once.  What the page started is stopped when the server ends (Ctrl-C).
"""

from __future__ import annotations

import socket
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from cupilot.cli.commands import optimize
from cupilot.cli.environment import ui_token
from cupilot.cli.terminal import Terminal
from cupilot.errors import MissingExtra, UserError

if TYPE_CHECKING:
    from cupilot.ui.new_run_form import FormChoices

HELP = "the live page in a browser"
HOST, PORT = "127.0.0.1", 8717
RUNS = "runs"
PACKAGES = ("starlette", "uvicorn")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="RUNS_DIR", nargs="?", help=f"the folder of the runs ({RUNS})")
    parser.add_argument("--port", metavar="N", type=int, default=PORT, help=f"0 takes any that is free ({PORT})")
    parser.add_argument("--host", metavar="H", default=HOST, help=f"the address to listen at ({HOST})")
    parser.add_argument("--token", metavar="T", help="what a browser has to show first; see also CUPILOT_UI_TOKEN")


def run(options: Namespace, terminal: Terminal) -> int:
    try:
        from cupilot.ui.process_manager import start_cupilot
        from cupilot.ui.server import LiveServer, Settings
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package not in PACKAGES:
            raise
        raise MissingExtra(f"the live page needs the Python package {package}: install cupilot[web]") from error
    root = Path(RUNS if options.folder is None else options.folder)
    if options.folder is None:
        root.mkdir(exist_ok=True)
    if not root.is_dir():
        raise UserError(f"there is no folder {root}")
    token = options.token if options.token is not None else ui_token()
    settings = Settings(root.resolve(), options.host, options.port, token, (socket.gethostname(), socket.getfqdn()))
    server = LiveServer(settings, choices(), start_cupilot, time.time)
    terminal.line(f"runs below {root}: {server.address} (Ctrl-C ends it)")
    if server.access.token is not None and token is None:
        terminal.line(f"token, shown only now: {server.access.token}")
        terminal.line(f"or open {server.address}login?token={server.access.token}")
    server.run()
    return 0


def choices() -> FormChoices:
    """What the form for a new run offers; the defaults are those of ``cupilot optimize``."""
    from cupilot.devices import default_device, device_names
    from cupilot.ui.new_run_form import FormChoices

    parser = ArgumentParser()
    optimize.configure(parser)
    numbers = [parser.get_default(name) for name in ("population", "generations", "epochs", "seed")]
    return FormChoices(device_names(), default_device()[0], *numbers)
