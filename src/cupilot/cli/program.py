"""``main``: from the arguments to an exit status.

0: done, with a verdict where one was asked for; 1: a candidate failed, or the machine lacks something; 2: the user's
mistake; 3: a bug of ours; 130: Ctrl-C before there was anything to keep; 143: SIGTERM before there was.  Errors are one
sentence on stderr, and with ``--json`` an object ``{"error": ...}`` as well; ``CUPILOT_DEBUG=1`` adds the traceback.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import NoReturn

from cupilot import __version__
from cupilot.cli import commands
from cupilot.cli.environment import debugging
from cupilot.cli.json_output import JsonOutput, chosen_target, mistaken_target, reserved_stdout
from cupilot.cli.terminal import Terminal, sentence
from cupilot.cli.termination import STATUS, Terminated, terminable
from cupilot.errors import FAILED, ErrorReport, UserError, error_report

INTERRUPTED, TERMINATED = "interrupted", "terminated"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; never raises but for ``--help`` and ``--version``, which exit."""
    words = sys.argv[1:] if argv is None else list(argv)
    if isinstance(sys.stdout, TextIOWrapper):
        # a file's name or a failure's words may hold what stdout cannot: say it as stderr does
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        options = make_parser().parse_args(words)
        target = chosen_target(options)
    except (UserError, KeyboardInterrupt) as error:
        with reserved_stdout(mistaken_target(words)) as output:
            return _complain(error, output)
    with reserved_stdout(target) as output:
        return _run(options, output)


def _run(options: argparse.Namespace, output: JsonOutput) -> int:
    """One command; whatever it raises becomes one sentence and a status."""
    try:
        with terminable():
            status = int(options.run(options, Terminal.of(options, output)))
            if output.target is not None and not output.written:
                raise AssertionError(f"cupilot {options.command} has written no JSON")
            _flush()
            return status
    except BrokenPipeError:
        return _reader_is_gone()
    except BaseException as error:
        return _complain(error, output)


def _complain(error: BaseException, output: JsonOutput) -> int:
    """Say what is wrong on stderr, and to programs that asked for JSON; returns the exit status."""
    report = _report(error)
    with suppress(OSError, ValueError, AttributeError):  # stderr may be closed or full
        if debugging():
            traceback.print_exception(error)
        print(sentence(report.message), file=sys.stderr)
    output.write_error(report)
    return report.exit_status


def _report(error: BaseException) -> ErrorReport:
    if isinstance(error, Terminated):
        return ErrorReport(TERMINATED, TERMINATED, STATUS)
    if isinstance(error, KeyboardInterrupt):
        return ErrorReport(INTERRUPTED, INTERRUPTED, 130)
    return error_report(error)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _reader_is_gone() -> int:
    """Nobody reads what is left to say: end quietly, also when Python flushes stdout at its own end."""
    with suppress(OSError, ValueError, AttributeError), open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return FAILED


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
