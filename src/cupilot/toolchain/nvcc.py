"""A candidate's source to a shared library, its PTX and its resources; every success is kept by content.

The source is not trusted, so all of its compilers run confined (`cupilot.sandbox.tools`): they see the toolchain, the
source and nothing else, and use bounded memory, time and disk.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from zlib import compress

from cupilot.contracts import Built
from cupilot.errors import MachineError
from cupilot.records import Failure, Finding, Kernel, Resources, from_plain, to_plain
from cupilot.sandbox.bubblewrap import AUTO
from cupilot.sandbox.tools import TOOL_LIMITS as LIMITS
from cupilot.sandbox.tools import Step, StepEnded, ToolsEnded, run_tools
from cupilot.toolchain.cache import digest, folder_digest, is_kept, publish, refuse_full_disk, scratch_beside
from cupilot.toolchain.commands import (
    CICC,
    NVCC,
    Commands,
    find_commands,
    module_name,
    readable_places,
    search_environment,
)
from cupilot.toolchain.cuda import Cuda, find_nvdisasm
from cupilot.toolchain.diagnostics import compile_errors, compile_failure, is_ambiguous
from cupilot.toolchain.ptxas import first_error as first_ptxas_error
from cupilot.toolchain.ptxas import read_report
from cupilot.toolchain.source import (
    forwarded_headers,
    may_miss_headers,
    no_such_entry,
    translation_unit,
    uses_extended_lambdas,
    uses_special_functions,
)

INCLUDE = Path(__file__).parent / "include"

SOURCE, UNIT, KEEP, HEADERS, LIBRARY, PTX, CUBIN, LISTING, RESOURCES = (
    "kernel.cu", "unit.cu", "keep", "headers", "kernel.so", "kernel.ptx", "kernel.cubin", "kernel.sass.z",
    "resources.json",
)  # fmt: skip
PTXAS, NVDISASM, SASS_TEXT = "ptxas", "nvdisasm", "kernel.sass"

# -O0 is for host code only: device code is optimised fully by default, and wrappers have nothing to gain.
# Hidden symbols keep two candidates in one process from sharing the header's state.
FLAGS = (
    "-shared", "-Xcompiler", "-fPIC,-fvisibility=hidden", "-cudart", "none", "--no-compress", "-std=c++17", "-O0",
    "-lineinfo", "--expt-relaxed-constexpr",
)  # fmt: skip
# They cost every source a tenth of its time, so each is left out where the source does not use it.
LAMBDA_FLAG = "--extended-lambda"  # includes <functional>
NO_SPECIAL_FUNCTIONS = "-D_GLIBCXX_BITS_SPECFUN_H"  # the guard of a part of libstdc++'s <cmath>
PTXAS_FLAGS = ("-v", "-O3", "-lineinfo")
# data flow analysis, which takes most of the time, only adds labels of indirect branches
NVDISASM_FLAGS = ("--no-dataflow", "-gp", "-hex", "-c")
# What PyTorch compiles extensions with.  Without them more sources compile, so they are a second attempt: where
# conversions between float and __half make a call ambiguous.
PYTORCH_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)  # fmt: skip
_NO_MEMORY = re.compile(r"out of memory|virtual memory exhausted|[Cc]annot allocate memory|std::bad_alloc")


def build_kernel(
    kernel: Kernel, arch: str, out_dir: Path, cuda: Cuda, *,
    link: Sequence[Path] = (), flags: Sequence[str] = (), timeout_s: float = 180, file: str = SOURCE,
    sandbox: str = AUTO,
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
    if not is_kept(final):
        with scratch_beside(final) as scratch:
            _write_sources(kernel, unit, scratch, cuda)
            build = _Build(kernel, arch, cuda, tuple(link), tuple(flags), scratch, file, sandbox)
            failure = build.run(timeout_s)
            if failure is not None:
                return failure
            publish(scratch, final)
    return _load(kernel, final)


def _address(kernel: Kernel, unit: str, arch: str, cuda: Cuda, link: Sequence[Path], flags: Sequence[str]) -> str:
    compiler = (cuda.version, str(cuda.host_compiler), folder_digest(INCLUDE))
    linked = [part for path in link for part in (str(path.resolve()), path.read_bytes())]
    ours = (*FLAGS, LAMBDA_FLAG, NO_SPECIAL_FUNCTIONS, *PYTORCH_FLAGS, *PTXAS_FLAGS)
    return digest((kernel.source, kernel.entry, unit, arch, *compiler, *ours, *flags, *linked))


def _write_sources(kernel: Kernel, unit: str, scratch: Path, cuda: Cuda) -> None:
    (scratch / SOURCE).write_text(kernel.source, encoding="utf-8", newline="")
    (scratch / UNIT).write_text(unit, encoding="utf-8")
    for name in (KEEP, HEADERS):
        (scratch / name).mkdir()
    for name, text in forwarded_headers(kernel.source).items():
        if not any((folder / name).is_file() for folder in (INCLUDE, *cuda.include)):
            (scratch / HEADERS / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / HEADERS / name).write_text(text)


class _Build:
    """One build in its scratch folder."""

    def __init__(
        self, kernel: Kernel, arch: str, cuda: Cuda, link: tuple[Path, ...], flags: tuple[str, ...], scratch: Path,
        file: str, sandbox: str,
    ) -> None:  # fmt: skip
        self._kernel, self._arch, self._cuda = kernel, arch, cuda
        self._link, self._flags = link, flags
        self._scratch, self._file, self._sandbox = scratch.resolve(), file, sandbox

    def run(self, timeout_s: float) -> Failure | None:
        deadline_s = time.monotonic() + timeout_s
        lean, ended = True, self._attempt((), deadline_s, lean=True)
        if ended.failed is not None and may_miss_headers(ended.log):
            made = translation_unit(self._kernel, SOURCE, lean=False)
            assert not isinstance(made, Failure)
            (self._scratch / UNIT).write_text(made[1], encoding="utf-8")
            lean, ended = False, self._attempt((), deadline_s, lean=False)
        if ended.failed is not None and is_ambiguous(ended.log):
            again = self._attempt(PYTORCH_FLAGS, deadline_s, lean=lean)
            ended = again if again.steps and again.failed is None else ended
        failure = self._failure(ended)
        if failure is None:
            self._finish(ended)
        return failure

    def _attempt(self, defines: Sequence[str], deadline_s: float, *, lean: bool) -> ToolsEnded:
        source = self._kernel.source
        flags = self._flags if lean and not uses_extended_lambdas(source) else (*self._flags, LAMBDA_FLAG)
        arguments = _arguments(self._arch, self._cuda, self._link, flags)
        commands = find_commands(self._cuda, arguments, UNIT)
        given = [*(flag for flag in self._flags if _is_define(flag)), *defines]
        given += [NO_SPECIAL_FUNCTIONS] if lean and not uses_special_functions(source) else []
        if commands.module_id:
            (self._scratch / commands.module_id).write_text(module_name(UNIT, self._kernel.digest))
        steps = [*commands.of(self._kernel.digest, given), *self._assembly(commands)]
        places = readable_places(self._cuda, INCLUDE, *(path.resolve().parent for path in self._link))
        return run_tools(
            steps, self._scratch, places, deadline_s - time.monotonic(),
            sandbox=self._sandbox, limits=LIMITS, environment=search_environment(self._cuda),
        )  # fmt: skip

    def _assembly(self, commands: Commands) -> tuple[Step, ...]:
        """The PTX as it is kept, with line tables that name the source as the user knows it; its machine code."""
        made = CICC if commands.module_id else NVCC
        folder = re.sub(r"([\\.*\[\]^$|])", r"\\\1", f"{self._scratch}/")
        kept = Path(KEEP, UNIT).with_suffix(".ptx")
        registers = [flag for flag in self._flags if flag.startswith("--maxrregcount")]
        ptxas = (str(self._cuda.ptxas), *PTXAS_FLAGS, *registers, f"-arch={self._arch}", PTX, "-o", CUBIN)
        steps = (
            Step("ptx", ("sed", f"s|{folder}||g", str(kept)), (made,), output=PTX),
            Step(PTXAS, ptxas, ("ptx",)),
        )
        tool = find_nvdisasm(self._cuda)
        if tool is None:
            return steps
        command = (str(tool), *NVDISASM_FLAGS, CUBIN)
        return (*steps, Step(NVDISASM, command, (PTXAS,), output=SASS_TEXT, optional=True))

    def _failure(self, ended: ToolsEnded) -> Failure | None:
        failed = ended.failed
        if ended.timed_out:
            return Failure("build", "time-out", "the compiler did not finish in the time given")
        if ended.excess or (failed is not None and _NO_MEMORY.search(failed.log)):
            return Failure("build", "limit", f"the compiler {ended.excess or 'ran out of memory'}")
        if failed is None:
            return None
        refuse_full_disk(self._scratch, failed.log)
        if failed.name == PTXAS:
            error = Finding("compile-error", f"ptxas: {first_ptxas_error(failed.log)}")
            return Failure.of("build", (error,), failed.log)
        return self._compiler_failure(ended, failed)

    def _compiler_failure(self, ended: ToolsEnded, failed: StepEnded) -> Failure:
        output = "".join(step.log for step in ended.steps[: ended.steps.index(failed) + 1])
        if "nvcc fatal" in output:
            raise MachineError(f"nvcc does not run as asked: {output.strip().partition(chr(10))[0]}")
        log = output.replace(f"{INCLUDE}/", "").replace(f"{self._scratch}/", "")
        errors = compile_errors(log)
        if errors and errors[0].file == UNIT and f'"{self._kernel.entry}" is undefined' in errors[0].text:
            return no_such_entry(self._kernel, log)
        if not log.strip() and failed.status is not None and failed.status < 0:
            name = signal.Signals(-failed.status).name
            return Failure("build", "compile-error", f"the compiler ({failed.name}) was ended by {name}", log)
        return compile_failure(log, self._file)

    def _finish(self, ended: ToolsEnded) -> None:
        report = read_report(ended.of(PTXAS).log)
        (self._scratch / RESOURCES).write_text(json.dumps(to_plain(report), indent=1))
        listing = self._scratch / SASS_TEXT
        if listing.is_file():
            (self._scratch / LISTING).write_bytes(compress(listing.read_bytes(), 1))
            listing.unlink()
        for name in (KEEP, HEADERS):
            shutil.rmtree(self._scratch / name)


def _arguments(arch: str, cuda: Cuda, link: Sequence[Path], flags: Sequence[str]) -> tuple[str, ...]:
    """For nvcc, but for what belongs to the candidate alone."""
    virtual = arch.replace("sm_", "compute_")
    linked = [part for path in map(Path.resolve, link) for part in _linked(path)]
    files = ("-I", INCLUDE, "-I", HEADERS, "--keep", "--keep-dir", KEEP, UNIT, "-o", LIBRARY)
    given = [flag for flag in flags if not _is_define(flag)]
    # the language standard can be given once
    ours = [flag for flag in FLAGS if not (flag.startswith("-std") and any(f.startswith("-std") for f in given))]
    target = ("-gencode", f"arch={virtual},code={virtual}")
    return tuple(map(str, ("-ccbin", cuda.host_compiler, *ours, *given, *target, *files, *linked)))


def _is_define(flag: str) -> bool:
    return flag.startswith(("-D", "-U"))


def _linked(library: Path) -> tuple[str, ...]:
    """By its name, because nvcc knows no files whose names end with a version."""
    return (
        f"-L{library.parent}", "-Xlinker", "--no-as-needed", f"-l:{library.name}",
        "-Xlinker", f"-rpath={library.parent}",
    )  # fmt: skip


def _load(kernel: Kernel, folder: Path) -> Built:
    resources = from_plain(tuple[tuple[str, Resources], ...], json.loads((folder / RESOURCES).read_text()), RESOURCES)
    ptx = (folder / PTX).read_text(encoding="utf-8")
    return Built(kernel, folder / LIBRARY, ptx, resources)
