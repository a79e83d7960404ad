"""What host code may and may not do on the virtual GPU: each rule with what breaks it and with what does not."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ptxkit import INDEX, Address, Bench, Blank, pointer

from cupilot.arrays import filed, tiled
from cupilot.contracts import Built, Call, Device, Outcome
from cupilot.devices.virtual import VirtualDevice
from cupilot.errors import MachineError
from cupilot.gpu import load_spec
from cupilot.gpu.timing import operation_parts
from cupilot.records import Kernel, MemoryOperation, TensorSpec
from cupilot.toolchain.abi import Library, TensorValue
from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.nvcc import build_kernel
from cupilot.vgpu.machine import Machine

COUNT = 1000
WRAPPERS = Path(__file__).with_name("host_rules.cu").read_text()


@pytest.fixture(scope="module")
def built(device: Device) -> Built:
    made = device.build(Kernel(WRAPPERS, "plain"))
    assert isinstance(made, Built), made
    return made


class Host:
    """The wrappers above in this process, called as the worker calls them."""

    def __init__(self, machine: Machine, library: Library) -> None:
        self.machine = machine
        self.library = library
        self.x = machine.upload(np.arange(COUNT, dtype=np.float32))

    def call(self, entry: str, *numbers: int) -> TensorValue:
        self.machine.begin(None, 20.0)
        x = TensorValue(self.x, (COUNT,), (1,), "float32")
        (result,) = self.library.call(entry, [x, *numbers])
        self.machine.end()
        assert self.machine.last_error() == ""
        return result

    def stored(self, result: TensorValue) -> list[int] | None:
        where = self.machine.stored_elements(result.pointer, COUNT, 4)
        return None if where is None else where.tolist()

    def values(self, result: TensorValue) -> np.ndarray:
        return self.machine.view(result.pointer, result.shape, np.dtype(np.float32)).copy()


@pytest.fixture(scope="module")
def host(bench: Bench, built: Built) -> Iterator[Host]:
    host = Host(bench.machine, Library(built.library))
    yield host
    host.library.release()
    host.machine.begin(None, 20.0)


# --- files as buffers ---------------------------------------------------------------------------

# element of buffer 1 at the byte offset in buffer 0, to buffer 2; then it is overwritten
FETCH = (
    INDEX
    + pointer(0, size=8)
    + pointer(2)
    + """
 ld.global.u64 %rd10, [%rd0]; ld.param.u64 %rd11, [p1]; add.u64 %rd10, %rd10, %rd11;
 ld.global.u32 %r10, [%rd10]; st.global.u32 [%rd2], %r10; st.global.u32 [%rd10], 7; ret;
"""
)


def private_bytes() -> int:
    """Memory of this process that it does not share with a file."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


