"""Fixtures: a stand-in for the CUDA runtime, which says what it was called with, and libraries that call it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cupilot.contracts import Built
from cupilot.toolchain.abi import Library
from cupilot.toolchain.cuda import Cuda, find_cuda
from cupilot.toolchain.host import build_host_library

ALONE = os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND  # seen by nobody, and seeing itself first
SOURCE = Path(__file__).parent / "toolchain" / "data" / "standin_runtime.cpp"


@pytest.fixture(scope="session")
def cuda() -> Cuda:
    return find_cuda()


@pytest.fixture(scope="session")
def out_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("built")


@pytest.fixture(scope="session")
def runtime_path(cuda: Cuda, out_dir: Path) -> Path:
    flags = [f"-I{folder}" for folder in cuda.include]
    return build_host_library("standin", [SOURCE], out_dir, flags=flags)


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
