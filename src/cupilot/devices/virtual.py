"""``virtual:NAME``: kernels run on the CPU, checked and counted; their time is modelled."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from cupilot.contracts import Array, Built, Call, Device, Outcome
from cupilot.devices.job import NUMPY, Answer, Job, JobArgument, JobCall
from cupilot.devices.process import Ended, run_limited
from cupilot.gpu import GpuSpec, load_spec, spec_names
from cupilot.records import Failure, Kernel, Profile, TensorSpec, Timing, from_plain, to_plain
from cupilot.records.evaluation import SassFunction
from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.host import build_host_library
from cupilot.toolchain.nvcc import CUBIN, build_kernel
from cupilot.toolchain.sass import kernel_sass
from cupilot.vgpu.timing import model_time

# PTX the engine is built for: nvcc knows nothing older, and the engine little that is newer.
OLDEST, NEWEST = 7.5, 9.0
GRACE_S = 5.0
KEPT_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "TMPDIR", "VIRTUAL_ENV")


def names() -> tuple[str, ...]:
    return tuple(f"virtual:{name}" for name in spec_names())


def open_device(name: str, cache: Path) -> Device:
    return VirtualDevice(load_spec(name), cache)


class VirtualDevice:
    """A modelled GPU; every candidate runs in a process of its own."""

    def __init__(self, spec: GpuSpec, cache: Path) -> None:
        self._spec = spec
        self._cache = cache
        self._cuda = find_cuda()
        self._runtime: Path | None = None
        self._scratch = tempfile.TemporaryDirectory(prefix="cupilot-")
        self._files: dict[int, tuple[Array, Path]] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return f"virtual:{self._spec.name}"

    @property
    def spec(self) -> GpuSpec:
        return self._spec

    def build(self, kernel: Kernel) -> Built | Failure:
        arch = f"sm_{round(min(max(self._spec.capability, OLDEST), NEWEST) * 10)}"
        return build_kernel(kernel, arch, self._cache / "kernels", self._cuda)

    def run(self, built: Built, calls: Sequence[Call], timeout_s: float) -> tuple[Outcome | Failure, ...]:
        folder = Path(tempfile.mkdtemp(prefix="job-", dir=self._scratch.name))
        try:
            job = Job(
                str(built.library), built.kernel.entry, str(self.runtime()), self._spec.name, self.name,
                built.resources, tuple(self._job_call(call) for call in calls), timeout_s, self._sass(built),
            )  # fmt: skip
            (folder / "job.json").write_text(json.dumps(to_plain(job)))
            environment = {key: os.environ[key] for key in KEPT_ENVIRONMENT if key in os.environ}
            command = (sys.executable, "-m", "cupilot.devices.worker", str(folder))
            ended = run_limited(command, folder, timeout_s + GRACE_S, environment | {"HOME": str(folder)})
            return tuple(self._result(folder, number, ended, timeout_s) for number in range(len(calls)))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def time(self, profile: Profile) -> Timing:
        return model_time(profile, self._spec, self.name)

    def runtime(self) -> Path:
        """Our CUDA runtime, compiled for this machine on first use."""
        with self._lock:
            if self._runtime is None:
                folder = Path(str(files("cupilot.vgpu") / "runtime"))
                sources, headers = (sorted(folder.glob(pattern)) for pattern in ("*.cpp", "*.h"))
                # calls inside the runtime stay inside, whatever a candidate defines
                flags = (*(f"-I{path}" for path in self._cuda.include), "-Wl,-Bsymbolic")
                self._runtime = build_host_library(
                    "cupilot_cudart", sources, self._cache / "runtime", flags=flags, headers=headers
                )
            return self._runtime

    def _sass(self, built: Built) -> tuple[SassFunction, ...]:
        """How the machine code makes the PTX's loads and stores; nothing where that cannot be found out."""
        return kernel_sass(built.library.with_name(CUBIN), built.ptx, self._cuda, self._cache / "sass")

    def _job_call(self, call: Call) -> JobCall:
        arguments = tuple(
            JobArgument(str(self._file(a)), TensorSpec(a.shape, str(a.dtype)))
            if isinstance(a, np.ndarray)
            else JobArgument(value=a)
            for a in call.arguments
        )
        return JobCall(call.label, arguments, call.outputs, call.sample_budget)

    def _file(self, array: Array) -> Path:
        """Arrays are the same for all candidates of a task, so each is written once."""
        with self._lock:
            if id(array) not in self._files:
                path = Path(self._scratch.name) / f"array{len(self._files)}"
                np.ascontiguousarray(array).tofile(path)
                self._files[id(array)] = (array, path)
            return self._files[id(array)][1]

    def _result(self, folder: Path, number: int, ended: Ended, timeout_s: float) -> Outcome | Failure:
        path = folder / f"answer{number}.json"
        if not path.exists():
            return _process_failure(ended, timeout_s)
        answer = from_plain(Answer, json.loads(path.read_text()))
        if answer.failure is not None or answer.profile is None:
            return answer.failure or _process_failure(ended, timeout_s)
        pairs = [_output(folder / f"answer{number}.{i}", spec) for i, spec in enumerate(answer.outputs)]
        return Outcome(tuple(values for values, _ in pairs), tuple(written for _, written in pairs), answer.profile)


def _output(stem: Path, spec: TensorSpec) -> tuple[Array, Array]:
    """An output and which of its elements were written."""
    whole = Path(f"{stem}.npy")
    if whole.exists():
        values = np.load(whole)
        return values, np.broadcast_to(np.True_, values.shape)
    # zero pages cost nothing until they are touched, and few are
    values, written = np.zeros(spec.elements, NUMPY[spec.dtype]), np.zeros(spec.elements, np.bool_)
    where = np.load(f"{stem}.where.npy")
    values[where], written[where] = np.load(f"{stem}.part.npy"), True
    return values.reshape(spec.shape), written.reshape(spec.shape)


def _process_failure(ended: Ended, timeout_s: float) -> Failure:
    """Why there is no answer."""
    if ended.timed_out:
        return Failure("run", "time-out", f"the candidate did not return within {timeout_s:g} s", ended.output)
    if ended.status < 0:
        name = signal.Signals(-ended.status).name
        return Failure("run", "crash", f"the candidate's host code crashed with {name}", ended.output)
    last = ended.output.strip().rpartition("\n")[2]
    return Failure("run", "crash", f"the candidate ended its process early (status {ended.status}) {last}".rstrip(),
                   ended.output)  # fmt: skip
