"""The real-GPU device without a GPU: our own CUDA runtime stands in for the real one.

Everything is as on a GPU (the worker process, the protocol, the wrapper linked with a runtime, memory, events), but
kernels run on the CPU and events tell modelled time.  The driver and NVML are small libraries made here.
"""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cupilot.contracts import Built, Call, Device, Outcome
from cupilot.devices import cuda, open_device
from cupilot.devices.cuda import CudaDevice, find_runtime, read_ncu, spec_of, torch_cuda
from cupilot.devices.cuda_probe import ATTRIBUTES, Found, Gpu, Nvml, find_gpus
from cupilot.devices.virtual import VirtualDevice
from cupilot.errors import DeviceError, MachineError
from cupilot.evaluation.measure import Measurement, Measuring, measure, timing_of
from cupilot.gpu import load_spec
from cupilot.records import Failure, Kernel, TensorSpec
from cupilot.tasks.load import task_from_source
from cupilot.testing import DeviceContract
from cupilot.toolchain.cuda import find_cuda, find_host_compiler
from evaluating import evaluator_on

pytestmark = pytest.mark.slow  # builds and worker processes by the dozen

STAND_IN = """
import json, os, sys
from pathlib import Path
from cupilot.devices import cuda_worker
from cupilot.gpu import load_spec
from cupilot.vgpu.machine import Machine

folder = Path(sys.argv[1])
runtime = json.loads((folder / "job.json").read_text())["runtime"]
machine = Machine(load_spec("a100-80gb"), Path(runtime), {}, "cuda:0")
machine.begin(None, 600.0)
cuda_worker.main(folder)
sys.stdout.flush()
os._exit(0)
"""
A100 = {
    "MAX_THREADS_PER_BLOCK": 1024, "MAX_SHARED_MEMORY_PER_BLOCK": 49152, "CLOCK_RATE": 1410000,
    "MULTIPROCESSOR_COUNT": 108, "MEMORY_CLOCK_RATE": 1593000, "GLOBAL_MEMORY_BUS_WIDTH": 5120,
    "L2_CACHE_SIZE": 41943040, "MAX_THREADS_PER_MULTIPROCESSOR": 2048, "COMPUTE_CAPABILITY_MAJOR": 8,
    "COMPUTE_CAPABILITY_MINOR": 0, "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 167936,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 166912,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
}  # fmt: skip


def gpu(name: str = "NVIDIA A100-SXM4-80GB", **changes: int) -> Gpu:
    return Gpu(0, name, "GPU-0", 80 << 30, tuple((A100 | changes).items()))


@pytest.fixture(scope="module")
def runtime(cache: Path) -> Path:
    return VirtualDevice(load_spec("a100-80gb"), cache).runtime()


