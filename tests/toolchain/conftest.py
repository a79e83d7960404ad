"""One stand-in runtime and one built library for the whole folder, because nvcc runs take seconds."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cupilot.contracts import Built
from cupilot.records import Kernel
from cupilot.toolchain.abi import Library
from cupilot.toolchain.cuda import Cuda, find_cuda
from cupilot.toolchain.host import build_host_library
from cupilot.toolchain.nvcc import INCLUDE, build_kernel

ALONE = os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND  # seen by nobody, and seeing itself first
DATA = Path(__file__).parent / "data"
# some that wrappers include; every header of PyTorch is the same here
PYTORCH = (
    "torch/all.h", "torch/torch.h", "torch/types.h", "torch/library.h", "ATen/ATen.h", "ATen/cuda/Exceptions.h",
    "ATen/cuda/detail/KernelUtils.h", "ATen/native/cuda/Loops.cuh", "c10/util/Half.h", "pybind11/stl.h", "cublas_v2.h",
)  # fmt: skip


@pytest.fixture(scope="session")
def cuda() -> Cuda:
    return find_cuda()


@pytest.fixture(scope="session")
def out_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("built")


@pytest.fixture(scope="session")
def runtime_path(cuda: Cuda, out_dir: Path) -> Path:
    flags = [f"-I{folder}" for folder in cuda.include]
    return build_host_library("standin", [DATA / "standin_runtime.cpp"], out_dir, flags=flags)


@pytest.fixture(scope="session")
def runtime(runtime_path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(runtime_path), mode=ALONE)


@pytest.fixture(scope="session")
def load(runtime: ctypes.CDLL, runtime_path: Path, out_dir: Path) -> Callable[[Built], Library]:
    """Loads a library that calls the stand-in, also where other tests have loaded the virtual GPU for everybody.

    An empty library that needs both puts them into one scope, which is searched before the process's own.
    """

    def bound(built: Built) -> Library:
        needed = ["-Wl,--no-as-needed,--allow-shlib-undefined", str(built.library), str(runtime_path)]
        scope = build_host_library("scope", [], out_dir, flags=needed)
        ctypes.CDLL(str(scope), mode=ALONE)
        return Library(built.library)

    return bound


@pytest.fixture(scope="session")
def many(cuda: Cuda, out_dir: Path) -> Built:
    """Many wrappers, after every header that people include."""
    headers = [*PYTORCH, *sorted(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*.h"))]
    prelude = "".join(f"#include <{header}>\n" for header in headers)
    built = build_kernel(Kernel(prelude + (DATA / "many_wrappers.cu").read_text()), "sm_80", out_dir, cuda)
    assert isinstance(built, Built), built
    return built


@pytest.fixture
def library(load: Callable[[Built], Library], many: Built) -> Library:
    return load(many)
