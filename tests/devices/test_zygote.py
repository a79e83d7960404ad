"""The process that forks workers: several jobs at once, and nothing that outlives whoever started it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cupilot.contracts import Built, Call, Device, Outcome
from cupilot.devices.virtual import VirtualDevice
from cupilot.records import Failure, Kernel, TensorSpec

SOURCE = """
#include <torch/extension.h>
__global__ void scale(const float* x, float* y, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * by;
}
torch::Tensor forward(torch::Tensor x, double by) {
    auto y = torch::empty_like(x);
    if (by < 0) for (volatile int i = 0; i >= 0; i = 0) {}
    if (by == 0) abort();
    scale<<<4, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel(), (float)by);
    return y;
}
"""
VALUES = np.arange(1000, dtype=np.float32)


@pytest.fixture(scope="module")
def built(device: Device) -> Built:
    made = device.build(Kernel(SOURCE))
    assert isinstance(made, Built), made
    return made


def call(by: float) -> Call:
    return Call("x", (VALUES, by), (TensorSpec((1000,)),))


def workers(folder: str) -> list[int]:
    """The process that forks workers of the device with this scratch folder, and the workers."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            named = b"cupilot.devices.zygote" in (path / "cmdline").read_bytes()
            if named and f"HOME={folder}".encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
    return found


def host_processes(folder: str) -> list[int]:
    """The processes of host code that work below this folder; those that have ended have no folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            named = b"cupilot_host" in (path / "cmdline").read_bytes()
            if named and os.readlink(path / "cwd").startswith(f"{folder}/"):
                found.append(int(path.name))
    return found


def test_jobs_at_once_do_not_disturb_each_other(device: Device, built: Built) -> None:
    factors = [2.0, 0.0, 3.0, 4.0, 0.0, 5.0]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda by: device.run(built, [call(by)], 60.0)[0], factors))
    for by, result in zip(factors, results, strict=True):
        if by:
            assert isinstance(result, Outcome), result
            np.testing.assert_array_equal(result.outputs[0].array, VALUES * np.float32(by))
        else:
            assert isinstance(result, Failure)
            assert result.kind == "crash"


def test_a_device_that_is_forgotten_leaves_no_process(device: Device, built: Built) -> None:
    assert isinstance(device, VirtualDevice)
    other = VirtualDevice(device.spec, device._cache)
    folder = other._scratch.name
    assert isinstance(other.run(built, [call(2.0)], 60.0)[0], Outcome)
    assert workers(folder)
    del other
    assert not left_of(folder)


PARENT = """
import sys
from pathlib import Path
import numpy as np
from cupilot.contracts import Call
from cupilot.devices.virtual import VirtualDevice
from cupilot.gpu import load_spec
from cupilot.records import Kernel, TensorSpec
device = VirtualDevice(load_spec("a100-80gb"), Path(sys.argv[1]))
built = device.build(Kernel(sys.argv[2]))
print(device._scratch.name, flush=True)
device.run(built, [Call("x", (np.zeros(1000, np.float32), -1.0), (TensorSpec((1000,)),))], 300.0)
"""


def test_a_worker_does_not_outlive_a_parent_that_is_killed(device: Device, built: Built) -> None:
    assert isinstance(device, VirtualDevice)
    command = (sys.executable, "-c", PARENT, str(device._cache), SOURCE)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        folder = parent.stdout.readline().strip()
        deadline_s = time.monotonic() + 60
        while not host_processes(folder) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        (host,) = host_processes(folder)
        while processor_s(host) < 0.5 and time.monotonic() < deadline_s:  # until it is in the endless loop
            time.sleep(0.1)
        assert len(workers(folder)) >= 2
        os.kill(parent.pid, signal.SIGKILL)
    assert not left_of(folder)
    shutil.rmtree(folder, ignore_errors=True)


def left_of(folder: str) -> list[int]:
    """What has not ended after a while."""
    deadline_s = time.monotonic() + 20
    while (left := workers(folder) + host_processes(folder)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return left


def processor_s(number: int) -> float:
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
