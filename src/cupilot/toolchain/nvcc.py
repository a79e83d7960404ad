"""A candidate's source to a shared library, its PTX and its resources; every success is kept by content."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from cupilot.contracts import Built
from cupilot.errors import MachineError
from cupilot.records import Failure, Finding, Kernel, Resources, from_plain, to_plain
from cupilot.toolchain.cache import digest, folder_digest, publish, scratch_beside
from cupilot.toolchain.cuda import Cuda
from cupilot.toolchain.diagnostics import compile_errors, compile_failure, is_ambiguous
from cupilot.toolchain.process import run
from cupilot.toolchain.ptxas import first_error as first_ptxas_error
from cupilot.toolchain.ptxas import read_report
from cupilot.toolchain.source import forwarded_headers, no_such_entry, translation_unit

INCLUDE = Path(__file__).parent / "include"

SOURCE, UNIT, KEEP, HEADERS, LIBRARY, PTX, CUBIN, RESOURCES = (
    "kernel.cu", "unit.cu", "keep", "headers", "kernel.so", "kernel.ptx", "kernel.cubin", "resources.json",
)  # fmt: skip

# -O1 is for host code only: device code is optimised fully by default, and wrappers have nothing to gain.
# Hidden symbols keep two candidates in one process from sharing the header's state.
FLAGS = (
    "-shared", "-Xcompiler", "-fPIC,-fvisibility=hidden", "-cudart", "none", "--no-compress", "-std=c++17", "-O1",
    "-lineinfo", "--expt-relaxed-constexpr", "--extended-lambda",
)  # fmt: skip
PTXAS_FLAGS = ("-v", "-O3", "-lineinfo")
# What PyTorch compiles extensions with.  Without them more sources compile, so they are a second attempt: where
# conversions between float and __half make a call ambiguous.
PYTORCH_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)  # fmt: skip


def build_kernel(
    kernel: Kernel, arch: str, out_dir: Path, cuda: Cuda, *,
    link: Sequence[Path] = (), flags: Sequence[str] = (), timeout_s: float = 180, file: str = SOURCE,
) -> Built | Failure:  # fmt: skip
    """Compile for ``arch`` (such as ``sm_80``) into ``out_dir/<digest>``, or take what is there already.

    The library holds the PTX alone and leaves the CUDA runtime open: the process that loads it, or ``link``,
    decides on the runtime.  The cubin and the PTX lie beside the library.  Failures are not kept.  ``file`` is the
    user's, which errors inside headers are traced back to; the source names it itself, by #line.
    """
    made = translation_unit(kernel, SOURCE)
    if isinstance(made, Failure):
        return made
    kernel, unit = made
    final = out_dir / _address(kernel, unit, arch, cuda, link, flags)
    if not final.is_dir():
        deadline_s = time.monotonic() + timeout_s
        with scratch_beside(final) as scratch:
            _write_sources(kernel, unit, scratch, cuda)
            failure = _compile(kernel, _command(kernel, arch, cuda, link, flags), scratch, deadline_s, file)
            failure = failure or _assemble(arch, scratch, cuda, deadline_s, flags)
            if failure is not None:
                return failure
            publish(scratch, final)
    return _load(kernel, final)


def _address(kernel: Kernel, unit: str, arch: str, cuda: Cuda, link: Sequence[Path], flags: Sequence[str]) -> str:
    compiler = (cuda.version, str(cuda.host_compiler), folder_digest(INCLUDE))
    linked = [part for path in link for part in (str(path.resolve()), path.read_bytes())]
    ours = (*FLAGS, *PYTORCH_FLAGS, *PTXAS_FLAGS)
    return digest((kernel.source, kernel.entry, unit, arch, *compiler, *ours, *flags, *linked))


def _command(
    kernel: Kernel, arch: str, cuda: Cuda, link: Sequence[Path], flags: Sequence[str]
) -> tuple[str | Path, ...]:
    virtual = arch.replace("sm_", "compute_")
    target = ("-gencode", f"arch={virtual},code={virtual}", f"--frandom-seed={kernel.digest}")
    linked = [part for path in map(Path.resolve, link) for part in _linked(path)]
    files = ("-I", INCLUDE, "-I", HEADERS, "--keep", "--keep-dir", KEEP, UNIT, "-o", LIBRARY)
    # the language standard can be given once
    ours = [flag for flag in FLAGS if not (flag.startswith("-std") and any(f.startswith("-std") for f in flags))]
    return (cuda.nvcc, "-ccbin", cuda.host_compiler, *ours, *flags, *target, *files, *linked)


def _linked(library: Path) -> tuple[str, ...]:
    """By its name, because nvcc knows no files whose names end with a version."""
    return (
        f"-L{library.parent}", "-Xlinker", "--no-as-needed", f"-l:{library.name}",
        "-Xlinker", f"-rpath={library.parent}",
    )  # fmt: skip


def _write_sources(kernel: Kernel, unit: str, scratch: Path, cuda: Cuda) -> None:
    (scratch / SOURCE).write_text(kernel.source, encoding="utf-8", newline="")
    (scratch / UNIT).write_text(unit, encoding="utf-8")
    for name in (KEEP, HEADERS):
        (scratch / name).mkdir()
    for name, text in forwarded_headers(kernel.source).items():
        if not any((folder / name).is_file() for folder in (INCLUDE, *cuda.include)):
            (scratch / HEADERS / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / HEADERS / name).write_text(text)


def _compile(
    kernel: Kernel, command: Sequence[str | Path], scratch: Path, deadline_s: float, file: str
) -> Failure | None:
    finished = run(command, scratch, deadline_s - time.monotonic())
    if finished is not None and finished.status != 0 and is_ambiguous(finished.output):
        again = run((*command, *PYTORCH_FLAGS), scratch, deadline_s - time.monotonic())
        finished = again if again is not None and again.status == 0 else finished
    if finished is None:
        return _too_slow("nvcc")
    if finished.status != 0:
        return _nvcc_failure(kernel, finished.output, file)
    ptx = (scratch / KEEP / UNIT).with_suffix(".ptx").read_text(encoding="utf-8")
    # line tables name the source as the user knows it, not the folder it was compiled in
    (scratch / PTX).write_text(ptx.replace(f"{scratch.resolve()}/", ""), encoding="utf-8")
    for name in (KEEP, HEADERS):
        shutil.rmtree(scratch / name)
    return None


def _nvcc_failure(kernel: Kernel, output: str, file: str) -> Failure:
    if "nvcc fatal" in output:
        raise MachineError(f"nvcc does not run as asked: {output.strip().partition(chr(10))[0]}")
    log = output.replace(f"{INCLUDE}/", "")
    errors = compile_errors(log)
    if errors and errors[0].file == UNIT and f'"{kernel.entry}" is undefined' in errors[0].text:
        return no_such_entry(kernel, log)
    return compile_failure(log, file)


def _assemble(arch: str, scratch: Path, cuda: Cuda, deadline_s: float, flags: Sequence[str]) -> Failure | None:
    registers = [flag for flag in flags if flag.startswith("--maxrregcount")]
    command: list[str | Path] = [cuda.ptxas, *PTXAS_FLAGS, *registers, f"-arch={arch}", PTX, "-o", CUBIN]
    finished = run(command, scratch, deadline_s - time.monotonic())
    if finished is None:
        return _too_slow("ptxas")
    if finished.status != 0:
        error = Finding("compile-error", f"ptxas: {first_ptxas_error(finished.output)}")
        return Failure.of("build", (error,), finished.output)
    (scratch / RESOURCES).write_text(json.dumps(to_plain(read_report(finished.output)), indent=1))
    return None


def _too_slow(tool: str) -> Failure:
    return Failure("build", "time-out", f"{tool} did not finish in the time given")


def _load(kernel: Kernel, folder: Path) -> Built:
    resources = from_plain(tuple[tuple[str, Resources], ...], json.loads((folder / RESOURCES).read_text()), RESOURCES)
    ptx = (folder / PTX).read_text(encoding="utf-8")
    return Built(kernel, folder / LIBRARY, ptx, resources)
