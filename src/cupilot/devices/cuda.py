"""``cuda:N``: a real GPU, where kernels run for their results and their time, which is measured.

The wrapper is the one that runs on virtual GPUs, linked with CUDA's own runtime.  Each candidate has a process of its
own (`cuda_worker`), PyTorch has another, and they are timed in turns.  What no GPU tells is asked of the virtual GPU
most like it: every call runs there too, its findings are failures, and its counters make the profile, with those of
``ncu`` in their place where that is installed and permitted.

Nothing here falls back to another device.  Processes have limits on time, memory and threads but are not confined
further: what the driver needs of the system cannot be tried without one.
"""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
import select
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields, replace
from functools import cache as cached
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from cupilot.arrays import dtype_of
from cupilot.contracts import Built, Call, Device, Outcome, Output, Reference, Timed
from cupilot.devices.cuda_probe import Found, Gpu, Nvml, State, find_gpus
from cupilot.devices.cuda_worker import DONE, GO, KEEP, RUN, STOP, TURN, CudaAnswer, CudaJob
from cupilot.devices.virtual import VirtualDevice, process_failure
from cupilot.errors import DeviceError, MachineError
from cupilot.gpu import GpuSpec, load_spec, spec_names
from cupilot.gpu.timing import model_time
from cupilot.languages import language_of
from cupilot.languages.contract import Target
from cupilot.records import Counter, Failure, Kernel, Profile, Timing, from_plain, to_plain
from cupilot.sandbox.bubblewrap import AUTO
from cupilot.sandbox.process import Ended, Limits, run_limited
from cupilot.toolchain.cuda import find_cuda

WORKER = (sys.executable, "-P", "-m", "cupilot.devices.cuda_worker")
OLDEST = 7.5
GRACE_S, WATCH_S = 5.0, 0.05
UNCOUNTED = ("unsupported", "time-out", "crash", "excess", "load")
"""Failures of the virtual GPU that say nothing about the kernel."""
METRICS = {
    "dram__bytes_read.sum": "dram_read_bytes", "dram__bytes_write.sum": "dram_write_bytes",
    "lts__t_sectors_op_read.sum": "l2_read_sectors", "lts__t_sectors_op_write.sum": "l2_write_sectors",
}  # fmt: skip
# what drivers call the GPUs whose titles in the catalogue differ
OTHER_NAMES = {"NVIDIA H100 80GB HBM3": "h100-sxm"}
RUNTIME_FOLDERS = ("/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")


def names() -> tuple[str, ...]:
    found = find_gpus()
    return tuple(f"cuda:{gpu.index}" for gpu in found.gpus if not problem_with(found, gpu))


def reason_unusable() -> str:
    """Why no real GPU is chosen by default, in words for the user."""
    found = find_gpus()
    usable = next((gpu for gpu in found.gpus if not problem_with(found, gpu)), None)
    if usable is not None:
        return f"a virtual GPU is the default; --device cuda:{usable.index} measures on the {usable.name}"
    return found.problem or problem_with(found, found.gpus[0])


def open_device(name: str, cache: Path, sandbox: str = AUTO) -> Device:
    found = find_gpus()
    gpu = next((gpu for gpu in found.gpus if str(gpu.index) == name), None)
    problem = found.problem or ("there is no such GPU" if gpu is None else problem_with(found, gpu))
    if gpu is None or problem:
        raise DeviceError(f"the device cuda:{name} cannot be used: {problem}; try virtual:a100-80gb")
    return CudaDevice(gpu, found, cache, find_runtime(_release()), sandbox=sandbox)


@cached
def _release() -> int:
    """The major release of the compiler, and so of the runtime."""
    return int(find_cuda().version.partition(".")[0])