@pytest.fixture(scope="module")
def device(cache: Path, runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> CudaDevice:
    script = tmp_path_factory.mktemp("worker") / "stand_in.py"
    script.write_text(STAND_IN)
    worker = (sys.executable, str(script))
    return CudaDevice(gpu(), Found("", 13000), cache, runtime, worker=worker, flush_bytes=1 << 16, ncu="")


class TestCudaDevice(DeviceContract):
    """Name, builds, runs, time-outs and times."""


COPY = """
#include <torch/extension.h>
__global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < %(repeats)d; ++k) if (i < n) y[i] = %(value)s;
}
torch::Tensor forward(torch::Tensor x) {
    %(host)s
    auto y = torch::empty_like(x);
    copy<<<%(blocks)d, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel());
    return y;
}
"""
VALUES = np.arange(1000, dtype=np.float32)
CALL = Call("copy", (VALUES,), (TensorSpec((1000,)),))


def build(device: Device, *, value: str = "x[i] + 1", host: str = "", blocks: int = 4, repeats: int = 1) -> Built:
    built = device.build(Kernel(COPY % {"value": value, "host": host, "blocks": blocks, "repeats": repeats}))
    assert isinstance(built, Built), built
    return built


# --- from end to end ------------------------------------------------------------------------------


def test_elements_that_no_run_wrote_are_missing(device: CudaDevice) -> None:
    (outcome,) = device.run(build(device, blocks=2), (CALL,), 60.0)
    assert isinstance(outcome, Outcome), outcome
    assert outcome.outputs[0].written[:512].all()
    assert not outcome.outputs[0].written[512:].any()


def test_what_only_the_virtual_gpu_sees_is_a_failure_too(device: CudaDevice) -> None:
    # with either poison in y the result is right; that it was read is a mistake all the same
    (failure,) = device.run(build(device, value="y[i] > 1e30f ? 0 : x[i] + 1"), (CALL,), 60.0)
    assert isinstance(failure, Failure), failure
    assert failure.kind == "uninitialized"


def test_a_kernel_that_the_virtual_gpu_cannot_run_has_no_counters_and_says_so(device: CudaDevice) -> None:
    built, refusal = build(device), Failure("run", "unsupported", "opcode new.thing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device._virtual, "run", lambda twin, calls, timeout_s: (refusal,) * len(calls))
        (outcome,) = device.run(built, (CALL,), 60.0)
    assert isinstance(outcome, Outcome), "the GPU itself was content"
    assert outcome.profile.launches == ()
    assert device.counters(built) == "none (virtual:a100-80gb: opcode new.thing)"
    device._uncounted.clear()


def test_a_crash_is_a_failure_of_the_calls_that_are_left(device: CudaDevice) -> None:
    first, second = device.run(build(device, host="static int n = 0; if (n++ >= 2) abort();"), (CALL, CALL), 60.0)
    assert isinstance(first, Outcome), "its two runs came before"
    assert isinstance(second, Failure)
    assert (second.kind, "SIGABRT" in second.message) == ("crash", True)


def test_a_kernel_is_timed_in_turns_with_another(device: CudaDevice) -> None:
    found = measure(device, build(device), CALL, 120.0, rival=build(device, repeats=40), pairs=12)
    assert isinstance(found, Measurement), found
    assert len(found.samples_s) == len(found.comparisons[0].samples_s) == 12, "no warm-up among them"
    assert found.is_win
    timing = timing_of(found, device.name)
    assert (timing.source, timing.time_s) == ("measured", found.median_s)
    assert "counters: virtual:a100-80gb (ncu is not installed; CUPTI is not used)" in timing.note
    assert found.flushed_bytes == 1 << 16


def test_evaluate_reports_what_was_measured(device: CudaDevice) -> None:
    module = """
import torch
ROWS = 64
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.randn(ROWS, 16)]
"""
    task = task_from_source(module, "plus one", "fp32", "plus_one.py")
    found = evaluator_on(device)(task, build(device, blocks=64).kernel)
    assert found.failure is None, found.failure
    assert found.timing is not None
    assert (found.timing.source, found.timing.device) == ("measured", "cuda:0")
    assert found.timing.limit, "what the model thinks that binds"
    assert found.measurement is not None
    assert found.timing.time_s == found.measurement.median_s
    if not torch_cuda():
        assert found.speedup is None, "a modelled baseline is not compared with a measured time"


def test_a_result_from_an_earlier_turn_is_found_out(device: CudaDevice) -> None:
    # the first result is returned for ever
    host = "static torch::Tensor kept; if (kept.defined()) return kept; kept = torch::empty_like(x);" \
           "copy<<<4, 256>>>(x.data_ptr<float>(), kept.data_ptr<float>(), 1000); return kept;"  # fmt: skip
    failure = measure(device, build(device, host=host), CALL, 120.0, pairs=4)
    assert isinstance(failure, Failure), failure
    assert (failure.stage, failure.kind) == ("time", "other-result")


def test_counters_of_ncu_take_the_place_of_modelled_ones(device: CudaDevice, tmp_path: Path) -> None:
    built = build(device)
    row = '"0","1","python","host","{}","1","7","(256, 1, 1)","(4, 1, 1)","0","8.0","","{}","byte","{}"'
    head = "ID,Process ID,Process Name,Host Name,Kernel Name,Context,Stream,Block Size,Grid Size,Device,CC," \
           "Section Name,Metric Name,Metric Unit,Metric Value"  # fmt: skip
    name = built.resources[0][0]
    rows = [row.format(name, "dram__bytes_read.sum", "4,096"), row.format(name, "dram__bytes_write.sum", "128")]
    text = "\n".join(["==PROF== Connected", ",".join(f'"{word}"' for word in head.split(",")), *rows])
    ncu = tmp_path / "ncu"
    ncu.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    ncu.chmod(0o755)
    counting = CudaDevice(gpu(), Found("", 13000), device._cache, device._runtime, worker=device._worker, ncu=str(ncu))
    (outcome,) = counting.run(built, (replace(CALL, sample_budget=1 << 30),), 60.0)
    assert isinstance(outcome, Outcome), outcome
    counters = {counter.name: counter for counter in outcome.profile.launches[0].counters}
    assert (counters["dram_read_bytes"].value, counters["dram_read_bytes"].source) == (4096.0, "ncu")
    assert counters["global_load_requests"].source != "ncu"
    assert counting.counters(built) == "ncu, with the rest from the virtual GPU"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "not permitted"),
        ("==ERROR== something else", "something else"),
        ("", "no output"),
    ],
)
def test_why_ncu_counts_nothing(text: str, words: str) -> None:
    found = read_ncu(text)
    assert isinstance(found, str)
    assert words in found


