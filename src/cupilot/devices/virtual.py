"""``virtual:NAME``: kernels run on the CPU, checked and counted; their time is modelled."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from cupilot.arrays import Array, Filed, Tiled, dtype_of, memory_of, strides_of
from cupilot.contracts import Built, Call, Device, Outcome, Output
from cupilot.devices.job import Answer, Job, JobArgument, JobCall
from cupilot.devices.zygote import ANSWERS, Forked, Zygote
from cupilot.gpu import GpuSpec, load_spec, spec_names
from cupilot.gpu.timing import model_time
from cupilot.languages import language_of
from cupilot.languages.contract import Target
from cupilot.places import Runs
from cupilot.records import Failure, Kernel, Profile, TensorSpec, Timing, from_plain, to_plain
from cupilot.sandbox.bubblewrap import AUTO, chosen, run_boxed
from cupilot.sandbox.process import Ended, bare_environment, supervise
from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.host import build_host_library, build_host_program, host_library
from cupilot.vgpu import translations

# PTX the engine is built for: nvcc knows nothing older, and the engine little that is newer.
OLDEST, NEWEST = 7.5, 9.0
RUNTIME, HOST = "cupilot_cudart", "cupilot_host"
GRACE_S = 5.0
ENDED = frozenset({"crash", "time-out", "protocol"})
"""Failures of a candidate whose host code did not return."""
LOAD_TIMEOUT_S = 60.0


def names() -> tuple[str, ...]:
    return tuple(f"virtual:{name}" for name in spec_names())


def open_device(name: str, cache: Path, sandbox: str = AUTO) -> Device:
    return VirtualDevice(load_spec(name), cache, sandbox)


class VirtualDevice:
    """A modelled GPU; every candidate runs in a process of its own."""

    def __init__(self, spec: GpuSpec, cache: Path, sandbox: str = AUTO) -> None:
        self._spec = spec
        self._cache = cache
        self._cuda = find_cuda()
        self._bubblewrap = chosen(sandbox).program
        self._target = Target(f"sm_{round(min(max(spec.capability, OLDEST), NEWEST) * 10)}", cache, sandbox=sandbox)
        self._runtime: Path | None = None
        self._host: Path | None = None
        self._zygote: Zygote | None = None
        self._scratch = tempfile.TemporaryDirectory(prefix="cupilot-")
        self._files: dict[int, Path] = {}
        self._written = 0
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return f"virtual:{self._spec.name}"

    @property
    def spec(self) -> GpuSpec:
        return self._spec

    def build(self, kernel: Kernel) -> Built | Failure:
        if self._runtime is not None:
            self._worker_source()  # it is there when the kernel is
        empty = (Call("load", (), ()),)
        return language_of(kernel).build(kernel, self._target, lambda built: self._run(built, empty, LOAD_TIMEOUT_S))

    def run(self, built: Built, calls: Sequence[Call], timeout_s: float) -> tuple[Outcome | Failure, ...]:
        return language_of(built.kernel).run(built, self._target, lambda more: self._run(more, calls, timeout_s))

    def _run(self, built: Built, calls: Sequence[Call], timeout_s: float) -> tuple[Outcome | Failure, ...]:
        folder = Path(tempfile.mkdtemp(prefix="job-", dir=self._scratch.name))
        try:
            job = Job(
                str(built.library), built.kernel.entry, str(self.runtime()), self._spec.name, self.name,
                built.resources, tuple(self.job_call(call) for call in calls), timeout_s,
                language_of(built.kernel).sass(built, self._target), built.kernel.language, str(self.host_program()),
            )  # fmt: skip
            (folder / "job.json").write_text(json.dumps(to_plain(job)))
            ended = supervise(lambda answers: (self._start(folder, answers), ANSWERS), timeout_s + GRACE_S)
            return tuple(_result(number, ended, timeout_s) for number in range(len(calls)))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def run_apart(self, command: Sequence[str], folder: Path, timeout_s: float) -> Ended:
        """Run one of our workers, which is to confine itself, with as little around it as can be."""
        environment, kept = bare_environment(folder), translations(self.runtime())
        return run_boxed(self._bubblewrap, command, folder, timeout_s, environment, writable=(kept,))

    def _start(self, folder: Path, answers: int) -> Forked:
        """A worker for the job in a folder."""
        return self._worker_source().start(folder, answers)

    def _worker_source(self) -> Zygote:
        """The process that workers are forked from."""
        scratch, runtime = Path(self._scratch.name), self.runtime()
        environment = bare_environment(scratch)
        with self._lock:
            known = self._zygote
            if known is None or known.environment != environment or not known.alive():
                kept = translations(runtime)
                kept.mkdir(parents=True, exist_ok=True)
                known = self._zygote = Zygote(runtime, scratch, environment, self._bubblewrap, (kept,))
            return known

    def time(self, profile: Profile) -> Timing:
        return model_time(profile, self._spec, self.name)

    def runtime(self, tell: Callable[[int, int], None] = lambda done, of: None) -> Path:
        """Our CUDA runtime, compiled for this machine on first use."""
        with self._lock:
            if self._runtime is None:
                sources, headers, flags = self._runtime_parts()
                self._runtime = build_host_library(
                    RUNTIME, sources, self._cache / "runtime", flags=flags, headers=headers, tell=tell
                )
            return self._runtime

    def host_program(self) -> Path:
        """The program that candidates' host code runs in, compiled on first use."""
        with self._lock:
            if self._host is None:
                package = Path(str(files("cupilot.vgpu")))
                shared = (package / "runtime" / f"cudart_{name}.cpp" for name in ("error", "per_thread", "unsupported"))
                sources = [*sorted((package / "host").glob("*.cpp")), *shared]
                headers = [*sorted((package / "host").glob("*.h")), *sorted((package / "runtime").glob("*.h"))]
                flags = (*(f"-I{path}" for path in self._cuda.include), "-ldl")
                self._host = build_host_program(HOST, sources, self._cache / "runtime", flags=flags, headers=headers)
            return self._host

    def unprepared(self) -> str:
        sources, headers, flags = self._runtime_parts()
        library = host_library(RUNTIME, sources, self._cache / "runtime", flags=flags, headers=headers)
        return "" if library.is_file() else "compiling the virtual GPU's runtime, once on this machine"

    def prepare(self, tell: Callable[[int, int], None]) -> None:
        self.runtime(tell)
        self.host_program()

    def _runtime_parts(self) -> tuple[list[Path], list[Path], tuple[str, ...]]:
        """Sources, headers and flags."""
        folder = Path(str(files("cupilot.vgpu") / "runtime"))
        # calls inside the runtime stay inside, whatever a candidate defines
        flags = (*(f"-I{path}" for path in self._cuda.include), "-Wl,-Bsymbolic")
        return sorted(folder.glob("*.cpp")), sorted(folder.glob("*.h")), flags

    def job_call(self, call: Call) -> JobCall:
        """A call as workers take it, its arrays in files."""
        arguments = tuple(self._argument(argument) for argument in call.arguments)
        return JobCall(
            call.label,
            arguments,
            call.outputs,
            call.sample_budget,
            call.order,
            call.lenient,
            call.sample_seed,
            call.looked_at,
        )

    def _argument(self, value: Any) -> JobArgument:
        if isinstance(value, np.ndarray):
            return JobArgument(str(self._file(value)), TensorSpec(value.shape, str(value.dtype), strides_of(value)))
        if isinstance(value, (list, tuple)):
            return JobArgument(items=tuple(self._argument(item) for item in value))
        return JobArgument(value=value)

    def _file(self, array: Array) -> Path:
        """Arrays are the same for all candidates of a task, so each is written once; of a tiled one, its tile.

        A file goes with its array: a suite's tasks one after another would fill any disk.
        """
        if isinstance(array, Filed) and array.file is not None:
            return array.file
        with self._lock:
            if id(array) not in self._files:
                path = Path(self._scratch.name) / f"array{self._written}"
                tile = array.tile if isinstance(array, Tiled) else None
                memory_of(array if tile is None else tile).tofile(path)
                self._files[id(array)] = path
                self._written += 1
                # may run at any moment, so it takes no lock: each step is one operation of a dictionary or a file
                weakref.finalize(array, _forget, self._files, id(array))
            return self._files[id(array)]


