"""Real GPUs.  Not usable in this version; the module says so instead of falling back silently."""

from __future__ import annotations

from pathlib import Path

from cupilot.contracts import Device
from cupilot.errors import DeviceError


def names() -> tuple[str, ...]:
    return ()


def reason_unusable() -> str:
    """Why no real GPU is chosen by default, in words for the user."""
    if Path("/proc/driver/nvidia/version").exists():
        return "a CUDA driver is present, but this version of cupilot does not measure on real GPUs yet"
    return "no CUDA GPU was found"


def open_device(name: str, cache: Path) -> Device:
    raise DeviceError(f"the device cuda:{name} cannot be used: {reason_unusable()}; try virtual:a100-80gb")
