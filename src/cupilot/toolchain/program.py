"""A whole CUDA program, with its own ``main``, to a shared library that leaves the CUDA runtime open.

Kept by the content of the sources and of all headers they include, but CUDA's and the system's own.  Each file is
compiled by itself; device code that calls or names what another file defines (relocatable device code) is not
covered, nor are libraries beside CUDA's headers.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from cupilot.errors import UserError
from cupilot.records import Failure, Finding, Resources, from_plain, to_plain
from cupilot.toolchain.cache import digest, is_kept, publish, refuse_full_disk, scratch_beside
from cupilot.toolchain.cuda import Cuda
from cupilot.toolchain.diagnostics import compile_errors, first_line
from cupilot.toolchain.process import run
from cupilot.toolchain.ptxas import first_error as first_ptxas_error
from cupilot.toolchain.ptxas import larger_resources, read_report

LIBRARY, RESOURCES = "program.so", "resources.json"
DEVICE_SUFFIXES, HOST_SUFFIXES = (".cu",), (".cpp", ".cc", ".cxx", ".c")
FLAGS = (
    "-c", "-Xcompiler", "-fPIC", "-cudart", "none", "--no-compress", "-std=c++17", "-O2", "-lineinfo",
    "--expt-relaxed-constexpr", "--extended-lambda",
)  # fmt: skip
PTXAS_FLAGS = ("-v", "-O3", "-lineinfo")
LIBRARY_HEADER = re.compile(r"(cu(blas|fft|rand|sparse|solver|dnn|tensor)|npp|nvjpeg|nccl|nvgraph|optix|GL/|cudnn)")
# a program's own functions win over those of the process it is loaded into, as in an executable
LINK_FLAGS = ("-shared", "-Wl,-Bsymbolic", "-pthread")


@dataclass(frozen=True)
class ProgramSource:
    """Files as the user names them, and how they are to be compiled."""

    files: tuple[Path, ...]
    include: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    """further ones for nvcc; of ours, those that they contradict are left out"""


@dataclass(frozen=True)
class BuiltProgram:
    """``resources`` are by kernel; of two files' kernels with one name, the larger numbers."""

    library: Path
    resources: tuple[tuple[str, Resources], ...]


def check_files(files: Sequence[Path]) -> None:
    for path in files:
        if path.suffix not in DEVICE_SUFFIXES + HOST_SUFFIXES:
            raise UserError(f"{path} is no source file of a CUDA program: .cu and .cpp files are")
        if not path.is_file():
            raise UserError(f"the file {path} does not exist")


def build_program(
    source: ProgramSource, arch: str, out_dir: Path, cuda: Cuda, *, timeout_s: float = 600
) -> BuiltProgram | Failure:
    """Compile for ``arch`` (such as ``sm_80``), or take what is there already.  Failures are not kept."""
    check_files(source.files)
    known = _digest(source, arch, cuda)
    listing = out_dir / f"{known}.json"
    final = _kept(out_dir, known, listing)
    if final is None or not is_kept(final):
        deadline_s = time.monotonic() + timeout_s
        with scratch_beside(listing) as scratch:
            headers = _make(source, known, arch, cuda, scratch, deadline_s)
            if isinstance(headers, Failure):
                return headers
            final = out_dir / _whole_digest(known, headers)
            publish(scratch, final)
        _replace(listing, json.dumps([str(path) for path in headers]))
    resources = json.loads((final / RESOURCES).read_text())
    return BuiltProgram(final / LIBRARY, from_plain(tuple[tuple[str, Resources], ...], resources, RESOURCES))


def _digest(source: ProgramSource, arch: str, cuda: Cuda) -> str:
    """What is known before compiling: everything but the headers' content."""
    files = [part for path in source.files for part in (str(path.resolve()), path.read_bytes())]
    folders = [str(folder.resolve()) for folder in source.include]
    compiler = (cuda.version, str(cuda.host_compiler), *FLAGS, *PTXAS_FLAGS, *LINK_FLAGS)
    return digest(("program", *files, "-I", *folders, "-D", *source.defines, "--", *source.flags, arch, *compiler))


def _nvcc_flags(source: ProgramSource) -> list[str]:
    """Ours and the user's: nvcc takes a standard and a level of optimisation once only."""
    given = tuple(flag.replace("--", "-", 1) if flag.startswith("--") else flag for flag in source.flags)
    once = tuple(start for start in ("-std", "-O") if any(flag.startswith(start) for flag in given))
    ours = [flag for flag in FLAGS if flag not in source.flags and not (once and flag.startswith(once))]
    return [*ours, *source.flags]


def _link_flags(source: ProgramSource) -> list[str]:
    """Libraries, and what the host compiler needs at both ends."""
    libraries = [flag for flag in source.flags if flag.startswith(("-l", "-L")) and not flag.startswith("-lineinfo")]
    return [*LINK_FLAGS, *libraries, *(["-fopenmp"] if any("-fopenmp" in flag for flag in source.flags) else [])]


def _whole_digest(known: str, headers: Sequence[Path]) -> str:
    return digest((known, *(part for path in headers for part in (str(path), path.read_bytes()))))


def _kept(out_dir: Path, known: str, listing: Path) -> Path | None:
    """The build whose headers, as last listed, are unchanged."""
    try:
        headers = [Path(path) for path in json.loads(listing.read_text())]
        return out_dir / _whole_digest(known, headers)
    except (OSError, ValueError):
        return None


def _replace(path: Path, text: str) -> None:
    with scratch_beside(path) as scratch:
        (scratch / "new").write_text(text)
        (scratch / "new").rename(path)


