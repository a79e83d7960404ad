"""Our own C++ sources to shared libraries, kept by content."""

from __future__ import annotations

from collections.abc import Sequence
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
    library = f"lib{name}.so"
    version = run([compiler, "--version"], compiler.parent, timeout_s=30)
    watched = [part for path in (*sources, *headers) for part in (path.name, path.read_bytes())]
    final = out_dir / digest([name, str(compiler), version.output if version else "", *FLAGS, *flags, *watched])
    if not final.is_dir():
        with scratch_beside(final) as scratch:
            files = [path.resolve() for path in sources]
            finished = run([compiler, *FLAGS, *files, *flags, "-o", library], scratch, timeout_s)
            if finished is None:
                raise MachineError(f"The compiler did not finish {library} within {timeout_s:g} s.")
            if finished.status != 0:
                raise MachineError(f"{library} does not compile: {_first_line(finished.output)}")
            publish(scratch, final)
    return final / library


def _first_line(log: str) -> str:
    error = first_error(log)
    return str(error) if error is not None else log.strip().partition("\n")[0]
