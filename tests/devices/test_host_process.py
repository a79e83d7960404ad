"""Host code in its own process: the engine is out of reach, every end is told, and CUDA works across processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cupilot.contracts import Call, Device, Outcome
from cupilot.devices.program import build_for
from cupilot.devices.virtual import VirtualDevice
from cupilot.records import Kernel, TensorSpec
from cupilot.toolchain.cuda import find_cuda, find_host_compiler
from cupilot.toolchain.program import BuiltProgram, ProgramSource

HERE = Path(__file__).parent
PROGRAMS = HERE.parent / "vgpu"
RUNTIME = Path(str(files("cupilot.vgpu") / "runtime"))
Attempt = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def attempt(device: Device, tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """Calls an entry of the hostile library and gives what the driver tells."""
    assert isinstance(device, VirtualDevice)
    folder = tmp_path_factory.mktemp("host")
    library = folder / "hostile.so"
    include = [f"-I{path}" for path in (*find_cuda().include, RUNTIME)]
    command = [
        find_host_compiler(),
        "-std=c++17",
        "-shared",
        "-fPIC",
        *include,
        HERE / "hostile_host.cpp",
        "-o",
        library,
    ]
    subprocess.run([str(word) for word in command], check=True, capture_output=True)

    def attempt(entry: str, *values: Any, seconds: float = 20.0, more: tuple[Path, ...] = ()) -> dict[str, Any]:
        job = {
            "runtime": str(device.runtime()), "host": str(device.host_program()), "entry": entry, "values": values,
            "libraries": [str(path) for path in (library, *more)], "seconds": seconds,
        }  # fmt: skip
        (folder / "job.json").write_text(json.dumps(job))
        done = subprocess.run(
            [sys.executable, HERE / "host_driver.py", folder / "job.json"],
            capture_output=True, text=True, check=False, timeout=120, cwd=folder,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        told: dict[str, Any] = json.loads(done.stdout.rpartition("\n")[0].rpartition("\n")[2])
        assert told["intact"]
        return told | {"output": done.stdout + done.stderr}

    return attempt


# --- reach ------------------------------------------------------------------------------------------


def test_the_engine_is_not_in_the_process(attempt: Attempt) -> None:
    told = attempt("symbols")
    assert told["message"] == "engine: []"
    assert "cupilot_host" in told["maps"]
    assert "libcupilot_cudart" not in told["maps"]


def test_nothing_outside_of_the_process_is_in_reach(attempt: Attempt) -> None:
    told = attempt("reach", os.getpid())
    answers = dict(line.split(": ") for line in told["message"].splitlines())
    assert len(answers) == 13
    assert {what for what, answer in answers.items() if answer == "done"} == set()
    assert not Path("/tmp/made-by-a-candidate").exists()


# --- ends ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "kind", "words"),
    [
        ("segv", "crash", "host code crashed with SIGSEGV"),
        ("touch", "crash", "SIGSEGV: host code accessed device memory at 0x"),
        ("recurse", "crash", "SIGSEGV"),
        ("abort", "crash", "SIGABRT"),
        ("kill", "crash", "SIGKILL"),
        ("exit", "crash", "ended its process early (status 0)"),
        ("_exit", "crash", "ended its process early (status 3)"),
        ("pthread_exit", "crash", "ended its process early (status 0)"),
        ("close", "crash", "closed its connection"),
        ("loop", "time-out", "did not return within 1 s"),
        ("fork bomb", "time-out", "did not return within 1 s"),
        ("silent", "time-out", "did not return within 1 s"),
        ("noise", "protocol", "a message that nobody waits for"),
        ("data", "protocol", "a message that nobody waits for"),
        ("unknown request", "protocol", "an unknown request"),
        ("too long", "protocol", "a message that is too long"),
        ("cut off", "protocol", "a request that is cut off"),
        ("no image", "protocol", "a handle of no image"),
        ("forged", "protocol", "65535 results"),
    ],
)
def test_every_end_is_the_candidates_failure(attempt: Attempt, entry: str, kind: str, words: str) -> None:
    told = attempt(entry, *(["x"] if entry == "touch" else []), seconds=1.0)
    assert told["kind"] == kind, told
    assert words in told["message"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_engine_survives_calls_with_garbage(attempt: Attempt, seed: int) -> None:
    told = attempt("fuzz", seed, seconds=60.0)
    # the candidate may have come to grief by itself, over memory that it does not have
    assert told["kind"] == "wrapper-error" or "status 42" in told["message"], told["message"]
    assert int(re.search(r"made (\d+) calls", told["output"])[1]) > 1000  # type: ignore[index]


# --- results ------------------------------------------------------------------------------------------


def test_a_result_in_device_memory_is_taken(attempt: Attempt) -> None:
    assert attempt("result: as given", "x")["results"] == [[[1000], "float32"]]


@pytest.mark.parametrize("what", ["own memory", "engine memory", "too large", "far", "before", "negative"])
def test_a_result_outside_of_buffers_is_refused(attempt: Attempt, what: str) -> None:
    told = attempt(f"result: {what}", "x")
    assert (told["kind"], told["results"]) == ("bad-result", [])


@pytest.mark.parametrize("what", ["many dimensions", "strange type"])
def test_a_result_that_is_no_tensor_is_refused(attempt: Attempt, what: str) -> None:
    assert attempt(f"result: {what}", "x")["kind"] == "protocol"


# --- CUDA across processes ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["runtime_calls", "cuda/calls", "cuda/graphs", "cuda/orders"])
def test_programs_work_as_they_do_in_one_process(attempt: Attempt, device: Device, name: str) -> None:
    """Streams, events, graphs, callbacks, symbols, all kinds of memory: the programs check themselves."""
    assert isinstance(device, VirtualDevice)
    built = build_for(device, ProgramSource((PROGRAMS / f"{name}.cu",)), device._cache)
    assert isinstance(built, BuiltProgram), built
    told = attempt("program", str(built.library), "all", more=(built.library,), seconds=60.0)
    assert (told["message"], told["findings"]) == ("status 0", []), told["output"]


ACROSS = """
#include <torch/extension.h>
#include <cuda_runtime.h>
__managed__ float offset = 1.0f;
__device__ float factor;
__global__ void scale(const float* x, const float* pinned, const float* managed, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * factor + offset + pinned[0] + managed[0];
}
static void CUDART_CB add(void* p) { *(float*)p += 4.0f; }
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    float two = 2.0f, *pinned, *managed;
    cudaMemcpyToSymbol(factor, &two, 4);
    offset = 3.0f;
    cudaMallocHost(&pinned, 4), cudaMallocManaged(&managed, 4);
    *pinned = 1.0f, *managed = 5.0f;
    cudaLaunchHostFunc(nullptr, add, pinned);
    scale<<<4, 256>>>(x.data_ptr<float>(), pinned, managed, y.data_ptr<float>(), (int)x.numel());
    float first = 0;
    cudaMemcpy(&first, y.data_ptr<float>(), 4, cudaMemcpyDeviceToHost);
    TORCH_CHECK(first == 13.0f && *pinned == 5.0f, "first is ", first, " and pinned ", *pinned);
    offset = 1.0f;
    cudaFreeHost(pinned), cudaFree(managed);
    %s
    return y;
}
"""


def test_a_wrapper_uses_memory_of_all_kinds(device: Device) -> None:
    built = device.build(Kernel(ACROSS % ""))
    values = np.arange(1000, dtype=np.float32)
    (outcome,) = device.run(built, [Call("x", (values,), (TensorSpec((1000,)),))], 20.0)
    assert isinstance(outcome, Outcome), outcome
    np.testing.assert_array_equal(outcome.outputs[0].array, values * 2 + 13)


BUSY = "volatile double sum = 0; for (int i = 0; i < 100000000; i++) sum = sum + i;"


def test_the_processor_time_of_host_code_is_told(device: Device) -> None:
    """That of the host code, not of kernels and copies, which the other process carries out."""
    values = np.arange(1000, dtype=np.float32)
    seconds = []
    for more in ("", BUSY):
        built = device.build(Kernel(ACROSS % more))
        (outcome,) = device.run(built, [Call("x", (values,), (TensorSpec((1000,)),))], 60.0)
        assert isinstance(outcome, Outcome), outcome
        seconds.append(outcome.profile.host_seconds)
    assert 0 < seconds[0] < 0.02
    assert seconds[1] > 0.05
