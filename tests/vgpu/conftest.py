"""One virtual GPU for the engine's tests: a process has only one."""

from __future__ import annotations

import pytest
from ptxkit import Bench

from cupilot.contracts import Device
from cupilot.devices.virtual import VirtualDevice
from cupilot.vgpu.machine import Machine

# native code and the runtime's callbacks must stay as long as the process, so the machine is kept with the session
MACHINE = pytest.StashKey[Machine]()


@pytest.fixture(scope="session")
def bench(pytestconfig: pytest.Config, device: Device) -> Bench:
    assert isinstance(device, VirtualDevice)
    machine = pytestconfig.stash[MACHINE] = Machine(device.spec, device.runtime(), {}, device.name)
    return Bench(machine)
