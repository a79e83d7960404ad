"""The virtual device: the contract of every device, and candidates whose host code misbehaves."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from cupilot.contracts import Built, Call, Device, Outcome
from cupilot.devices import default_device, device_names, open_device
from cupilot.devices.virtual import VirtualDevice
from cupilot.errors import DeviceError, UserError
from cupilot.gpu import load_spec
from cupilot.records import Failure, Kernel, TensorSpec
from cupilot.sandbox.bubblewrap import BUBBLEWRAP, find_bubblewrap
from cupilot.testing import DeviceContract
from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.nvcc import CUBIN
from cupilot.toolchain.sass import kernel_sass

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
    assert failure.message.endswith("opcode vadd.s32.s32.s32, kernel copy, line 7 of kernel.cu")
    assert (failure.findings[0].kernel, failure.findings[0].line) == ("copy", 7)


def test_a_failing_call_does_not_hinder_the_next(device: Device) -> None:
    first, second = run(device, more="static int calls = 0;", host='TORCH_CHECK(calls++, "first");', calls=2)
    assert isinstance(first, Failure)
    assert isinstance(second, Outcome)


def test_unwritten_elements_are_told_from_written_ones(device: Device) -> None:
    (outcome,) = run(device, launch="2, 256")
    assert isinstance(outcome, Outcome)
    assert outcome.outputs[0].written[:512].all()
    assert not outcome.outputs[0].written[512:].any()


# --- calls that only want the profile -----------------------------------------------------------

# what a kernel does wrong is chosen by the first value that it gets
WRONG = {
    "nothing": "",
    "shared-race": "if (threadIdx.x % 32 == 0) seen = threadIdx.x; if (seen < 0) return;",
    "out-of-bounds": "if (i == 0) y[0] = x[n];",
    "input-changed": "if (i > 0 && i < n) ((float*)x)[i] += 1;",
    "uninitialized": "if (i < n && y[i] == 1.0f) y[i] = 2.0f;",
    "trap": 'if (i == 700) asm("trap;");',
    "divergent-barrier": "if (i % 2) __syncthreads();",
    "too many": " ".join(f"if (i == {n}) y[{n}] = x[n + {n}];" for n in range(12)),
    "two": 'if (i == 0) y[0] = x[n]; if (i == 700) asm("trap;");',
}
TOO_LONG = 999  # that many elements are launched with too many threads


@pytest.fixture(scope="module")
def wrong(device: Device) -> dict[tuple[str, bool], Outcome | Failure]:
    """What becomes of each, by its name, for calls that are lenient and others that are not."""
    cases = " else ".join(f"if (mode == {number}) {{ {code} }}" for number, code in enumerate(WRONG.values()))
    source = WRAPPER % {
        "more": "", "host": "", "device": f"__shared__ int seen; const int mode = (int)x[0]; {cases}",
        "launch": f"4, x.numel() == {TOO_LONG} ? 2048 : 256",
    }  # fmt: skip
    built = device.build(Kernel(source))
    assert not isinstance(built, Failure), built
    inputs = {name: np.full(1000, number, np.float32) for number, name in enumerate(WRONG)}
    inputs["launch-error"] = np.zeros(TOO_LONG, np.float32)
    keys = [(name, lenient) for name in inputs for lenient in (False, True)]
    calls = [Call(name, (inputs[name],), (TensorSpec(inputs[name].shape),), lenient=lenient) for name, lenient in keys]
    return dict(zip(keys, device.run(built, calls, 60.0), strict=True))


@pytest.mark.parametrize("kind", ["shared-race", "out-of-bounds", "input-changed", "uninitialized"])
def test_a_lenient_call_overlooks_what_does_not_stop_a_kernel(
    device: Device, wrong: dict[tuple[str, bool], Outcome | Failure], kind: str
) -> None:
    strict, outcome = wrong[kind, False], wrong[kind, True]
    assert isinstance(strict, Failure)
    assert strict.kind == kind
    assert isinstance(outcome, Outcome)
    assert outcome.finding is not None
    assert (outcome.finding.stage, outcome.finding.kind) == (strict.stage, strict.kind)
    assert outcome.finding.message.rpartition(", kernel ")[2] == strict.message.rpartition(", kernel ")[2]
    assert outcome.outputs == ()
    # the counters are those of the whole launch
    (launch,) = outcome.profile.launches
    assert launch.blocks_run == 4
    assert launch.counter("global_store_bytes") >= 4 * 1000
    assert launch.counter("sass_instructions") > 0
    assert device.time(outcome.profile).time_s > 0


def test_a_lenient_call_without_a_finding_is_like_any_other(wrong: dict[tuple[str, bool], Outcome | Failure]) -> None:
    for lenient in (False, True):
        outcome = wrong["nothing", lenient]
        assert isinstance(outcome, Outcome)
        assert outcome.finding is None
        assert outcome.outputs[0].written.all()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("trap", "trap"),
        ("divergent-barrier", "divergent-barrier"),
        ("launch-error", "launch-error"),
        ("too many", "out-of-bounds"),
        ("two", "out-of-bounds"),
    ],
)
def test_what_ends_a_kernel_early_is_a_failure_for_lenient_calls_too(
    wrong: dict[tuple[str, bool], Outcome | Failure], name: str, kind: str
) -> None:
    for lenient in (False, True):
        failure = wrong[name, lenient]
        assert isinstance(failure, Failure)
        assert failure.kind == kind


def test_the_lines_of_the_machine_code_are_those_of_the_image(device: Device, cache: Path) -> None:
    """Every warp of the copy executes all of it, so each instruction of the machine code counts once for each."""
    built = device.build(Kernel(WRAPPER % {"more": "", "device": "", "host": "", "launch": "4, 256"}))
    assert isinstance(built, Built)
    (function,) = kernel_sass(built.library.with_name(CUBIN), built.ptx, find_cuda(), cache / "sass")
    # the engine does not enter the last block, which is nothing but the return
    *lines, _ = sorted(function.lines, key=lambda line: line.ptx_line)
    path = ("path", "trips", "cover")
    instructions = sum(amount for line in lines for name, amount in line.costs if name not in path)
    (outcome,) = run(device)
    assert isinstance(outcome, Outcome)
    assert instructions > 10
    assert outcome.profile.launches[0].counter("sass_instructions") == pytest.approx(32 * instructions)


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
