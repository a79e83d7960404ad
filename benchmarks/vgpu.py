"""How fast the virtual GPU is, with all checks and counters on.

Four kernels (vgpu.cu), each the best of several runs on one host thread and on two; the time to translate a kernel of
about a thousand instructions; the memory that a launch over a 16 GB tensor takes when blocks are sampled; and the same
SGEMM in OpenCL (vgpu.cl) on PoCL, one core, as the limit without checks.  PoCL is optional::

    pip install pyopencl pocl-binary-distribution
    python benchmarks/vgpu.py --json --write docs/vgpu-benchmark.md

``--json`` prints one line of JSON last.  Results are compared with numpy, and a finding ends the benchmark: what is
fast but wrong does not count.  Rates are per core: lane instructions (PTX instructions times active lanes) by wall time
of one host thread.  CPU times stand beside the wall times, because they tell whether the machine was idle.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cupilot.devices.virtual import VirtualDevice
from cupilot.gpu import load_spec
from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.process import run
from cupilot.vgpu.machine import Machine

HERE = Path(__file__).parent
DEVICE = "a100-80gb"
TENSOR_BYTES = 16 << 30
LAUNCH_LIMIT_S = 600.0
PARTS = ("memory", "pocl", "translation")
BARS = {
    "sgemm": "3 G/s and 0.8 s", "streaming": "3 G/s", "divergent": "1 G/s", "wmma": "none",
    "two cores": "1.8", "translation": "0.6 s", "memory": "2 GB",
}  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """One kernel: the best run on one thread, and on two."""

    lane_instr_per_s: float
    lane_instr_per_cpu_s: float
    wall_s: float
    cpu_s: float
    lane_instructions: int
    wall_2_threads_s: float
    cpu_2_threads_s: float

    @property
    def scaling(self) -> float:
        return self.wall_s / self.wall_2_threads_s

    @property
    def scaling_by_cpu(self) -> float:
        """What two idle cores could give at most: two threads do little more work than one."""
        return 2 * self.cpu_s / self.cpu_2_threads_s


def compile_ptx(*options: str) -> str:
    """The PTX of vgpu.cu."""
    cuda = find_cuda()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "vgpu.ptx"
        flags = ("-ptx", "-arch=sm_80", "-std=c++17", "-lineinfo", "-ccbin", cuda.host_compiler, *options)
        finished = run([cuda.nvcc, *flags, HERE / "vgpu.cu", "-o", out], Path(folder), timeout_s=120)
        if finished is None or finished.status != 0:
            sys.exit(f"vgpu.cu does not compile: {finished.output if finished else 'time-out'}")
        return out.read_text()


def machine_of(cache: Path) -> Machine:
    spec = load_spec(DEVICE)
    device = VirtualDevice(spec, cache)
    return Machine(spec, device.runtime(), {}, device.name)


def word(value: int) -> bytes:
    return struct.pack("<i", value)


def wide(value: int) -> bytes:
    return struct.pack("<Q", value)


@dataclass
class Subject:
    """A kernel with its launch, and how to tell whether its result is right."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: Sequence[bytes]
    right: Callable[[], bool]