def problem_with(found: Found, gpu: Gpu) -> str:
    """Why a GPU cannot be used, or nothing."""
    if gpu.capability < OLDEST:
        return f"the {gpu.name} is too old (compute capability {gpu.capability}; CUDA {_release()} needs {OLDEST})"
    if found.version // 1000 < _release():
        have = f"{found.version // 1000}.{found.version % 1000 // 10}"
        return f"the driver is for CUDA {have}, and kernels are compiled with CUDA {_release()}: install a newer driver"
    return ""


class CudaDevice:
    """One GPU; ``worker`` is the command of the worker process."""

    def __init__(
        self, gpu: Gpu, found: Found, cache: Path, runtime: Path, *, worker: Sequence[str] = WORKER,
        flush_bytes: int | None = None, nvml: str | None = None, ncu: str | None = None, sandbox: str = AUTO,
    ) -> None:  # fmt: skip
        self._gpu, self._found, self._cache, self._runtime, self._worker = gpu, found, cache, runtime, tuple(worker)
        self._spec, like, self.note = spec_of(gpu)
        self._virtual = VirtualDevice(load_spec(like), cache, sandbox)
        self.flush_bytes = 2 * self._spec.l2_bytes if flush_bytes is None else flush_bytes
        self._ncu = ncu if ncu is not None else shutil.which("ncu") or ""
        self._no_ncu = "" if self._ncu else "ncu is not installed"
        self._uncounted: dict[str, str] = {}
        try:
            self._nvml: Nvml | None = Nvml(nvml) if nvml else Nvml()
        except MachineError:
            self._nvml = None

    @property
    def name(self) -> str:
        return f"cuda:{self._gpu.index}"

    @property
    def spec(self) -> GpuSpec:
        return self._spec

    @property
    def torch_cuda(self) -> str:
        return torch_cuda()

    def counters(self, built: Built) -> str:
        """Where a kernel's profile is from, in words."""
        if built.kernel.digest in self._uncounted:
            return f"none ({self._virtual.name}: {self._uncounted[built.kernel.digest]})"
        without = f"{self._virtual.name} ({self._no_ncu}; CUPTI is not used)"
        return without if self._no_ncu else "ncu, with the rest from the virtual GPU"

    def build(self, kernel: Kernel) -> Built | Failure:
        language = language_of(kernel)
        if not language.on_real_gpus:
            return Failure("build", "unsupported", f"kernels in {language.name} run on virtual GPUs only")
        target = Target(f"sm_{round(self._gpu.capability * 10)}", self._cache, self._runtime)
        return language.build(kernel, target, lambda built: ())

    def time(self, profile: Profile) -> Timing:
        """Modelled, for whoever has a profile only; `measure` measures."""
        return model_time(profile, self._spec, self.name)

    # --- results ---------------------------------------------------------------------------

    def run(self, built: Built, calls: Sequence[Call], timeout_s: float) -> tuple[Outcome | Failure, ...]:
        """All blocks run, whatever the sample budget; results of gigabytes come back as excerpts, called sampled."""
        with self._folder() as folder:
            ended = self._work(folder, self._job("verify", built, calls, timeout_s))
        results = [_read(ended, number, timeout_s) for number in range(len(calls))]
        right = [number for number, (answer, _) in enumerate(results) if answer.failure is None]
        profiles = dict(zip(right, self._profiles(built, [calls[number] for number in right], timeout_s), strict=True))
        found: list[Outcome | Failure] = []
        for number, (answer, outputs) in enumerate(results):
            profile = answer.failure or profiles[number]
            if not isinstance(profile, Failure):
                profile = replace(profile, sampled=answer.excerpt)
            found.append(profile if isinstance(profile, Failure) else Outcome(outputs, profile))
        return tuple(found)

    def _profiles(self, built: Built, calls: Sequence[Call], timeout_s: float) -> Iterator[Profile | Failure]:
        """What the virtual GPU counts, and what it finds; an empty profile where it cannot run the kernel."""
        twin = self._virtual.build(built.kernel) if calls else built
        results: Sequence[Outcome | Failure] = [twin] * len(calls) if isinstance(twin, Failure) else ()
        if calls and isinstance(twin, Built):
            results = self._virtual.run(twin, calls, timeout_s)
        for call, result in zip(calls, results, strict=True):
            if isinstance(result, Failure):
                self._uncounted[built.kernel.digest] = result.message
                yield Profile(self.name, ()) if result.kind in UNCOUNTED else result
                continue
            profile = replace(result.profile, device=self.name)
            yield profile if call.sample_budget is None else self._with_ncu(profile, built, call, timeout_s)

    def _with_ncu(self, profile: Profile, built: Built, call: Call, timeout_s: float) -> Profile:
        if self._no_ncu:
            return profile
        command = (
            self._ncu, "--csv", "--print-units", "base", "--print-kernel-base", "mangled", "--target-processes", "all",
            "--metrics", ",".join(METRICS), *self._worker,
        )  # fmt: skip
        with self._folder() as folder:
            job = replace(self._job("repeat", built, (call,), timeout_s), rotations=(0,))
            counted = read_ncu(self._work(folder, job, command).output)
        if not isinstance(counted, str) and [name for name, _ in counted] != [x.kernel for x in profile.launches]:
            counted = "ncu saw other launches than the virtual GPU"
        if isinstance(counted, str):
            self._no_ncu = counted
            return profile
        pairs = zip(profile.launches, counted, strict=True)
        launches = [
            replace(launch, counters=(*(c for c in launch.counters if c.name not in values),
                                      *(Counter(name, value, "ncu") for name, value in values.items())))
            for launch, (_, values) in pairs
        ]  # fmt: skip
        return replace(profile, launches=tuple(launches))

    # --- time ------------------------------------------------------------------------------

    def state(self) -> State:
        """Clocks, temperature and power, where the GPU tells them."""
        return self._nvml.state(self._gpu.uuid) if self._nvml is not None else ()

    @contextmanager
    def lock(self, alone: bool = True) -> Iterator[None]:
        """Nobody else on the GPU, or only those who do not measure; holds for all processes that share the cache."""
        self._cache.mkdir(parents=True, exist_ok=True)
        with (self._cache / f"{self._gpu.uuid}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield

    @contextmanager
    def timed_process(
        self, built: Built, call: Call, timeout_s: float, reference: Reference | None = None
    ) -> Iterator[CudaProcess]:
        """A process that runs the call, or PyTorch on the call's arguments, once at each turn that it is given."""
        job = replace(self._job("time", built, (call,), timeout_s), flush_bytes=self.flush_bytes, reference=reference)
        with self._folder() as folder, ThreadPoolExecutor(1) as pool:
            for pipe in (GO, DONE):
                os.mkfifo(folder / pipe)
            process = CudaProcess(folder, timeout_s, pool.submit(self._work, folder, job))
            try:
                yield process
            finally:
                process.finish()

    def repeat(
        self, built: Built, call: Call, rotations: Sequence[int], timeout_s: float
    ) -> tuple[tuple[Output, ...], ...] | Failure:
        """Excerpts of the results for each rotation of the inputs, from a fresh process."""
        job = replace(self._job("repeat", built, (call,), timeout_s), rotations=tuple(rotations))
        with self._folder() as folder:
            ended = self._work(folder, job)
        found = []
        for number in range(len(rotations)):
            answer, outputs = _read(ended, number, timeout_s)
            if answer.failure is not None:
                return answer.failure
            found.append(outputs)
        return tuple(found)

    # --- processes -------------------------------------------------------------------------

    def _job(self, mode: str, built: Built, calls: Sequence[Call], timeout_s: float) -> CudaJob:
        described = tuple(self._virtual.job_call(call) for call in calls)  # its files serve both
        library, entry = str(built.library), built.kernel.entry
        return CudaJob(mode, str(self._runtime), self._found.library, library, entry, described, timeout_s)

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="cupilot-", ignore_cleanup_errors=True) as name:
            yield Path(name)

    def _work(self, folder: Path, job: CudaJob, command: Sequence[str] | None = None) -> Ended:
        (folder / "job.json").write_text(json.dumps(to_plain(job)))
        environment = {
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.defpath)), "LANG": "C.UTF-8",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HOME": str(folder), "TMPDIR": str(folder),
            # wrappers know one device, and a candidate must reach no other
            "CUDA_VISIBLE_DEVICES": self._gpu.uuid, "TORCHINDUCTOR_CACHE_DIR": str(self._cache / "torch"),
        }  # fmt: skip
        limits = Limits(answer_bytes=8 << 30, tasks=64 if job.reference is None else 4096)
        line = (*(command or self._worker), str(folder))
        with nullcontext() if job.mode == "time" else self.lock(alone=command is not None):
            return run_limited(line, folder, job.timeout_s + GRACE_S, environment, limits)


