"""Say what this machine has and what can be used.

One line for each part: ok, absent (cupilot works without it) or broken, with advice.  The virtual GPU is tried with a
small kernel, from the compiler to the result.  Exit status 0 when it works, else 1.  Keys are named, never shown.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path

from cupilot.cli.choices import add_json
from cupilot.cli.environment import cache_folder, llm_keys, sandbox_choice
from cupilot.cli.terminal import Terminal
from cupilot.numbers import duration

HELP = "say what is present and usable"
OK, ABSENT, BROKEN = "ok", "absent", "broken"
VIRTUAL = "virtual GPU"
LEAST_DISK_BYTES, LEAST_MEMORY_BYTES = 2 << 30, 2 << 30
NEEDED_PYTHON = (3, 11)
TOOL_TIMEOUT_S = 30.0
TRIAL_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Part:
    """One line: what, whether it can be used, what was found, and what to do about it."""

    name: str
    status: str
    text: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.status:<7} {self.name:<14} {self.text}" + (f"; {self.advice}" if self.advice else "")


def configure(parser: ArgumentParser) -> None:
    add_json(parser)


def run(options: Namespace, terminal: Terminal) -> int:
    parts: list[Part] = []
    for name, check in CHECKS:
        with terminal.status(f"looking at {name}"):
            found = tuple(_tried(name, check))
        for part in found:
            terminal.line(str(part))
        parts += found
    usable = any(part.name == VIRTUAL and part.status == OK for part in parts)
    terminal.report({"usable": usable, "parts": [asdict(part) for part in parts]})
    if not usable:
        terminal.warn("kernels cannot be evaluated here: the virtual GPU does not work")
    return 0 if usable else 1


def _tried(name: str, check: Callable[[], Iterator[Part]]) -> Iterator[Part]:
    """A part that makes its check fail is broken, and the others are looked at all the same."""
    try:
        yield from check()
    except Exception as error:
        yield Part(name, BROKEN, " ".join(f"{error}".split()) or type(error).__name__)


# --- what kernels are made with ---------------------------------------------------------------


def python() -> Iterator[Part]:
    fits = sys.version_info >= NEEDED_PYTHON
    yield Part("Python", OK if fits else BROKEN, platform.python_version(), "" if fits else "3.11 or newer is needed")


def pytorch() -> Iterator[Part]:
    try:
        yield Part("PyTorch", OK, version("torch"))
    except PackageNotFoundError:
        yield Part("PyTorch", BROKEN, "not installed", "tasks cannot be loaded: pip install torch")


def compiler() -> Iterator[Part]:
    from cupilot.toolchain.cuda import find_cuda, find_nvdisasm

    cuda = find_cuda()
    yield Part("nvcc", OK, cuda.version)
    yield _tool("ptxas", cuda.ptxas, "install nvidia-cuda-nvcc again")
    yield _tool("nvdisasm", find_nvdisasm(cuda), "counters are those of the PTX: pip install nvidia-cuda-nvdisasm")


def host_compiler() -> Iterator[Part]:
    from cupilot.toolchain.cuda import find_host_compiler

    yield _tool("C++ compiler", find_host_compiler(), "install g++ with the system's packages")


def _tool(name: str, path: Path | None, advice: str) -> Part:
    if path is None:
        return Part(name, ABSENT, "not installed", advice)
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=TOOL_TIMEOUT_S)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode or not lines:
        return Part(name, BROKEN, f"{path} does not tell its version", advice)
    # NVIDIA's tools tell it in a line of their own
    return Part(name, OK, next((line for line in lines if "release" in line), lines[0]).strip())


def virtual_gpu() -> Iterator[Part]:
    """A small kernel, compiled and run, and its result compared."""
    import numpy as np

    from cupilot.contracts import Call
    from cupilot.devices import DEFAULT, open_device
    from cupilot.records import Failure, Kernel, TensorSpec

    began_s = time.monotonic()
    device = open_device(DEFAULT, cache_folder(), sandbox_choice())
    source = (files("cupilot") / "testing" / "kernels" / "good.cu").read_text(encoding="utf-8")
    built = device.build(Kernel(source))
    if isinstance(built, Failure):
        yield Part(VIRTUAL, BROKEN, f"a small kernel does not compile: {built.message}")
        return
    values = np.linspace(-3.0, 3.0, 1000, dtype=np.float32)
    (result,) = device.run(built, (Call("doctor", (values,), (TensorSpec((1000,)),)),), TRIAL_TIMEOUT_S)
    if isinstance(result, Failure):
        yield Part(VIRTUAL, BROKEN, f"a small kernel does not run: {result.message}")
    elif not np.allclose(result.outputs[0].array, 2 * values + 1, rtol=1e-6):
        yield Part(VIRTUAL, BROKEN, "a small kernel has a wrong result")
    else:
        took = duration(time.monotonic() - began_s)
        yield Part(VIRTUAL, OK, f"{device.name}: a small kernel compiled, run and compared in {took}")


def sandbox() -> Iterator[Part]:
    from cupilot.sandbox.bubblewrap import chosen, confinement

    found = chosen(sandbox_choice())
    measures = confinement(found.program)
    missing = [f"{measure.name} ({measure.reason})" for measure in measures if not measure.active]
    active = ", ".join(measure.name for measure in measures if measure.active)
    without = f"without bubblewrap ({found.problem})" if found.problem else ""
    if not missing:
        yield Part("sandbox", OK, f"candidates are confined: {active}", without)
        return
    advice = "candidates can do more here than they should: run only code that you trust, or use a newer kernel"
    text = f"not restricted: {', '.join(missing)}" + (f"; restricted: {active}" if active else "")
    yield Part("sandbox", BROKEN, text, f"{without}; {advice}" if without else advice)


# --- what a real GPU needs --------------------------------------------------------------------


def gpus() -> Iterator[Part]:
    from cupilot.devices.cuda import problem_with
    from cupilot.devices.cuda_probe import find_gpus

    found = find_gpus()
    if not found.gpus:
        broken = bool(found.library)
        advice = "look at the driver with nvidia-smi" if broken else "kernels run on virtual GPUs"
        yield Part("CUDA GPU", BROKEN if broken else ABSENT, found.problem, advice)
        return
    release = f"{found.version // 1000}.{found.version % 1000 // 10}"
    for gpu in found.gpus:
        text = f"cuda:{gpu.index}: {gpu.name}, {gpu.memory_bytes / 2**30:.0f} GB, driver for CUDA {release}"
        problem = problem_with(found, gpu)
        yield Part("CUDA GPU", BROKEN if problem else OK, text, problem)


def cuda_runtime() -> Iterator[Part]:
    from cupilot.devices.cuda import find_runtime
    from cupilot.toolchain.cuda import find_cuda

    yield Part("CUDA runtime", OK, find_runtime(int(find_cuda().version.partition(".")[0])).name)


def pytorch_cuda() -> Iterator[Part]:
    from cupilot.devices.cuda import torch_cuda

    release = torch_cuda()
    if release:
        yield Part("PyTorch CUDA", OK, f"built for CUDA {release}")
    else:
        yield Part("PyTorch CUDA", ABSENT, "PyTorch is built for the CPU", "no measured baseline on a real GPU")


def nvml() -> Iterator[Part]:
    from cupilot.devices.cuda_probe import Nvml
    from cupilot.errors import MachineError

    try:
        yield Part("NVML", OK, f"driver {Nvml().driver()}")
    except MachineError as error:
        yield Part("NVML", ABSENT, str(error), "no clocks, temperature and power with measured times")


def ncu() -> Iterator[Part]:
    path = shutil.which("ncu")
    yield _tool("ncu", Path(path) if path else None, "profiles have the virtual GPU's counters")


# --- the rest ---------------------------------------------------------------------------------


def language_models() -> Iterator[Part]:
    missing = []
    for package in ("openai", "anthropic", "genai-prices"):
        try:
            version(package)
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        yield Part("LLM packages", ABSENT, f"no {', '.join(missing)}", "for LLM agents: pip install 'cupilot[llm]'")
    else:
        yield Part("LLM packages", OK, "installed")
    names = sorted(llm_keys())
    if names:
        yield Part("LLM keys", OK, f"set: {', '.join(names)}")
    else:
        yield Part("LLM keys", ABSENT, "none is set", "the built-in expert needs none")


def places() -> Iterator[Part]:
    folder = cache_folder()
    size, count = _size(folder)
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if os.access(there, os.W_OK):
        yield Part("cache", OK, f"{folder}, {size / 2**20:.0f} MB in {count} files")
    else:
        yield Part("cache", BROKEN, f"{there} cannot be written", "set CUPILOT_CACHE to another folder")
    free = shutil.disk_usage(there).free
    advice = "" if free >= LEAST_DISK_BYTES else "builds and runs need some: make room, or set CUPILOT_CACHE"
    yield Part("disk", BROKEN if advice else OK, f"{free / 2**30:.1f} GB free", advice)


def _size(folder: Path) -> tuple[int, int]:
    """Bytes and number of the files below a folder."""
    total = count = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
                count += 1
            except OSError:  # removed meanwhile
                continue
    return total, count


def memory() -> Iterator[Part]:
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) << 10
    advice = "" if free >= LEAST_MEMORY_BYTES else "large tasks will fail"
    yield Part("memory", BROKEN if advice else OK, f"{free / 2**30:.1f} GB free", advice)


CHECKS: tuple[tuple[str, Callable[[], Iterator[Part]]], ...] = (
    ("Python", python), ("PyTorch", pytorch), ("nvcc", compiler), ("C++ compiler", host_compiler),
    (VIRTUAL, virtual_gpu), ("sandbox", sandbox), ("CUDA GPU", gpus), ("CUDA runtime", cuda_runtime),
    ("PyTorch CUDA", pytorch_cuda), ("NVML", nvml), ("ncu", ncu), ("LLM", language_models), ("cache", places),
    ("memory", memory),
)  # fmt: skip
