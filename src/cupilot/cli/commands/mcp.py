"""Serve the Model Context Protocol on standard input and output, for coding agents: evaluate, profile, run and more.

Paths that an agent names must lie below the working folder.
"""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path

from cupilot.cli.environment import cache_folder, sandbox_choice
from cupilot.cli.terminal import Terminal
from cupilot.errors import MissingExtra

HELP = "serve coding agents (Model Context Protocol)"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--root", metavar="DIR", default=".", help="the folder that paths must lie below (this one)")


def run(options: Namespace, terminal: Terminal) -> int:
    if find_spec("mcp") is None:
        raise MissingExtra("cupilot mcp needs the package mcp: pip install 'cupilot[mcp]'")
    from cupilot.mcp.server import make_server

    # there is nothing to keep, and reading standard input, which a thread does, cannot be interrupted
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    root = Path(options.root).resolve()
    worker = (sys.executable, "-P", "-m", "cupilot.mcp.worker", str(cache_folder()), sandbox_choice())
    make_server(worker, root).run("stdio")
    return 0
