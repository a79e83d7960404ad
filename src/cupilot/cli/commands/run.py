"""Compile a CUDA program and run it on the virtual GPU, with every access checked.

The program's output, input and exit status are its own.  Findings come after its output, on stderr; a program that
returns 0 with findings (other than failed assertions) exits with 86.  2: it does not compile; 124: it ran out of
time; 128 + n: signal n ended it.
"""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cupilot.cli.choices import add_device, seconds
from cupilot.cli.environment import KEYS, cache_folder, llm_keys
from cupilot.cli.terminal import Terminal
from cupilot.errors import DeviceError
from cupilot.text import first_lines, harmless

if TYPE_CHECKING:
    from cupilot.records import Finding

HELP = "compile and run a CUDA program on the virtual GPU"
FOUND, TIMED_OUT = 86, 124
TIMEOUT_S = 300.0
LOG_LINES = 40


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE.cu", nargs="+", help="the program's .cu and .cpp files")
    add_device(parser)
    parser.add_argument("-I", dest="include", metavar="DIR", action="append", default=[], help="a folder of headers")
    parser.add_argument(
        "--nvcc", metavar="FLAG", action="append", default=[], help="a further flag, as --nvcc=-use_fast_math"
    )
    parser.add_argument("-D", dest="define", metavar="NAME", action="append", default=[], help="a macro, as for nvcc")
    parser.add_argument(
        "--checks", choices=("on", "off"), default="on", help="of reads before writes and of races (on)"
    )
    parser.add_argument("--timeout", metavar="S", type=seconds, default=TIMEOUT_S, help="seconds it may run (300)")
    parser.epilog = "Arguments after -- are the program's."
    _keep_arguments(parser)


def _keep_arguments(parser: ArgumentParser) -> None:
    """Set aside what follows ``--``, which argparse would count among the files."""
    parse = parser.parse_known_args

    def split(args: Sequence[str], namespace: Any = None) -> tuple[Any, list[str]]:
        cut = list(args).index("--") if "--" in args else len(args)
        options, unknown = parse(args[:cut], namespace)
        options.arguments = list(args[cut + 1 :])
        return options, unknown

    parser.parse_known_args = split  # type: ignore[method-assign,assignment]


def run(options: Namespace, terminal: Terminal) -> int:
    from cupilot.devices import default_device, open_device
    from cupilot.devices.program import build_for, run_program
    from cupilot.devices.virtual import VirtualDevice
    from cupilot.records import Failure
    from cupilot.toolchain.program import ProgramSource

    name = options.device or default_device()[0]
    device = open_device(name, cache_folder())
    if not isinstance(device, VirtualDevice):
        raise DeviceError(f"cupilot run is for virtual GPUs, and {name} is none")
    files = tuple(Path(file) for file in options.files)
    folders = tuple(Path(folder) for folder in options.include)
    source = ProgramSource(files, folders, tuple(options.define), tuple(options.nvcc))
    built = build_for(device, source, cache_folder())
    if isinstance(built, Failure):
        print(first_lines(built.log, LOG_LINES), file=sys.stderr)
        terminal.warn(f"{files[0]} does not compile: {built.message}")
        return 2
    ended = run_program(
        device, built, (files[0].stem, *options.arguments), options.timeout,
        checks=options.checks == "on", hidden=tuple({*KEYS, *llm_keys()}),
    )  # fmt: skip
    if ended.refusal:
        terminal.warn(ended.refusal)
        return 2
    _show(ended.findings)
    if ended.timed_out or any(finding.kind == "time-out" for finding in ended.findings):
        terminal.warn(f"{files[0]} did not finish within {options.timeout:g} s")
        return TIMED_OUT
    if ended.status < 0:
        terminal.warn(f"{files[0]} was ended by {signal.Signals(-ended.status).name}")
        return 128 - ended.status
    # a failed assertion is the program's own check, and it was told
    return ended.status or (FOUND if any(finding.kind != "assert" for finding in ended.findings) else 0)


def _show(findings: Sequence[Finding]) -> None:
    """One block per finding: what, then where."""
    for finding in findings:
        print(f"========= {finding.kind}: {harmless(finding.text)}", file=sys.stderr)
        if finding.place:
            print(f"=========     in {finding.place}", file=sys.stderr)
    if findings:
        print(f"========= {len(findings)} finding{'s' * (len(findings) > 1)} of the virtual GPU", file=sys.stderr)