def _forget(files: dict[int, Path], key: int) -> None:
    files.pop(key).unlink(missing_ok=True)


def _result(number: int, ended: Ended, timeout_s: float) -> Outcome | Failure:
    if number >= len(ended.answers):
        return process_failure(ended, timeout_s)
    record, *arrays = ended.answers[number]
    answer = from_plain(Answer, json.loads(bytes(record)))
    if answer.profile is None:
        failure = answer.failure or process_failure(ended, timeout_s)
        # what the candidate printed may say why
        return replace(failure, log=ended.output) if failure.kind in ENDED and not failure.log else failure
    left = iter(arrays)
    forms = zip(answer.outputs, answer.whole, answer.aliases, answer.launches, answer.stored, strict=True)
    outputs = [_output(left, *form) for form in forms]
    return Outcome(tuple(outputs), answer.profile, answer.failure)


def _output(
    parts: Iterator[memoryview], spec: TensorSpec, whole: bool, alias: str, launches: int, stored: int
) -> Output:
    where = None if whole else Runs(np.frombuffer(next(parts), np.int64).reshape(-1, 2))
    return Output(spec.shape, np.frombuffer(next(parts), dtype_of(spec.dtype)), where, alias, launches, stored)


def process_failure(ended: Ended, timeout_s: float) -> Failure:
    """Why a process gave no answer."""
    last = ended.output.strip().rpartition("\n")[2]
    if ended.timed_out:
        kind, message = "time-out", f"the candidate did not return within {timeout_s:g} s"
    elif ended.excess:
        kind, message = "limit", f"the candidate {ended.excess}"
    elif ended.status < 0:
        # what the guard on device memory says when it strikes is the reason
        reason = f": {last}" if "device memory" in last else ""
        kind, message = "crash", f"the candidate's host code crashed with {signal.Signals(-ended.status).name}{reason}"
    else:
        kind, message = "crash", f"the candidate ended its process early (status {ended.status}) {last}".rstrip()
    return Failure("run", kind, message, ended.output)
