"""What the commands have in common: options, and the choice of device, agents and folders."""

from __future__ import annotations

import argparse

from cupilot.cli.environment import cache_folder, llm_keys, sandbox_choice
from cupilot.cli.terminal import Terminal
from cupilot.contracts import Device
from cupilot.records.scope import REQUIREMENTS, TASK
from cupilot.records.task import PRECISIONS
from cupilot.runs.options import Settings, default_jobs

TIMEOUT_S = 60.0
LARGEST_COUNT, LONGEST_S, LARGEST_SEED = 10**12, 1e7, 2**63 - 1
"""Beyond these a number is a slip of the finger, and more than some library below takes."""


def positive(text: str) -> int:
    """An argument that is a whole number of at least one."""
    if (number := _whole(text, LARGEST_COUNT)) is None or number < 1:
        raise argparse.ArgumentTypeError(f"{short(text)} is not a whole number of at least 1 and at most 10^12")
    return number


def seed(text: str) -> int:
    """An argument that seeds generators of random numbers."""
    if (number := _whole(text, LARGEST_SEED)) is None:
        raise argparse.ArgumentTypeError(f"{short(text)} is not a whole number between 0 and 2^63 - 1")
    return number


def _whole(text: str, largest: int) -> int | None:
    # lengths first: Python refuses to read very long numbers
    plain = text.isascii() and text.isdecimal() and len(text) <= len(str(largest))
    return int(text) if plain and int(text) <= largest else None


def seconds(text: str) -> float:
    """An argument that is a positive time."""
    value = _number(text)
    if not 0 < value <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"{short(text)} is not a positive number of seconds, at most {LONGEST_S:g}")
    return value


def amount(text: str) -> float:
    """An argument that is a positive sum of money."""
    value = _number(text)
    if not 0 < value <= LARGEST_COUNT:
        raise argparse.ArgumentTypeError(f"{short(text)} is not a positive amount")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def readable(text: str) -> str:
    """An argument that becomes part of a program, so it must be text; bytes that are none arrive as surrogates."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise argparse.ArgumentTypeError(f"{short(text)} is not text in UTF-8")
    return text


def short(text: str) -> str:
    """What was typed, for a message."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", metavar="D", help="where kernels run and whose time counts; see cupilot devices")


def add_precision(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--precision", metavar="P", default="fp32", choices=PRECISIONS, help="what the kernel may compute in (fp32)"
    )


def add_call(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--entry", metavar="NAME", default="forward", type=readable, help="the host function to call (forward)"
    )
    parser.add_argument(
        "--args", metavar="EXPRESSIONS", default="", type=readable,
        help='what to call it with, such as "inputs[0], model.ln.eps"',
    )  # fmt: skip


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="also write the result as JSON; - is stdout")


def add_require(parser: argparse.ArgumentParser, default: tuple[str, ...]) -> None:
    parser.add_argument(
        "--require", metavar="WHAT", action="append", choices=REQUIREMENTS,
        help=f"what it must hold for: task, values (NaN, infinity, wide range), any-shape ({', '.join(default)})",
    )  # fmt: skip


def requirements(chosen: list[str] | None, default: tuple[str, ...]) -> tuple[str, ...]:
    """What was asked for; the task is always part of it."""
    return tuple(dict.fromkeys((TASK, *(default if chosen is None else chosen))))


def add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", metavar="N", type=positive, help="evaluations at a time (processors, at most 4)")
    parser.add_argument("--executor", metavar="E", default="local", help="where evaluations run: local, dask, ray")
    parser.add_argument("--scheduler", metavar="ADDRESS", default="", help="of a cluster (default: one started here)")


def settings_of(options: argparse.Namespace) -> Settings:
    """Settings from the options of a command and the environment."""
    jobs = getattr(options, "jobs", None) or default_jobs()
    return Settings(
        cache=cache_folder(), sandbox=sandbox_choice(), keys=llm_keys(), jobs=jobs,
        executor=getattr(options, "executor", "local"), scheduler=getattr(options, "scheduler", ""),
    )  # fmt: skip


def choose_device(name: str | None, terminal: Terminal) -> str:
    """The device asked for, else the best one of this machine; says which and why."""
    from cupilot.devices import default_device

    name, reason = default_device() if name is None else (name, "as asked")
    terminal.line(f"device {name}: {reason}")
    return name


def open_chosen(name: str | None, terminal: Terminal) -> Device:
    """Open the device asked for, else the best one of this machine, ready for use."""
    from cupilot.cli.terminal_observer import TerminalObserver
    from cupilot.runs import open_device

    settings = Settings(cache=cache_folder(), sandbox=sandbox_choice())
    return open_device(choose_device(name, terminal), settings, TerminalObserver(terminal))
