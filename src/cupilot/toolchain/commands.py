"""The commands that nvcc would run for a candidate, asked of nvcc itself, as steps that can run side by side.

nvcc is a driver: it calls the host compiler, cudafe++, cicc and others one after another, through a shell.  Its
``--dryrun`` prints these commands, and `find_commands` reads them once for each set of flags.  Run directly, the device
side (preprocessor, cicc, ptxas, nvdisasm) and the host side (preprocessor, cudafe++) do not wait for each other.  Where
the commands of another version of nvcc are not those expected, there is one step: nvcc.
"""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

from cupilot.errors import MachineError
from cupilot.sandbox.tools import Step
from cupilot.toolchain.cuda import Cuda
from cupilot.toolchain.process import run

SEED = "cupilot0seed"
"""Stands for the candidate's own in the commands that are kept."""
HOST_CPP, CUDAFE, DEVICE_CPP, CICC, FATBINARY, HOST, LINK, NVCC = (
    "host-preprocessor", "cudafe", "device-preprocessor", "cicc", "fatbinary", "host-compiler", "linker", "nvcc",
)  # fmt: skip
_AFTER = {
    HOST_CPP: (), CUDAFE: (HOST_CPP,), DEVICE_CPP: (), CICC: (DEVICE_CPP,), FATBINARY: (CICC,),
    HOST: (CUDAFE, FATBINARY), LINK: (HOST,),
}  # fmt: skip
_ASSIGNMENT = re.compile(r"([A-Z_]+)=(.*)")
_MODULE_ID = "--module_id_file_name"


@dataclass(frozen=True)
class Commands:
    """The steps of a build in nvcc's order, and the file that cudafe++ and cicc read a name for the module from."""

    steps: tuple[Step, ...]
    module_id: str = ""

    def of(self, seed: str, defines: Sequence[str]) -> tuple[Step, ...]:
        """For one candidate: ``defines`` (``-D`` and ``-U``) go to the preprocessors."""
        return tuple(_for(step, seed, defines) for step in self.steps)


def module_name(unit: str, seed: str) -> str:
    """What cudafe++ would call the module: it makes unnamed namespaces differ from those of other files."""
    return f"_{crc32(unit.encode()):08x}_{len(unit)}_{re.sub(r'[^0-9A-Za-z]', '_', unit)}_{crc32(seed.encode()):08x}"


@cache
def find_commands(cuda: Cuda, arguments: tuple[str, ...], unit: str) -> Commands:
    """What nvcc would do for ``unit`` with these arguments; raises `MachineError` for those it does not know."""
    with TemporaryDirectory(prefix="cupilot-") as folder:
        finished = run([cuda.nvcc, "--dryrun", f"--frandom-seed={SEED}", *arguments], Path(folder), 60)
    if finished is None or finished.status != 0:
        told = "" if finished is None else finished.output.strip().partition("\n")[0]
        raise MachineError(f"nvcc does not run as asked: {told or 'it takes too long'}")
    return _direct(finished.output, cuda, unit) or _through_nvcc(cuda, arguments)


def _through_nvcc(cuda: Cuda, arguments: Sequence[str]) -> Commands:
    command = (str(cuda.nvcc), f"--frandom-seed={SEED}", *arguments)
    return Commands((Step(NVCC, command, environment=(("PATH", _search_path(cuda)),)),))


def _direct(text: str, cuda: Cuda, unit: str) -> Commands | None:
    variables: dict[str, str] = {}
    found: list[Step] = []
    for line in text.splitlines():
        command = line.removeprefix("#$ ").strip()
        if assigned := _ASSIGNMENT.fullmatch(command):
            variables[assigned[1]] = assigned[2]
            continue
        words = shlex.split(string.Template(command).safe_substitute(variables))
        name = _name(words)
        if name:
            found.append(Step(name, (_program(words[0], cuda), *words[1:]), _AFTER[name]))
    if [step.name for step in found] != list(_AFTER):
        return None
    library = variables.get("NVVMIR_LIBRARY_DIR", "")
    environment = (("NVVMIR_LIBRARY_DIR", library), ("PATH", _search_path(cuda)))
    steps = [replace(_with_source_name(step, unit), environment=environment) for step in found]
    cicc = next(step.command for step in steps if step.name == CICC)
    return Commands(tuple(steps), cicc[cicc.index(_MODULE_ID) + 1]) if _MODULE_ID in cicc else None


def _name(words: Sequence[str]) -> str:
    """Which step of nvcc's a command is; nothing for those that only tidy up."""
    program = Path(words[0]).name if words else ""
    if program in ("cudafe++", "cicc", "fatbinary"):
        return {"cudafe++": CUDAFE}.get(program, program)
    if program in ("", "rm"):
        return ""
    if "-E" in words:
        return DEVICE_CPP if any(word.startswith("-D__CUDA_ARCH__=") for word in words) else HOST_CPP
    return HOST if "-c" in words else LINK


def _program(name: str, cuda: Cuda) -> str:
    if "/" in name:
        return name
    return next((str(at / name) for at in _folders(cuda) if (at / name).is_file()), name)


def _folders(cuda: Cuda) -> tuple[Path, ...]:
    return cuda.root / "bin", cuda.root / "nvvm" / "bin"


def _search_path(cuda: Cuda) -> str:
    return ":".join(map(str, (*_folders(cuda), cuda.host_compiler.parent, "/usr/bin", "/bin")))


def _with_source_name(step: Step, unit: str) -> Step:
    """Without the folder of the dry run; the module's name is given, so that neither side waits for the other's."""
    words = [word for word in step.command if word != "--gen_module_id_file"]
    for option in ("--orig_src_path_name",):
        if option in words:
            words[words.index(option) + 1] = unit
    return replace(step, command=tuple(words))


def _for(step: Step, seed: str, defines: Sequence[str]) -> Step:
    words = [word.replace(SEED, seed) for word in step.command]
    if step.name in (HOST_CPP, DEVICE_CPP, NVCC):
        words[1:1] = defines
    return replace(step, command=tuple(words))


def readable_places(cuda: Cuda, *more: Path) -> tuple[Path, ...]:
    """What compilers need to see: CUDA, the host compiler, headers and libraries of the system."""
    host = cuda.host_compiler.resolve()
    prefix = host.parent.parent
    # a compiler of its own, such as conda's, has its headers and libraries beside it
    own = () if str(prefix) in ("/", "/usr", "/usr/local") else (prefix,)
    system = ("/usr/bin", "/bin", "/usr/include", "/usr/libexec", "/usr/local/include", "/usr/local/lib/gcc")
    places = (cuda.root, cuda.root.resolve(), cuda.nvcc.resolve().parent.parent, *own, *map(Path, system), *more)
    return tuple(dict.fromkeys(places))


def search_environment(cuda: Cuda) -> Mapping[str, str]:
    return {"PATH": _search_path(cuda), "LD_LIBRARY_PATH": str(cuda.root / "lib")}