def test_pieces_of_a_short_file_fill_a_buffer(bench: Bench, tmp_path: Path) -> None:
    length, size = 64 << 20, 16 << 30
    shown = tiled(np.arange(length // 4, dtype=np.uint32), (size // 4,), key=0x123456789ABCDEF)
    assert shown.tile is not None
    shown.tile.tofile(tmp_path / "file")
    content = filed(tmp_path / "file", shown.shape, shown.dtype)
    places = [0, 4, length - 4, length, 17 * length + 4096, size - 4]
    wanted = [int(shown[place // 4]) for place in places]
    assert [int(content[place // 4]) for place in places] == wanted
    first = np.asarray(shown[: length // 4])
    for start in range(length // 4, size // 4, 500_000_003):  # nowhere like at the same place of the first tile
        part = np.asarray(shown[start : start + 100_000])
        assert (part != np.resize(np.roll(first, -(start % first.size)), part.size)).mean() > 0.5
    threads = {"threads": len(places)}
    offsets = np.array(places, np.uint64)
    bench.clean(FETCH, offsets, np.zeros(1, np.uint32), Blank(4), threads=1)  # translated before memory is counted
    before = private_bytes()
    address = bench.machine.map_file(tmp_path / "file", size)
    assert bench.machine.view(address, (size // 4,), content.dtype)[::4_000_037].sum() > 0
    assert private_bytes() - before < 1 << 20
    (_, out) = bench.clean(FETCH, offsets, Address(address), Blank(4 * len(places)), **threads)
    assert out.view(np.uint32).tolist() == wanted
    # what was written stays where it was written
    (_, out) = bench.clean(FETCH, offsets, Address(address), Blank(4 * len(places)), **threads)
    assert out.view(np.uint32).tolist() == [7] * len(places)
    assert bench.machine.view(address + 2 * length, (2,), content.dtype).tolist() == shown[length // 2 :][:2].tolist()
    assert private_bytes() - before < 64 << 20
    bench.machine.free(address)


def test_a_file_that_does_not_end_with_a_page_cannot_be_repeated(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(bytes(5000))
    bench.machine.free(bench.machine.map_file(tmp_path / "odd", 5000))
    with pytest.raises(MachineError, match="5000 bytes, which cannot fill 5001"):
        bench.machine.map_file(tmp_path / "odd", 5001)
    assert bench.machine._library.vgc_map_file(str(tmp_path / "odd").encode(), 5001) == 0


def test_many_repeated_files_leave_no_mappings_behind(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(bytes(2 * 4096))
    before = len(Path("/proc/self/maps").read_text().splitlines())
    for _ in range(20):
        bench.machine.free(bench.machine.map_file(tmp_path / "page", 4 << 20))
    assert len(Path("/proc/self/maps").read_text().splitlines()) - before < 200


# --- written means written in this call -----------------------------------------------------------


def test_a_result_kept_from_the_last_call_is_not_written_in_this_one(host: Host) -> None:
    for how in range(3):
        first = host.call("kept", COUNT, how)
        assert host.stored(first) is None
        again = host.call("kept", 0, 3)
        assert again.pointer == first.pointer
        assert host.stored(again) == []
        assert not host.machine.stored(again.pointer)
        part = host.call("kept", 300, how)
        assert host.stored(part) == list(range(300))
        assert host.machine.stored(part.pointer)
    assert host.stored(host.call("kept", COUNT, 0)) is None


def test_what_the_last_call_left_is_known_to_be_old(host: Host) -> None:
    host.call("kept", COUNT, 0)
    host.call("from_kept", 0)
    assert {finding.kind for finding in host.machine.findings()} == {"left-over"}


def test_what_this_call_wrote_may_be_read(host: Host) -> None:
    host.call("kept", COUNT, 0)
    for _ in range(2):
        result = host.call("from_kept", COUNT)
        assert host.machine.findings() == ()
        assert host.stored(result) is None
        np.testing.assert_array_equal(host.values(result), np.arange(COUNT))


# --- work that nothing waits for --------------------------------------------------------------------


@pytest.mark.parametrize("how", [1, 2, 3, 4, 5, 8, 10, 13, 16, 17, 21, 22])
def test_work_that_is_waited_for_is_fine(host: Host, how: int) -> None:
    result = host.call("streams", how)
    assert host.machine.findings() == ()
    np.testing.assert_array_equal(host.values(result), np.arange(COUNT))


@pytest.mark.parametrize(
    ("how", "what"),
    [*((how, "a launch") for how in (0, 6, 7, 9, 11, 12, 18, 19, 23)), (14, "a fill"), (15, "a copy"),
     (20, "a graph")],
)  # fmt: skip
def test_work_that_nothing_waits_for_is_found(host: Host, how: int, what: str) -> None:
    host.call("streams", how)
    (finding,) = host.machine.findings()
    assert finding.kind == "unordered"
    assert finding.text == f"work on a stream that nothing waits for: {what}"
    assert finding.kernel == ("copied" if what == "a launch" else "")


def test_each_call_is_judged_on_its_own(host: Host) -> None:
    host.call("streams", 0)
    host.call("plain")
    assert host.machine.findings() == ()


def test_nothing_starts_after_the_wrapper_has_returned(host: Host) -> None:
    host.call("plain")
    x = TensorValue(host.x, (COUNT,), (1,), "float32")
    (late,) = host.library.call("plain", [x])
    assert host.stored(late) == []
    assert [finding.kind for finding in host.machine.findings()] == ["unordered"]
    assert "after the wrapper returned" in host.machine.findings()[0].text
    assert "not permitted" in host.machine.last_error()
    assert host.stored(host.call("plain")) is None


# --- device memory is the device's --------------------------------------------------------------------

GUARDED = """
import sys
from pathlib import Path
import numpy as np
from cupilot.gpu import load_spec
from cupilot.toolchain.abi import Library, TensorValue
from cupilot.vgpu.machine import Machine

runtime, library, how, guarded = sys.argv[1:]
machine = Machine(load_spec("a100-80gb"), Path(runtime), {}, "virtual")
loaded = Library(Path(library))
x = TensorValue(machine.upload(np.arange(1000, dtype=np.float32)), (1000,), (1,), "float32")
machine.begin(None, 20.0)
if guarded == "yes":
    with machine.guarded():
        (result,) = loaded.call("touches", [x, int(how)])
else:
    (result,) = loaded.call("touches", [x, int(how)])
machine.end()
assert machine.findings() == (), machine.findings()
print(machine.view(result.pointer, (1000,), np.dtype(np.float32))[9])
"""


def touch(device: Device, built: Built, how: int, guarded: str = "yes") -> subprocess.CompletedProcess[str]:
    assert isinstance(device, VirtualDevice)
    command = [sys.executable, "-c", GUARDED, str(device.runtime()), str(built.library), str(how), guarded]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("how", [1, 2])
def test_host_code_that_touches_device_memory_is_stopped(device: Device, built: Built, how: int) -> None:
    done = touch(device, built, how)
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr.startswith("host code accessed device memory at 0x")
    assert done.stdout == ""


@pytest.mark.parametrize(("how", "guarded", "value"), [(0, "yes", "9.0"), (4, "yes", "37.0"), (1, "no", "9.0")])
def test_other_memory_and_other_ways_are_open(device: Device, built: Built, how: int, guarded: str, value: str) -> None:
    done = touch(device, built, how, guarded)
    assert (done.returncode, done.stdout.strip()) == (0, value), done.stderr


def test_other_crashes_are_not_blamed_on_device_memory(device: Device, built: Built) -> None:
    done = touch(device, built, 3)
    assert done.returncode == -signal.SIGSEGV
    assert "device memory" not in done.stderr


# --- copies over PCIe ---------------------------------------------------------------------------------


def test_copies_are_told_apart_by_where_the_bytes_lie(host: Host) -> None:
    host.call("copies")
    assert host.machine.profile().operations == (
        MemoryOperation("device-to-host", 4000),
        MemoryOperation("host-to-device", 2000),
        MemoryOperation("copy", 1000),
        MemoryOperation("fill", 500),
        MemoryOperation("device-to-host", 400),
        MemoryOperation("device-to-host", 300),
    )


def test_copies_to_and_from_the_host_go_at_the_speed_of_pcie() -> None:
    spec = load_spec("a100-80gb")
    for kind in ("host-to-device", "device-to-host"):
        parts = operation_parts(MemoryOperation(kind, 10**9), spec)
        assert parts["pcie"] == pytest.approx(0.04)
    assert operation_parts(MemoryOperation("copy", 10**9), spec)["dram"] < 0.003
    assert "pcie" not in operation_parts(MemoryOperation("fill", 10**9), spec)


# --- a candidate that brings CUDA calls of its own -----------------------------------------------------

MEASURES = r"""
#pragma GCC visibility push(%s)
extern "C" {
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { *ms = 1e-9f; return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) { p->multiProcessorCount = 1; return cudaSuccess; }
unsigned long long vgc_stored_runs(void*, unsigned long long n, long, long, void*) { return n; }
unsigned long long vgc_findings() { return 0; }
unsigned long long vgc_launches() { return 0; }
unsigned long long vgc_operations() { return 0; }
void vgc_begin() {}
void vgc_end() {}
}
#pragma GCC visibility pop
"""
LAUNCHES = r"""
#pragma GCC visibility push(%s)
extern "C" {
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemset(void*, int, size_t) { return cudaSuccess; }
}
#pragma GCC visibility pop
"""
CANDIDATE = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
%s
__global__ void doubled(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    cudaMemset(y.data_ptr<float>(), 0, 4);
    doubled<<<4, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel());
    return y;
}
"""


def double(device: Device, cache: Path, fakes: str) -> Outcome:
    """Built past the guard that looks at a candidate's symbols: the runtime must hold without it."""
    made = build_kernel(Kernel(CANDIDATE % fakes), "sm_80", cache / "kernels", find_cuda())
    assert isinstance(made, Built), made
    values = np.arange(COUNT, dtype=np.float32)
    (outcome,) = device.run(made, [Call("double", (values,), (TensorSpec((COUNT,)),))], 30.0)
    assert isinstance(outcome, Outcome), outcome
    return outcome


@pytest.mark.parametrize("fakes", [MEASURES % "default", MEASURES % "hidden", LAUNCHES % "default"])
def test_calls_that_a_candidate_defines_itself_change_nothing(device: Device, cache: Path, fakes: str) -> None:
    honest, faked = double(device, cache, ""), double(device, cache, fakes)
    assert [launch.counters for launch in faked.profile.launches] == [honest.profile.launches[0].counters]
    assert faked.profile.operations == honest.profile.operations == (MemoryOperation("fill", 4),)
    assert device.time(faked.profile) == device.time(honest.profile)
    np.testing.assert_array_equal(faked.outputs[0].array, 2 * np.arange(COUNT))
    assert faked.outputs[0].written.all()


def test_launches_that_a_candidate_keeps_to_itself_write_nothing(device: Device, cache: Path) -> None:
    faked = double(device, cache, LAUNCHES % "hidden")
    assert faked.profile.launches == faked.profile.operations == ()
    assert not faked.outputs[0].written.any()
