"""Our own C++ sources to shared libraries and programs, kept by content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from cupilot.errors import MachineError
from cupilot.toolchain.cache import digest, is_kept, publish, refuse_full_disk, scratch_beside
from cupilot.toolchain.cuda import find_host_compiler
from cupilot.toolchain.diagnostics import compile_errors
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
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> Path:
    """Compile to ``out_dir/<digest>/lib<name>.so`` with `FLAGS` and then ``flags``.

    The digest covers the sources, the flags, the compiler, and the ``headers`` named; headers that are not named
    are not watched.  With ``-march=native`` the result is for this machine: keep ``out_dir`` on it.  ``tell`` is given
    how many of the sources are compiled, and of how many.
    """
    library = host_library(name, sources, out_dir, flags=flags, headers=headers)
    return _linked(library, sources, out_dir, FLAGS, flags, headers, timeout_s, tell)


def build_host_program(
    name: str,
    sources: Sequence[Path],
    out_dir: Path,
    *,
    flags: Sequence[str] = (),
    headers: Sequence[Path] = (),
    timeout_s: float = 300,
) -> Path:
    """Compile to the program ``out_dir/<digest>/<name>``, whose functions libraries that it loads can call."""
    program = host_library(name, sources, out_dir, flags=flags, headers=headers).with_name(name)
    linking = (*(flag for flag in FLAGS if flag != "-shared"), "-rdynamic")
    return _linked(program, sources, out_dir, linking, flags, headers, timeout_s)


def _linked(
    final: Path, sources: Sequence[Path], out_dir: Path, linking: Sequence[str], flags: Sequence[str],
    headers: Sequence[Path], timeout_s: float, tell: Callable[[int, int], None] = lambda done, of: None,
) -> Path:  # fmt: skip
    """Compile the sources side by side and link them, unless that is kept."""
    if not is_kept(final.parent):
        compiler, known = find_host_compiler(), _known(flags, headers)
        with ThreadPoolExecutor() as pool:
            made = [pool.submit(_object, compiler, path, out_dir, known, flags, timeout_s) for path in sources]
            for done, _ in enumerate(as_completed(made), start=1):
                tell(done, len(made))
            objects = [future.result() for future in made]
        _make([compiler, *linking, *objects, *flags, "-o", final.name], final.name, final.parent, timeout_s)
    return final


def host_library(
    name: str, sources: Sequence[Path], out_dir: Path, *, flags: Sequence[str] = (), headers: Sequence[Path] = ()
) -> Path:
    """Where `build_host_library` leaves the library, which may not be there yet."""
    contents = [part for path in sources for part in (path.name, path.read_bytes())]
    return out_dir / digest([name, *_known(flags, headers), *contents]) / f"lib{name}.so"


def _known(flags: Sequence[str], headers: Sequence[Path]) -> list[str | bytes]:
    """What every object depends on."""
    compiler = find_host_compiler()
    version = run([compiler, "--version"], compiler.parent, timeout_s=30)
    watched = [part for path in headers for part in (path.name, path.read_bytes())]
    return [str(compiler), version.output if version else "", *FLAGS, *flags, *watched]


def _object(
    compiler: Path, source: Path, out_dir: Path, known: Sequence[str | bytes], flags: Sequence[str], timeout_s: float
) -> Path:
    """One source compiled, so that a change costs one file."""
    final = out_dir / digest([*known, source.name, source.read_bytes()])
    name = f"{source.stem}.o"
    if not is_kept(final):
        _make([compiler, *FLAGS, "-c", source.resolve(), *flags, "-o", name], source.name, final, timeout_s)
    return final / name


def _make(command: Sequence[str | Path], what: str, final: Path, timeout_s: float) -> None:
    with scratch_beside(final) as scratch:
        finished = run(command, scratch, timeout_s)
        if finished is None:
            raise MachineError(f"The compiler did not finish {what} within {timeout_s:g} s.")
        if finished.status != 0:
            refuse_full_disk(scratch, finished.output)
            raise MachineError(f"{what} does not compile: {_first_line(finished.output)}")
        publish(scratch, final)


def _first_line(log: str) -> str:
    errors = compile_errors(log)
    return str(errors[0]) if errors else log.strip().partition("\n")[0]
