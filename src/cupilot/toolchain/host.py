"""Our own C++ sources to shared libraries, kept by content."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cupilot.errors import MachineError
from cupilot.toolchain.cache import digest, publish, scratch_beside
from cupilot.toolchain.cuda import find_host_compiler
from cupilot.toolchain.diagnostics import first_error
from cupilot.toolchain.process import run

FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-pthread")


def build_host_library(
    name: str,
    sources: Sequence[Path],
    out_dir: Path,
    *,
    flags: Sequence[str] = (),
    headers: Sequence[Path] = (),
    timeout_s: float = 300,
) -> Path:
    """Compile to ``out_dir/<digest>/lib<name>.so`` with `FLAGS` and then ``flags``.

    The digest covers the sources, the flags, the compiler, and the ``headers`` named; headers that are not named
    are not watched.  With ``-march=native`` the result is for this machine: keep ``out_dir`` on it.
    """
    compiler = find_host_compiler()
    version = run([compiler, "--version"], compiler.parent, timeout_s=30)
    watched = [part for path in headers for part in (path.name, path.read_bytes())]
    known = [str(compiler), version.output if version else "", *FLAGS, *flags, *watched]
    library = f"lib{name}.so"
    final = out_dir / digest([name, *known, *(part for path in sources for part in (path.name, path.read_bytes()))])
    if not final.is_dir():
        with ThreadPoolExecutor() as pool:
            made = pool.map(lambda path: _object(compiler, path, out_dir, known, flags, timeout_s), sources)
            objects = list(made)
        _make([compiler, *FLAGS, *objects, *flags, "-o", library], library, final, timeout_s)
    return final / library


def _object(
    compiler: Path, source: Path, out_dir: Path, known: Sequence[str | bytes], flags: Sequence[str], timeout_s: float
) -> Path:
    """One source compiled, so that a change costs one file."""
    final = out_dir / digest([*known, source.name, source.read_bytes()])
    name = f"{source.stem}.o"
    if not final.is_dir():
        _make([compiler, *FLAGS, "-c", source.resolve(), *flags, "-o", name], source.name, final, timeout_s)
    return final / name


def _make(command: Sequence[str | Path], what: str, final: Path, timeout_s: float) -> None:
    with scratch_beside(final) as scratch:
        finished = run(command, scratch, timeout_s)
        if finished is None:
            raise MachineError(f"The compiler did not finish {what} within {timeout_s:g} s.")
        if finished.status != 0:
            raise MachineError(f"{what} does not compile: {_first_line(finished.output)}")
        publish(scratch, final)


def _first_line(log: str) -> str:
    error = first_error(log)
    return str(error) if error is not None else log.strip().partition("\n")[0]
