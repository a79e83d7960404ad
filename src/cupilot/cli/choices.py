"""What the commands have in common: options, and the choice of device, agents and folders."""

from __future__ import annotations

import argparse
import os

from cupilot.cli.environment import cache_folder, sandbox_choice
from cupilot.cli.terminal import Terminal
from cupilot.contracts import Device, Preparing

TIMEOUT_S = 60.0


def positive(text: str) -> int:
    """An argument that is a whole number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def seconds(text: str) -> float:
    """An argument that is a positive time."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", metavar="D", help="where kernels run and whose time counts; see cupilot devices")


def add_precision(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--precision", metavar="P", default="fp32", help="what the kernel may compute in (fp32)")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="also write the result as JSON; - is stdout")


def choose_device(name: str | None, terminal: Terminal) -> Device:
    """The device asked for, else the best one of this machine; says which and why."""
    from cupilot.devices import default_device, open_device

    name, reason = default_device() if name is None else (name, "as asked")
    device = open_device(name, cache_folder(), sandbox_choice())
    terminal.line(f"device {name}: {reason}")
    return device


def prepare(device: Device, terminal: Terminal) -> None:
    """Have the device make what it makes once per machine, which takes a while, before anything is waited for."""
    if isinstance(device, Preparing) and (what := device.unprepared()):
        terminal.line(what)
        with terminal.bar("files") as tell:
            device.prepare(lambda done, of: tell(done, of, "files"))


def cpu_count() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
