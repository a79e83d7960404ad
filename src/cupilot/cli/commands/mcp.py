"""Serve the Model Context Protocol on standard input and output, for coding agents: evaluate, profile, run and more.

Paths that an agent names must lie below the working folder.
"""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path

from cupilot.cli.choices import choose_device
from cupilot.cli.environment import cache_folder, sandbox_choice
from cupilot.cli.terminal import Terminal
from cupilot.errors import MissingExtra

HELP = "serve coding agents (Model Context Protocol)"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--root", metavar="DIR", default=".", help="the folder that paths must lie below (this one)")
    parser.add_argument(
        "--connect", metavar="SOCKET", help="serve the tools of a run that started this agent, and nothing else"
    )
    parser.add_argument(
        "--task", metavar="TASK.py", help="serve the tools for writing one kernel for this task instead"
    )
    parser.add_argument("--kernel", metavar="FILE", help="with --task: the kernel to start from and compare with")
    parser.add_argument("--out", metavar="FILE", default="submitted.cu", help="with --task: where a submission goes")
    parser.add_argument("--device", metavar="D", help="with --task: whose time counts")


def run(options: Namespace, terminal: Terminal) -> int:
    if find_spec("mcp") is None:
        raise MissingExtra("cupilot mcp needs the package mcp: pip install 'cupilot[mcp]'")
    if options.connect:
        from cupilot.mcp.kernel_server import serve_socket

        return serve_socket(Path(options.connect))
    if options.task:
        return serve_task(options, terminal)
    from cupilot.mcp.server import make_server

    # there is nothing to keep, and reading standard input, which a thread does, cannot be interrupted
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    root = Path(options.root).resolve()
    worker = (sys.executable, "-P", "-m", "cupilot.mcp.worker", str(cache_folder()), sandbox_choice())
    make_server(worker, root).run("stdio")
    return 0


def serve_task(options: Namespace, terminal: Terminal) -> int:
    """The tools of who writes a kernel, for one task on one device of this machine."""
    from cupilot.languages import read_kernel
    from cupilot.mcp.kernel_server import serve
    from cupilot.mcp.task_tools import TaskTools

    kernel = None if options.kernel is None else read_kernel(Path(options.kernel))
    with TaskTools.opened(
        Path(options.task), choose_device(options.device, terminal), kernel, Path(options.out),
        cache_folder(), sandbox_choice(),
    ) as tools:  # fmt: skip
        serve(tools.specs, tools.call)
    return 0