class CudaProcess:
    """The parent's side of a process that is timed in turns."""

    def __init__(self, folder: Path, timeout_s: float, future: Future[Ended]) -> None:
        self._timeout_s, self._future = timeout_s, future
        # open for both directions, so that nobody waits for the other end
        self._go, self._done = os.open(folder / GO, os.O_RDWR), os.open(folder / DONE, os.O_RDWR)
        self._timed: Timed | None = None

    def turn(self, rotation: int, keep: bool = False) -> bool:
        """Let it run once; False when it cannot go on."""
        os.write(self._go, TURN.pack(KEEP if keep else RUN, rotation))
        while not select.select([self._done], [], [], WATCH_S)[0]:
            if self._future.done():
                return False
        return os.read(self._done, 1) == b"."

    def finish(self) -> Timed:
        """End the process, and take what it measured."""
        if self._timed is None:
            os.write(self._go, TURN.pack(STOP, 0))
            answer, outputs = _read(self._future.result(), 0, self._timeout_s)
            self._timed = Timed(answer.samples, outputs, answer.failure)
            os.close(self._go)
            os.close(self._done)
        return self._timed


def _read(ended: Ended, number: int, timeout_s: float) -> tuple[CudaAnswer, tuple[Output, ...]]:
    """The answer of a number and its results; a process that gave none has failed."""
    if number >= len(ended.answers):
        return CudaAnswer(process_failure(ended, timeout_s)), ()
    head, *rest = ended.answers[number]
    answer, parts, outputs = from_plain(CudaAnswer, json.loads(bytes(head))), iter(rest), []
    for spec, some in zip(answer.outputs, answer.partial, strict=True):
        values = np.frombuffer(next(parts), dtype_of(spec.dtype))
        outputs.append(Output(spec.shape, values, np.frombuffer(next(parts), np.int64) if some else None))
    return answer, tuple(outputs)