def test_the_real_runtime_without_a_gpu_is_a_clear_failure(cache: Path) -> None:
    # linked with NVIDIA's library, and told to use a GPU that does not exist
    real = CudaDevice(gpu(), Found("", 13000), cache, find_runtime(13), ncu="")
    (failure,) = real.run(build(real), (CALL,), 60.0)
    assert isinstance(failure, Failure)
    assert (failure.stage, failure.kind) == ("load", "device-error")
    assert "cudaDeviceSynchronize failed: " in failure.message


# --- the driver, the runtime, NVML ----------------------------------------------------------------

DRIVER = """
extern "C" {
int cuInit(unsigned) { return START; }
int cuGetErrorString(int, const char** text) { *text = "no CUDA-capable device is detected"; return 0; }
int cuDriverGetVersion(int* version) { *version = VERSION; return 0; }
int cuDeviceGetCount(int* count) { *count = GPUS; return 0; }
int cuDeviceGet(int* device, int index) { *device = index + 40; return 0; }
int cuDeviceGetName(char* name, int, int gpu) { __builtin_strcpy(name, gpu == 40 ? "First" : "Second"); return 0; }
int cuDeviceGetUuid(char* uuid, int device) { for (int i = 0; i < 16; ++i) uuid[i] = char(device); return 0; }
int cuDeviceTotalMem_v2(unsigned long* bytes, int) { *bytes = 24ul << 30; return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) { *value = attribute == 75 ? MAJOR : attribute; return 0; }
}
"""
NVML = """
extern "C" {
int nvmlInit_v2() { return 0; }
const char* nvmlErrorString(int) { return "?"; }
int nvmlSystemGetDriverVersion(char* text, unsigned) { __builtin_strcpy(text, "580.65.06"); return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) { *device = (void*)uuid; return uuid[4] != '0'; }
int nvmlDeviceGetClockInfo(void*, int kind, unsigned* mhz) { *mhz = kind == 1 ? 1410 : 1593; return 0; }
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) { *celsius = 55; return 0; }
int nvmlDeviceGetPowerUsage(void*, unsigned*) { return 3; }
int nvmlDeviceGetPowerManagementLimit(void*, unsigned* mw) { *mw = 400000; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* bits) { *bits = 0x24; return 0; }
}
"""


def library(folder: Path, name: str, text: str, **numbers: int) -> str:
    source, made = folder / f"{name}.cpp", folder / name
    source.write_text(text)
    macros = [f"-D{key}={value}" for key, value in numbers.items()]
    subprocess.run([find_host_compiler(), "-shared", "-fPIC", *macros, source, "-o", made], check=True)
    return str(made)


def fake_driver(folder: Path, **changes: int) -> str:
    return library(folder, "libcuda.so.1", DRIVER, **{"START": 0, "VERSION": 13000, "GPUS": 2, "MAJOR": 8} | changes)


def test_gpus_are_what_the_driver_says(tmp_path: Path) -> None:
    path = fake_driver(tmp_path)
    found = find_gpus(path)
    assert (found.version, found.problem, found.library) == (13000, "", path)
    assert [gpu.name for gpu in found.gpus] == ["First", "Second"]
    assert found.gpus[1].uuid == "GPU-29292929-2929-2929-2929-292929292929"
    assert found.gpus[0]["MULTIPROCESSOR_COUNT"] == 16
    assert found.gpus[0].memory_bytes == 24 << 30
    assert found.gpus[0].capability == pytest.approx(8 + 7.6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"START": 100}, "the CUDA driver does not start: no CUDA-capable device is detected (error 100)"),
        ({"GPUS": 0}, "the driver knows of none"),
        ({"VERSION": 12040}, "the driver is for CUDA 12.4, and kernels are compiled with CUDA 13"),
        ({"MAJOR": -1}, "the First is too old"),
    ],
)
def test_why_a_gpu_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, int], words: str
) -> None:
    path = fake_driver(tmp_path, **changes)
    monkeypatch.setattr(cuda, "find_gpus", lambda: find_gpus(path))
    assert cuda.names() == ()
    assert words in cuda.reason_unusable()
    with pytest.raises(DeviceError, match="cuda:0 cannot be used") as raised:
        open_device("cuda:0", tmp_path)
    assert words in str(raised.value)