def _make(
    source: ProgramSource, seed: str, arch: str, cuda: Cuda, scratch: Path, deadline_s: float
) -> list[Path] | Failure:
    """Compile, assemble and link in ``scratch``; gives the headers that were read."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        parts = list(
            pool.map(
                lambda pair: _compile(pair[1], _part(scratch, pair[0]), source, seed, arch, cuda, deadline_s),
                enumerate(source.files),
            )
        )
    headers: list[Path] = []
    kernels: list[tuple[str, Resources]] = []
    for number, part in enumerate(parts):
        if isinstance(part, Failure):
            return part
        headers += [path for path in _headers(_part(scratch, number) / "unit.d", cuda) if path not in headers]
        kernels += part
    objects = [_part(scratch, number) / "unit.o" for number in range(len(source.files))]
    link: list[str | Path] = [cuda.host_compiler, *objects, *_link_flags(source), "-o", LIBRARY]
    finished = run(link, scratch, deadline_s - time.monotonic())
    if finished is None:
        return _too_slow("the linker")
    if finished.status != 0:
        refuse_full_disk(scratch, finished.output)
        return Failure("build", "link-error", _link_message(finished.output), finished.output)
    (scratch / RESOURCES).write_text(json.dumps(to_plain(larger_resources(kernels)), indent=1))
    for number in range(len(source.files)):
        shutil.rmtree(_part(scratch, number))
    return headers


def _part(scratch: Path, number: int) -> Path:
    return scratch / f"part{number}"


def _compile(
    path: Path, folder: Path, source: ProgramSource, seed: str, arch: str, cuda: Cuda, deadline_s: float
) -> tuple[tuple[str, Resources], ...] | Failure:
    folder.mkdir()
    virtual = arch.replace("sm_", "compute_")
    options: list[str | Path] = [part for place in source.include for part in ("-I", place)]
    options += [f"-D{define}" for define in source.defines]
    options += [part for place in cuda.include for part in ("-isystem", place)]
    command = (
        cuda.nvcc, "-ccbin", cuda.host_compiler, *_nvcc_flags(source), "-gencode", f"arch={virtual},code={virtual}",
        f"--frandom-seed={digest((seed, str(path)))}", *options, "-MMD", "-MF", folder / "unit.d",
        "--keep", "--keep-dir", folder, path, "-o", folder / "unit.o",
    )  # fmt: skip
    # in the caller's folder: the compiler's messages then name the files as the user does
    finished = run(command, Path.cwd(), deadline_s - time.monotonic())
    if finished is None:
        return _too_slow("nvcc")
    if finished.status != 0:
        refuse_full_disk(folder, finished.output)
        return _nvcc_failure(finished.output)
    ptx = folder / f"{path.stem}.ptx"
    return _assemble(ptx, arch, cuda, deadline_s) if ptx.is_file() else ()


def _assemble(ptx: Path, arch: str, cuda: Cuda, deadline_s: float) -> tuple[tuple[str, Resources], ...] | Failure:
    command: list[str | Path] = [cuda.ptxas, *PTXAS_FLAGS, f"-arch={arch}", ptx.name, "-o", "unit.cubin"]
    finished = run(command, ptx.parent, deadline_s - time.monotonic())
    if finished is None:
        return _too_slow("ptxas")
    if finished.status == 0:
        return read_report(finished.output)
    message = first_ptxas_error(finished.output)
    if "nresolved extern" in message:
        message += "; device code that is spread over several files (relocatable device code) is not supported"
    return Failure.of("build", (Finding("compile-error", f"ptxas: {message}"),), finished.output)


def _nvcc_failure(output: str) -> Failure:
    errors = compile_errors(output)
    missing = re.search(r"fatal error: (\S+): No such file", output)
    if missing is not None and errors:
        name = missing.group(1)
        why = "it is of a library, which the virtual GPU has none of" if LIBRARY_HEADER.match(name) else ""
        text = f"the header {name} was not found; {why or '-I names the folder it is in'}"
        return Failure.of("build", (replace(errors[0], kind="missing-header", text=text),), output)
    if "requires separate compilation mode" in output and errors:
        text = f"{errors[0].text}: dynamic parallelism is not supported on the virtual GPU"
        return Failure.of("build", (replace(errors[0], kind="unsupported", text=text),), output)
    if not errors and "nvcc fatal" in output:
        raise UserError(f"nvcc does not run as asked: {output.strip().partition(chr(10))[0]}")
    return Failure.of("build", errors or (Finding("compile-error", first_line(output)),), output)


def _link_message(output: str) -> str:
    twice = re.search(r"multiple definition of [`'‘](.+?)['’]", output)
    if twice is not None:
        return f"{twice.group(1)} is defined in more than one file"
    errors = [line for line in output.splitlines() if "error" in line or "undefined" in line]
    return errors[0] if errors else output.strip().partition("\n")[0]


def _headers(listing: Path, cuda: Cuda) -> list[Path]:
    """Files that a compilation read, without CUDA's own, from a make rule."""
    if not listing.is_file():
        return []
    _, _, names = listing.read_text(errors="replace").replace("\\\n", " ").partition(" :")
    paths = [Path(name.replace("\0", " ")).resolve() for name in names.replace("\\ ", "\0").split()]
    root = cuda.root.resolve()
    return [path for path in paths if not path.is_relative_to(root)]


def _too_slow(tool: str) -> Failure:
    return Failure("build", "time-out", f"{tool} did not finish in the time given")
