"""One virtual GPU for the engine's tests: a process has only one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ptxkit import Bench

from cupilot.devices.virtual import VirtualDevice
from cupilot.gpu import load_spec
from cupilot.vgpu.machine import Machine


@pytest.fixture(scope="session")
def bench() -> Bench:
    """The runtime is kept where the command line keeps it: named by its content, so all may share it."""
    chosen = os.environ.get("CUPILOT_CACHE")
    device = VirtualDevice(load_spec("a100-80gb"), Path(chosen) if chosen else Path.home() / ".cache" / "cupilot")
    return Bench(Machine(device.spec, device.runtime(), {}, device.name))
