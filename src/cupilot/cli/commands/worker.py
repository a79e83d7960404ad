"""Offer this machine to a Dask cluster: evaluations of `--executor dask` run here, until Ctrl-C.

Start a scheduler with `dask scheduler`.  Builds are cached here, and candidates are confined as they are in a search on
this machine.  A cluster takes workers of one version; others are refused.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from cupilot.cli.choices import positive
from cupilot.cli.environment import cache_folder, sandbox_choice
from cupilot.cli.terminal import Terminal
from cupilot.cli.terminal_observer import TerminalObserver
from cupilot.errors import UserError
from cupilot.runs.options import default_jobs
from cupilot.runs.session import prepare

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
    from cupilot.devices import DEFAULT, open_device
    from cupilot.executors._offer import make_offers
    from cupilot.executors.dask import serve_workers

    for name in options.device:
        if not name.startswith("cuda:"):
            raise UserError(f"--device {name}: a worker offers devices cuda:N; --slots offers virtual ones")
    cache, sandbox = cache_folder(), sandbox_choice()
    prepare(open_device(DEFAULT, cache, sandbox), TerminalObserver(terminal))
    slots = options.slots or (0 if options.device else default_jobs())
    offers = make_offers(slots, options.device, cache=cache, sandbox=sandbox)
    serve_workers(options.scheduler, offers, name=options.name, tell=terminal.line)
    return 0