def subjects(m: Machine, size: int) -> list[Subject]:
    """The kernels of the benchmark; ``size`` is that of the matrices."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    product = m.allocate(4 * size * size)
    matrix = (size, size)

    def sgemm_right() -> bool:
        return np.allclose(m.view(product, matrix, np.dtype(np.float32)), a @ b, rtol=1e-3, atol=1e-2)

    half_a, half_b = a.astype(np.float16), b.astype(np.float16)
    half_product = m.allocate(4 * size * size)

    def wmma_right() -> bool:
        wanted = half_a.astype(np.float32) @ half_b.astype(np.float32)
        return np.allclose(m.view(half_product, matrix, np.dtype(np.float32)), wanted, rtol=1e-3, atol=1e-2)

    count = 1 << 24
    x, y, z = (rng.standard_normal(count, dtype=np.float32) for _ in range(3))
    streamed = m.allocate(4 * count)

    def streaming_right() -> bool:
        got = m.view(streamed, (count,), np.dtype(np.float32))
        return np.allclose(got, np.maximum(x * y + z, 0), rtol=1e-5, atol=1e-5)

    numbers = 1 << 20
    steps = m.allocate(4 * numbers)
    known = {1: 0, 27: 111, 97: 118, 871: 178, 6171: 261, 77031: 350, 837799: 524}

    def divergent_right() -> bool:
        got = m.view(steps, (numbers,), np.dtype(np.uint32))
        return all(got[n - 1] == s for n, s in known.items())

    tiles = (size // 64, size // 64, 1)
    return [
        Subject("sgemm", tiles, (16, 16, 1), [wide(m.upload(a)), wide(m.upload(b)), wide(product), word(size)],
                sgemm_right),
        Subject("streaming", (count // 2048, 1, 1), (256, 1, 1),
                [*(wide(m.upload(v)) for v in (x, y, z)), wide(streamed), wide(count)], streaming_right),
        Subject("divergent", (numbers // 256, 1, 1), (256, 1, 1), [wide(steps), word(numbers)], divergent_right),
        Subject("wmma", tiles, (128, 1, 1),
                [wide(m.upload(half_a)), wide(m.upload(half_b)), wide(half_product), word(size)], wmma_right),
    ]  # fmt: skip


def launch(m: Machine, module: int, s: Subject, threads: int) -> tuple[float, float]:
    """Wall and CPU time of one launch without findings."""
    m.begin(None, LAUNCH_LIMIT_S, threads)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    status = m.start(module, s.name, s.grid, s.block, s.arguments)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    if status or m.findings():
        sys.exit(f"{s.name} ended with status {status}: {m.findings()[:2]}")
    return wall_s, cpu_s


def measure(m: Machine, module: int, s: Subject, runs: int) -> Measured:
    launch(m, module, s, 1)  # translates, and touches all pages
    if not s.right():
        sys.exit(f"{s.name} computed something wrong")
    one = _best([launch(m, module, s, 1) for _ in range(runs)])
    lanes = next(c.value for c in m.launch(0).counters if c.name == "lane_instructions")
    two = _best([launch(m, module, s, 2) for _ in range(runs)])
    return Measured(lanes / one[0], lanes / one[1], *one, int(lanes), *two)


def _best(times: list[tuple[float, float]]) -> tuple[float, float]:
    walls, cpus = zip(*times, strict=True)
    return min(walls), min(cpus)


# --- parts that run in a process of their own ------------------------------------------------------


def translation(cache: Path, runs: int) -> dict[str, float]:
    """First launch of a kernel less a later one; every run has a kernel of another name, so that nothing is kept."""
    m = machine_of(cache)
    data = m.upload(np.ones(256, np.float32))
    out = m.allocate(1024)
    best, best_cpu, instructions = float("inf"), float("inf"), 0
    # a name that no earlier process used either: translations may be kept on disk
    stamp = time.time_ns()
    for number in range(runs):
        name = f"mixed_{stamp}_{number}"
        text = compile_ptx(f"-DNAME={name}", "-DCOUNT=32")
        body = text[text.index(f".entry {name}") :]
        instructions = sum(
            line.strip().endswith(";") and not line.strip().startswith(".") for line in body.splitlines()
        )
        s = Subject(name, (1, 1, 1), (256, 1, 1), [wide(data), wide(out), word(256)], lambda: True)
        module = m.load_ptx(text)
        first, later = launch(m, module, s, 1), launch(m, module, s, 1)
        best, best_cpu = min(best, first[0] - later[0]), min(best_cpu, first[1] - later[1])
    return {"translation_s": best, "translation_cpu_s": best_cpu, "translation_instructions": instructions}


def memory(cache: Path, ptx: str) -> dict[str, float]:
    """Peak memory of this process after a sampled launch from one 16 GB tensor to another."""
    m = machine_of(cache)
    count = TENSOR_BYTES // 4
    with tempfile.NamedTemporaryFile() as file:
        os.truncate(file.name, TENSOR_BYTES)  # sparse: reads as zeros
        x = m.map_file(Path(file.name), TENSOR_BYTES)
        out = m.allocate(TENSOR_BYTES)
        m.begin(20_000_000, LAUNCH_LIMIT_S)
        arguments = [wide(x), wide(x), wide(x), wide(out), wide(count)]
        status = m.start(m.load_ptx(ptx), "streaming", (count // 2048, 1, 1), (256, 1, 1), arguments)
        if status or m.findings():
            sys.exit(f"the sampled launch ended with status {status}: {m.findings()[:2]}")
        blocks = m.launch(0).blocks_run
    # not ru_maxrss: a process starts with its parent's
    status_text = Path("/proc/self/status").read_text()
    peak = 1024 * int(status_text.split("VmHWM:")[1].split()[0])
    return {"memory_peak_bytes": peak, "memory_tensor_bytes": TENSOR_BYTES, "memory_blocks_run": blocks}


def pocl(size: int, runs: int) -> dict[str, float | str]:
    """Best wall time of the SGEMM on PoCL, on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ |= {"POCL_MAX_PTHREAD_COUNT": "1", "POCL_CPU_MAX_CU_COUNT": "1", "PYOPENCL_NO_CACHE": "1"}
    found = importlib.util.find_spec("pocl_binary_distribution")
    vendors = Path(str(found.origin)).parent / "vendors" if found else None
    if vendors is not None and vendors.is_dir():
        os.environ.setdefault("OCL_ICD_VENDORS", str(vendors))
    try:
        import pyopencl as cl

        devices = [d for p in cl.get_platforms() if "Portable" in p.name for d in p.get_devices()]
    except Exception as error:
        return {"pocl": f"not there: {str(error).splitlines()[0]}"}
    if not devices:
        return {"pocl": "not there: no such OpenCL platform"}
    context = cl.Context(devices[:1])
    queue = cl.CommandQueue(context)
    program = cl.Program(context, (HERE / "vgpu.cl").read_text()).build()
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(context, flags, hostbuf=v) for v in (a, b, np.zeros_like(a))]
    kernel = program.sgemm
    times = []
    for _ in range(runs + 1):  # the first one compiles
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        kernel(queue, (size // 4, size // 4), (16, 16), *buffers, np.int32(size))
        queue.finish()
        times.append((time.perf_counter() - began_s, time.process_time() - began_cpu_s))
    got = np.empty_like(a)
    cl.enqueue_copy(queue, got, buffers[2])
    if not np.allclose(got, a @ b, rtol=1e-3, atol=1e-2):
        return {"pocl": "computed something wrong"}
    return {
        "pocl": " ".join(devices[0].platform.version.split()[2:4]),
        "pocl_sgemm_s": min(times[1:])[0],
        "pocl_sgemm_cpu_s": min(times[1:])[1],
    }


def apart(part: str, options: argparse.Namespace) -> dict[str, float | str]:
    """Measure a part in a process of its own; what goes wrong there becomes the reason why it is missing."""
    command = [sys.executable, __file__, "--part", part, "--runs", str(options.runs), "--size", str(options.size)]
    done = subprocess.run([*command, "--cache", str(options.cache)], capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        reason = (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]
        return {part: f"failed: {reason}"}
    result: dict[str, float | str] = json.loads(lines[-1])
    return result


# --- reports ---------------------------------------------------------------------------------------


def page(measured: dict[str, Measured], rest: dict[str, float | str], options: argparse.Namespace) -> str:
    """The result as a page of docs."""
    size = options.size
    what = {
        "sgemm": f"SGEMM {size}³, 64 x 64 tile, 4 x 4 per thread", "streaming": "three arrays of 2²⁴ floats to one",
        "divergent": "3n + 1 sequences of 2²⁰ numbers", "wmma": f"f16 product {size}³ with wmma, fp32 sums",
    }  # fmt: skip
    rows = [
        f"| {name} | {what[name]} | {m.lane_instr_per_s / 1e9:.2f} | {m.lane_instr_per_cpu_s / 1e9:.2f} | "
        f"{m.wall_s:.3f} | {m.cpu_s:.3f} | {m.wall_2_threads_s:.3f} | {m.cpu_2_threads_s:.3f} | {BARS[name]} |"
        for name, m in measured.items()
    ]
    sgemm, wmma = measured["sgemm"], measured["wmma"]
    return "\n".join([
        "# How fast the virtual GPU is", "",
        "Written by `python benchmarks/vgpu.py --write docs/vgpu-benchmark.md` on a machine with 2 cores, AVX2; best "
        f"of {options.runs} runs, all checks and counters on. Rates are lane instructions (PTX instructions times "
        "active lanes) of one host thread, by wall time and by CPU time. Where they differ, others used the machine: "
        "then the CPU times tell more.", "",
        "| Kernel | What | G/s by wall | G/s by CPU | wall s | CPU s | two threads: wall s | CPU s | to reach |",
        "|---|---|---|---|---|---|---|---|---|", *rows, "",
        "| Other | Measured | to reach |", "|---|---|---|",
        f"| two cores against one (SGEMM), by wall time | {sgemm.scaling:.2f} | {BARS['two cores']} |",
        f"| the same, if both cores were free (by CPU time) | {sgemm.scaling_by_cpu:.2f} | |",
        f"| wmma, floating-point operations | {2 * size**3 / wmma.cpu_s / 1e9:.1f} G per CPU second | |",
        f"| translation of a kernel with {rest.get('translation_instructions', '?')} PTX instructions | "
        f"{_number(rest, 'translation_s', 1, 's', 'translation')} wall, "
        f"{_number(rest, 'translation_cpu_s', 1, 's', 'translation')} CPU | {BARS['translation']} |",
        f"| peak memory, sampled launch over a 16 GB tensor ({rest.get('memory_blocks_run', '?')} blocks run) | "
        f"{_number(rest, 'memory_peak_bytes', 1e9, 'GB', 'memory')} | {BARS['memory']} |",
        f"| SGEMM on one core by {rest.get('pocl', 'PoCL')} | {_number(rest, 'pocl_sgemm_s', 1, 's', 'pocl')} wall, "
        f"{_number(rest, 'pocl_sgemm_cpu_s', 1, 's', 'pocl')} CPU | |",
        f"| time of the virtual GPU / time of PoCL | {_number(rest, 'pocl_ratio', 1, '', 'pocl')} | |", "",
    ])  # fmt: skip


def _number(rest: dict[str, float | str], key: str, unit: float, name: str, part: str) -> str:
    value = rest.get(key)
    return f"{value / unit:.2f} {name}".strip() if isinstance(value, float | int) else str(rest.get(part, "not there"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one line of JSON last")
    parser.add_argument("--runs", type=int, default=5, help="of each kernel; the best counts")
    parser.add_argument("--size", type=int, default=1024, help="of the matrices, a multiple of 64")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "cupilot", help="for compiled code")
    parser.add_argument("--write", type=Path, help="a page to write the result to")
    parser.add_argument("--without", choices=PARTS, action="append", default=[], help="leave a part out")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        parts: dict[str, Callable[[], dict[str, float] | dict[str, float | str]]] = {
            "translation": lambda: translation(options.cache, options.runs),
            "memory": lambda: memory(options.cache, compile_ptx()),
            "pocl": lambda: pocl(options.size, options.runs),
        }
        print(json.dumps(parts[options.part]()))
        return
    m = machine_of(options.cache)
    module = m.load_ptx(compile_ptx())
    measured = {}
    for s in subjects(m, options.size):
        found = measured[s.name] = measure(m, module, s, options.runs)
        print(f"{s.name:10} {found.lane_instr_per_s / 1e9:6.2f} G lane instr/s  {found.wall_s:.3f} s wall, "
              f"{found.cpu_s:.3f} s CPU; two threads {found.wall_2_threads_s:.3f} s, x{found.scaling:.2f}")  # fmt: skip
    rest: dict[str, float | str] = {}
    for part in PARTS:
        rest |= apart(part, options) if part not in options.without else {part: "left out"}
    if isinstance(seconds := rest.get("pocl_sgemm_s"), float):
        rest["pocl_ratio"] = measured["sgemm"].wall_s / seconds
    rest["scaling_2_cores"] = measured["sgemm"].scaling
    rest["scaling_2_cores_by_cpu"] = measured["sgemm"].scaling_by_cpu
    for key, value in rest.items():
        print(f"{key:24} {value}")
    if options.write:
        options.write.write_text(page(measured, rest, options))
    if options.json:
        print(json.dumps({name: asdict(found) for name, found in measured.items()} | rest))


if __name__ == "__main__":
    main()