def find_runtime(release: int, folders: Iterable[Path] | None = None) -> Path:
    """The runtime library of a major release: in the pip wheels, else on the machine."""
    name = f"libcudart.so.{release}"
    for folder in folders if folders is not None else (*_wheel_folders(name, release), *map(Path, RUNTIME_FOLDERS)):
        if (folder / name).is_file():
            return folder / name
    raise MachineError(f"the CUDA runtime {name} was not found: install it with `pip install nvidia-cuda-runtime`")


def _wheel_folders(name: str, release: int) -> Iterator[Path]:
    for package in ("nvidia-cuda-runtime", f"nvidia-cuda-runtime-cu{release}"):
        with suppress(PackageNotFoundError):
            yield from (Path(str(file.locate())).parent for file in files(package) or () if file.name == name)


def torch_cuda() -> str:
    """The CUDA release that the installed PyTorch is built for, or nothing; PyTorch is not imported."""
    spec = find_spec("torch")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        found = re.search(r"^cuda\b[^=]*=\s*'([\d.]+)'", (Path(folder) / "version.py").read_text(), re.MULTILINE)
        if found:
            return found.group(1)
    return ""


def read_ncu(text: str) -> list[tuple[str, dict[str, float]]] | str:
    """Kernels in order with their counters, out of ncu's CSV; or why there are none."""
    if "ERR_NVGPUCTRPERM" in text:
        return "ncu is not permitted to read the GPU's counters"
    start = text.find('"ID",')
    if start < 0:
        return "ncu said nothing: " + (text.strip().rpartition("\n")[2] or "no output")
    found: dict[str, tuple[str, dict[str, float]]] = {}
    for row in csv.DictReader(line for line in text[start:].splitlines() if line.startswith('"')):
        _, values = found.setdefault(row["ID"], (row["Kernel Name"], {}))
        values[METRICS[row["Metric Name"]]] = float(row["Metric Value"].replace(",", ""))
    return list(found.values())


