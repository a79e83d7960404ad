"""Where the CUDA compiler is: the pip wheels that cupilot depends on, or a folder that is asked for."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from cupilot.errors import ToolchainMissing
from cupilot.toolchain.process import run

WHEELS = "nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cuda-nvdisasm"
PACKAGE = "nvidia.cu13"


@dataclass(frozen=True)
class Cuda:
    """A complete compiler: CUDA's part and the host compiler that nvcc needs."""

    root: Path
    nvcc: Path
    ptxas: Path
    include: tuple[Path, ...]
    version: str
    host_compiler: Path


def find_cuda(cuda_home: Path | None = None) -> Cuda:
    """Find nvcc in the pip wheels, or in ``cuda_home`` when that is given; never falls back to the other."""
    root = cuda_home if cuda_home is not None else _wheel_root()
    nvcc, ptxas = root / "bin" / "nvcc", root / "bin" / "ptxas"
    include = root / "include"
    for needed in (nvcc, ptxas, include / "cuda_runtime.h"):
        if not needed.is_file():
            raise ToolchainMissing(f"{needed.name} was not found under {root}: {_advice(cuda_home)}.")
    folders = tuple(folder for folder in (include, include / "cccl") if folder.is_dir())
    return Cuda(root, nvcc, ptxas, folders, _version(nvcc), find_host_compiler())


def find_host_compiler() -> Path:
    """The C++ compiler on the search path: g++, else c++."""
    for name in ("g++", "c++"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    raise ToolchainMissing(
        "No C++ compiler (g++ or c++) is on the search path: install g++ with the system's packages."
    )


def find_nvdisasm(cuda: Cuda) -> Path | None:
    """The disassembler beside nvcc; of the pip wheels, it may be installed in another place."""
    try:
        spec = find_spec(PACKAGE)
    except ModuleNotFoundError:
        spec = None
    wheels = [Path(place) for place in (spec.submodule_search_locations or ())] if spec is not None else []
    roots: list[Path] = [cuda.root, *(wheels if cuda.root in wheels else [])]
    return next((root / "bin" / "nvdisasm" for root in roots if (root / "bin" / "nvdisasm").is_file()), None)


def _wheel_root() -> Path:
    try:
        spec = find_spec(PACKAGE)
    except ModuleNotFoundError:
        spec = None
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(location) / "bin" / "nvcc").is_file():
            return Path(location)
    raise ToolchainMissing(f"nvcc was not found among the installed Python packages: {_advice(None)}.")


def _advice(cuda_home: Path | None) -> str:
    return f"install it with `pip install {WHEELS}`" if cuda_home is None else "give the root folder of a CUDA toolkit"


def _version(nvcc: Path) -> str:
    finished = run([nvcc, "--version"], nvcc.parent, timeout_s=30)
    found = re.search(r"\bV(\d+(?:\.\d+)+)", finished.output) if finished is not None else None
    if found is None:
        raise ToolchainMissing(f"{nvcc} does not tell its version: install it again.")
    return found.group(1)