def test_a_usable_gpu_is_named_but_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake_driver(tmp_path)
    monkeypatch.setattr(cuda, "find_gpus", lambda: find_gpus(path))
    assert cuda.names() == ("cuda:0", "cuda:1")
    assert "--device cuda:0 measures on the First" in cuda.reason_unusable()
    with pytest.raises(DeviceError, match="there is no such GPU"):
        open_device("cuda:7", tmp_path)


def test_without_a_driver_there_is_no_gpu() -> None:
    assert find_gpus("libcuda-nowhere.so.1").problem == "no CUDA GPU was found (libcuda-nowhere.so.1 is not installed)"


def test_a_gpu_tells_its_state(tmp_path: Path) -> None:
    nvml = Nvml(library(tmp_path, "libnvidia-ml.so.1", NVML))
    assert nvml.driver() == "580.65.06"
    state = dict(nvml.state("GPU-0"))
    assert state == {
        "sm_clock_hz": 1.41e9, "memory_clock_hz": 1.593e9, "temperature_c": 55, "power_limit_w": 400,
        "throttle_reasons": 0x24,
    }, "what it does not tell is left out"  # fmt: skip
    assert nvml.state("GPU-1") == ()
    with pytest.raises(MachineError, match=r"libnvidia-nowhere\.so is not installed"):
        Nvml("libnvidia-nowhere.so")


def test_the_numbers_of_attributes_are_cudas() -> None:
    header = (find_cuda().include[0] / "cuda.h").read_text(encoding="utf-8", errors="replace")
    for name, number in ATTRIBUTES.items():
        assert re.search(rf"CU_DEVICE_ATTRIBUTE_{name}\s*=\s*{number},", header), name


def test_the_runtime_is_found_in_the_wheels(tmp_path: Path) -> None:
    assert find_runtime(13).name == "libcudart.so.13"
    with pytest.raises(MachineError, match=r"libcudart\.so\.13 was not found: install it"):
        find_runtime(13, [tmp_path])


def test_known_gpus_are_those_of_the_catalogue() -> None:
    assert spec_of(gpu()) == (load_spec("a100-80gb"), "a100-80gb", "")
    assert spec_of(gpu("NVIDIA H100 80GB HBM3"))[1] == "h100-sxm"


def test_unknown_gpus_are_what_the_driver_says_with_a_note() -> None:
    changes = {"MULTIPROCESSOR_COUNT": 54, "MEMORY_CLOCK_RATE": 1_000_000, "COMPUTE_CAPABILITY_MINOR": 6}
    spec, like, note = spec_of(gpu("NVIDIA Half", **changes))
    assert (spec.name, spec.title, spec.sms, spec.capability) == ("half", "NVIDIA Half", 54, 8.6)
    assert spec.dram_bytes_per_s == pytest.approx(2 * 1e9 * 640)
    assert spec.dram_read_bytes_per_s < spec.dram_bytes_per_s
    assert dict(spec.origins)["sms"] == "driver"
    assert load_spec(like).capability == 8.6, "the nearest"
    assert "not in the catalogue" in note


def test_the_device_can_measure_and_a_virtual_one_cannot(device: CudaDevice, cache: Path) -> None:
    assert isinstance(device, Measuring)
    assert not isinstance(VirtualDevice(load_spec("a100-80gb"), cache), Measuring)


def test_who_measures_is_alone_on_the_gpu(device: CudaDevice) -> None:
    with device.lock(alone=False), device.lock(alone=False):
        other = (device._cache / "GPU-0.lock").open("w")
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with device.lock(), pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    other.close()


def test_a_solution_in_python_is_for_virtual_gpus(device: CudaDevice) -> None:
    failure = device.build(replace(DeviceContract.good, language="modelnew"))
    assert isinstance(failure, Failure)
    assert (failure.stage, failure.kind) == ("build", "unsupported")