def spec_of(gpu: Gpu) -> tuple[GpuSpec, str, str]:
    """The GPU as data, the name of the one in the catalogue that is most like it, and a note where they differ."""
    known = [load_spec(name) for name in spec_names()]
    for spec in known:
        if gpu.name == spec.title or OTHER_NAMES.get(gpu.name) == spec.name:
            return spec, spec.name, ""
    sms = gpu["MULTIPROCESSOR_COUNT"]
    like = min(known, key=lambda spec: (abs(spec.capability - gpu.capability), abs(spec.sms - sms)))
    clock_hz = gpu["CLOCK_RATE"] * 1e3 or like.clock_hz
    dram = 2.0 * gpu["MEMORY_CLOCK_RATE"] * 1e3 * gpu["GLOBAL_MEMORY_BUS_WIDTH"] / 8 or like.dram_bytes_per_s
    told: dict[str, Any] = {
        "capability": gpu.capability, "sms": sms, "clock_hz": clock_hz, "dram_bytes": gpu.memory_bytes,
        "registers_per_sm": gpu["MAX_REGISTERS_PER_MULTIPROCESSOR"], "threads_per_block": gpu["MAX_THREADS_PER_BLOCK"],
        "threads_per_sm": gpu["MAX_THREADS_PER_MULTIPROCESSOR"],
        "warps_per_sm": gpu["MAX_THREADS_PER_MULTIPROCESSOR"] // 32,
        "blocks_per_sm": gpu["MAX_BLOCKS_PER_MULTIPROCESSOR"], "l2_bytes": gpu["L2_CACHE_SIZE"],
        "shared_bytes_per_sm": gpu["MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"],
        "shared_bytes_per_block": gpu["MAX_SHARED_MEMORY_PER_BLOCK"],
        "shared_bytes_per_block_optin": gpu["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"], "dram_bytes_per_s": dram,
    }  # fmt: skip
    size, speed = sms * clock_hz / (like.sms * like.clock_hz), dram / like.dram_bytes_per_s
    # tensor cores have doubled with every generation: too high a ceiling rejects nobody wrongly
    tensor = size * (2.0 if gpu.capability >= like.capability + 1 else 1.0)
    scaled: dict[str, Any] = {name: getattr(like, name) * size for name in ("sgemm_flop_per_s", "l2_bytes_per_s")}
    scaled |= {f.name: getattr(like, f.name) * tensor for f in fields(GpuSpec) if "_tensor_" in f.name}
    scaled |= {name: getattr(like, name) * speed for name in ("dram_read_bytes_per_s", "dram_copy_bytes_per_s")}
    scaled["l2_near_bytes"] = told["l2_bytes"] * like.l2_near_bytes // like.l2_bytes
    most = told["shared_bytes_per_sm"]
    scaled["shared_carveouts"] = (*(size for size in like.shared_carveouts if size < most), most)
    origins = dict(like.origins) | dict.fromkeys(told, "driver") | dict.fromkeys(scaled, "derived")
    name = "-".join(gpu.name.lower().replace("nvidia", "").split())
    spec = replace(like, name=name, title=gpu.name, origins=tuple(origins.items()), **told, **scaled)
    note = f"the {gpu.name} is not in the catalogue: its numbers are the driver's, the rest scaled from {like.title}"
    return spec, like.name, note
