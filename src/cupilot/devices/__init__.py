"""Where kernels run: ``virtual:NAME`` (a modelled GPU) and ``cuda:N`` (a real one).

A device kind is one module of this package, named like the part before the colon, with
``names() -> tuple[str, ...]`` and ``open_device(name, cache, sandbox) -> Device``.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from cupilot.contracts import Device
from cupilot.errors import DeviceError

KINDS = ("virtual", "cuda")
DEFAULT = "virtual:a100-80gb"


def device_names() -> tuple[str, ...]:
    """All devices that can be opened on this machine."""
    return tuple(name for kind in KINDS for name in import_module(f"cupilot.devices.{kind}").names())


def open_device(name: str, cache: Path, sandbox: str = "auto") -> Device:
    """Open a device by its full name; builds and translations are kept below ``cache``.

    ``sandbox`` is one of `cupilot.sandbox.bubblewrap.SANDBOXES`.
    """
    kind, _, rest = name.partition(":")
    if kind not in KINDS or not rest:
        raise DeviceError(f"unknown device {name!r}; known devices are {', '.join(device_names())}")
    device: Device = import_module(f"cupilot.devices.{kind}").open_device(rest, cache, sandbox)
    return device


def default_device() -> tuple[str, str]:
    """The device to use when none is named, and why."""
    real = import_module("cupilot.devices.cuda").reason_unusable()
    return DEFAULT, real
