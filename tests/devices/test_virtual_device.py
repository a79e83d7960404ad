"""The virtual device: the contract of every device, and candidates whose host code misbehaves."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from cupilot.contracts import Call, Device, Outcome
from cupilot.devices import default_device, device_names, open_device
from cupilot.devices.bubblewrap import BUBBLEWRAP, find_bubblewrap
from cupilot.devices.virtual import VirtualDevice
from cupilot.errors import DeviceError, UserError
from cupilot.gpu import load_spec
from cupilot.records import Failure, Kernel, TensorSpec
from cupilot.testing import DeviceContract

WRAPPER = """
#include <torch/extension.h>
#include <cuda_runtime.h>
%(more)s
__global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    %(device)s
    if (i < n) y[i] = x[i];
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    %(host)s
    copy<<<%(launch)s>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel());
    return y;
}
"""


class TestVirtualDevice(DeviceContract):
    """Name, builds, runs, time-outs and times."""


def run(device: Device, *, more: str = "", on_device: str = "", host: str = "", launch: str = "4, 256",
        timeout_s: float = 60.0, calls: int = 1) -> tuple[Outcome | Failure, ...]:  # fmt: skip
    source = WRAPPER % {"more": more, "device": on_device, "host": host, "launch": launch}
    built = device.build(Kernel(source))
    if isinstance(built, Failure):
        return (built,)
    values = np.arange(1000, dtype=np.float32)
    call = Call("copy", (values,), (TensorSpec((1000,)),))
    return device.run(built, [call] * calls, timeout_s)


def test_the_wrapper_of_these_tests_is_right(device: Device) -> None:
    (outcome,) = run(device)
    assert isinstance(outcome, Outcome)
    np.testing.assert_array_equal(outcome.outputs[0].array, np.arange(1000, dtype=np.float32))


@pytest.mark.parametrize(
    ("host", "kind", "words"),
    [
        ("*(volatile int*)8 = 1;", "crash", "SIGSEGV"),
        ("abort();", "crash", "SIGABRT"),
        ("exit(0);", "crash", "ended its process early"),
        ("for (volatile int i = 0; i >= 0; i = 0) {}", "time-out", "did not return within 2 s"),
        ("_exit(0);", "forbidden-call", "_exit"),
        ("fork();", "forbidden-call", "fork"),
        ("float* p = x.data_ptr<float>(); p[0] = 1.0f;", "crash", "device memory"),
        ('TORCH_CHECK(false, "not this shape");', "wrapper-error", "not this shape"),
        ("cudaMemset(x.data_ptr<float>(), 0, 64);", "input-changed", "changed its input 0"),
    ],
)
def test_host_code_that_misbehaves_is_a_failure(device: Device, host: str, kind: str, words: str) -> None:
    (failure,) = run(device, more="#include <unistd.h>\n#include <cstdlib>", host=host, timeout_s=2.0)
    assert isinstance(failure, Failure)
    assert failure.kind == kind
    assert words in failure.message


def test_the_next_candidate_is_not_affected(device: Device) -> None:
    run(device, more="#include <cstdlib>", host="abort();")
    (outcome,) = run(device)
    assert isinstance(outcome, Outcome)


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        ("4, 2048", "invalid configuration"),
        ("0, 256", "invalid configuration"),
        ("4, 256, 1 << 20", "invalid argument"),
    ],
)
def test_a_launch_that_cuda_refuses_is_a_failure_even_if_the_wrapper_does_not_look(
    device: Device, launch: str, words: str
) -> None:
    (failure,) = run(device, launch=launch)
    assert isinstance(failure, Failure)
    assert failure.kind == "launch-error"
    assert words in failure.message


def test_an_opcode_that_is_missing_is_named_with_kernel_and_line(device: Device) -> None:
    (failure,) = run(device, on_device='int v; asm volatile("vadd.s32.s32.s32 %0, 1, 2;" : "=r"(v));')
    assert isinstance(failure, Failure)
    assert failure.kind == "unsupported"
    assert "opcode vadd.s32.s32.s32, kernel _Z4copyPKfPfi, line 7" in failure.message


def test_a_failing_call_does_not_hinder_the_next(device: Device) -> None:
    first, second = run(device, more="static int calls = 0;", host='TORCH_CHECK(calls++, "first");', calls=2)
    assert isinstance(first, Failure)
    assert isinstance(second, Outcome)


def test_unwritten_elements_are_told_from_written_ones(device: Device) -> None:
    (outcome,) = run(device, launch="2, 256")
    assert isinstance(outcome, Outcome)
    assert outcome.outputs[0].written[:512].all()
    assert not outcome.outputs[0].written[512:].any()


def test_translations_are_kept_through_bubblewrap(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_bubblewrap()
    if found.problem:
        pytest.skip(f"bubblewrap cannot be used here: {found.problem}")
    device = VirtualDevice(load_spec("a100-80gb"), cache, BUBBLEWRAP)
    runtime = Path(shutil.copy(device.runtime(), tmp_path))
    monkeypatch.setattr(device, "runtime", lambda: runtime)
    (outcome,) = run(device)
    assert isinstance(outcome, Outcome)
    assert len(list((tmp_path / "translations").iterdir())) == 1


def test_an_unknown_sandbox_is_refused_when_a_device_is_opened(cache: Path) -> None:
    with pytest.raises(UserError, match="unknown sandbox 'docker'"):
        open_device("virtual:a100-80gb", cache, "docker")


def test_devices_are_found_by_name(cache: Path) -> None:
    assert "virtual:a100-80gb" in device_names()
    assert default_device()[0] == "virtual:a100-80gb"
    with pytest.raises(DeviceError, match="unknown device 'a100'"):
        open_device("a100", cache)
    with pytest.raises(DeviceError, match="a100-80gb"):
        open_device("virtual:a100-80", cache)
    with pytest.raises(DeviceError, match="cannot be used"):
        open_device("cuda:0", cache)
