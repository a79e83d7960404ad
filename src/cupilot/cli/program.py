"""``main``: from the arguments to an exit status.

0: done; 1: a candidate failed, or the machine lacks something; 2: the user's mistake; 130: Ctrl-C
before there was anything to keep; 143: SIGTERM before there was.  Errors are one sentence on stderr;
``CUPILOT_DEBUG=1`` adds the traceback.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from io import TextIOWrapper
from typing import NoReturn

from cupilot import __version__
from cupilot.cli import commands
from cupilot.cli.environment import debugging
from cupilot.cli.terminal import Terminal, sentence
from cupilot.cli.termination import STATUS, Terminated, terminable
from cupilot.errors import CupilotError, UserError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; never raises but for ``--help`` and ``--version``, which exit."""
    if isinstance(sys.stdout, TextIOWrapper):
        # a file's name or a failure's words may hold what stdout cannot: say it as stderr does
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        options = make_parser().parse_args(argv)
        with terminable():
            return int(options.run(options, Terminal.of(options)))
    except Terminated:
        return _complain("terminated", STATUS)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except UserError as error:
        return _complain(str(error), 2)
    except CupilotError as error:
        return _complain(str(error), 1)
    except Exception as error:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return _complain(f"internal error, {text} (CUPILOT_DEBUG=1 shows where)", 1)


class _Parser(argparse.ArgumentParser):
    """Mistakes are sentences like all others, instead of a usage text."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="cupilot", description="From a PyTorch module to a verified, faster CUDA kernel.")
    parser.add_argument("--version", action="version", version=f"cupilot {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, dest="command")
    for found in pkgutil.iter_modules(commands.__path__):
        module = importlib.import_module(f"{commands.__name__}.{found.name}")
        command = subparsers.add_parser(found.name, help=module.HELP, description=module.__doc__)
        module.configure(command)
        command.set_defaults(run=module.run)
    return parser


def _complain(text: str, status: int) -> int:
    if debugging():
        traceback.print_exc()
    print(sentence(text), file=sys.stderr)
    return status
