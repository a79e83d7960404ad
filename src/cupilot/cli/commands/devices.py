"""List the devices that kernels can be evaluated on."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from cupilot.cli.terminal import Terminal

HELP = "list the devices"


def configure(parser: ArgumentParser) -> None:
    """No options."""


def run(options: Namespace, terminal: Terminal) -> int:
    from cupilot.devices import default_device, device_names

    default, reason = default_device()
    for name in device_names():
        terminal.line(f"{name}  (default: {reason})" if name == default else name)
    return 0
