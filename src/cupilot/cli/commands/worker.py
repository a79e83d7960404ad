"""Offer this machine to a Dask cluster: evaluations of `--executor dask` run here, until Ctrl-C.

Start a scheduler with `dask scheduler`.  Builds are cached here, and candidates are confined as they are in a search on
this machine.  A cluster takes workers of one version; others are refused.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from cupilot.cli.choices import positive, settings_of
from cupilot.cli.terminal import Terminal
from cupilot.cli.terminal_observer import TerminalObserver
from cupilot.errors import UserError
from cupilot.runs import open_device

HELP = "evaluate candidates for a Dask cluster"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", required=True, help="the cluster, such as tcp://10.0.0.1:8786"
    )
    parser.add_argument(
        "--slots", metavar="N", type=positive, help="evaluations on virtual GPUs at a time (processors, at most 4)"
    )
    parser.add_argument(
        "--device", metavar="cuda:N", action="append", default=[], help="a GPU to offer; repeatable; then --slots is 0"
    )
    parser.add_argument("--name", metavar="NAME", default="", help="what the cluster calls this worker (its address)")


def run(options: Namespace, terminal: Terminal) -> int:
    from cupilot.devices import DEFAULT
    from cupilot.executors._offer import make_offers
    from cupilot.executors.dask import serve_workers

    for name in options.device:
        if not name.startswith("cuda:"):
            raise UserError(f"--device {name}: a worker offers devices cuda:N; --slots offers virtual ones")
    settings = settings_of(options)
    open_device(DEFAULT, settings, TerminalObserver(terminal))  # makes what is made once on this machine
    slots = options.slots or (0 if options.device else settings.jobs)
    offers = make_offers(slots, options.device, cache=settings.cache, sandbox=settings.sandbox)
    serve_workers(options.scheduler, offers, name=options.name, tell=terminal.line)
    return 0
