"""One built library for the whole folder, because nvcc runs take seconds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cupilot.contracts import Built
from cupilot.records import Kernel
from cupilot.toolchain.abi import Library
from cupilot.toolchain.cuda import Cuda
from cupilot.toolchain.nvcc import INCLUDE, build_kernel
from stand_in_runtime import cuda, load, out_dir, runtime, runtime_path

__all__ = ["cuda", "load", "out_dir", "runtime", "runtime_path"]

DATA = Path(__file__).parent / "data"
# some that wrappers include; every header of PyTorch is the same here
PYTORCH = (
    "torch/all.h", "torch/torch.h", "torch/types.h", "torch/library.h", "ATen/ATen.h", "ATen/cuda/Exceptions.h",
    "ATen/cuda/detail/KernelUtils.h", "ATen/native/cuda/Loops.cuh", "c10/util/Half.h", "pybind11/stl.h", "cublas_v2.h",
)  # fmt: skip


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
