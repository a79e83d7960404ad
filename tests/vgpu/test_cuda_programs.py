"""Whole CUDA programs that check themselves, run as a user runs them: they end with 0, and nothing is found.

The programs are in ``cuda/``, one per subject.  They were written for these tests, from the CUDA C++ Programming Guide.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cupilot.contracts import Device

FOLDER = Path(__file__).parent / "cuda"
# CUDA's C++ libraries take the compiler long
SLOW = {"libraries", "functions"}
PROGRAMS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
    for path in sorted(FOLDER.glob("*.cu"))
]


def run(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cupilot", "run", "--timeout", "60", *options, str(path)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("path", PROGRAMS)
def test_program(path: Path, device: Device) -> None:
    ended = run(path)
    assert (ended.returncode, ended.stderr) == (0, "")


HEAD = '#include "check.h"\n'


def test_a_program_that_does_not_compute_what_it_expects_fails(tmp_path: Path, device: Device) -> None:
    """So the programs above can fail."""
    path = tmp_path / "wrong.cu"
    path.write_text(
        HEAD + "__global__ void f(int* p) { *p = 3; }\n"
        "int main() { int* p = device(std::vector<int>(1)); f<<<1, 1>>>(p); EXPECT(host(p, 1)[0] == 4); }\n"
    )
    ended = run(path, "-I", str(FOLDER))
    assert ended.returncode == 1
    assert "not so: host(p, 1)[0] == 4" in ended.stderr


def test_findings_do_not_change_what_a_program_computes(tmp_path: Path, device: Device) -> None:
    """More of them than are told of one candidate, and each of them once, however often the kernel runs."""
    lines = "".join(f"    sum += p[{i}];\n" for i in range(12))
    path = tmp_path / "careless.cu"
    path.write_text(
        HEAD + f"__global__ void f(const volatile int* p, int* out) {{\n    int sum = 0;\n{lines}"
        "    out[0] = 7;\n    out[1] = sum;\n}\n"
        "int main() {\n    int *p, *out = device(std::vector<int>(2));\n    CALL(cudaMalloc(&p, 64));\n"
        "    for (int i = 0; i < 20; i++) f<<<1, 1>>>(p, out);\n    EXPECT(host(out, 2)[0] == 7);\n}\n"
    )
    ended = run(path, "-I", str(FOLDER))
    assert ended.returncode == 86
    assert "12 findings" in ended.stderr


def test_a_failed_assertion_is_the_programs_own_affair(tmp_path: Path, device: Device) -> None:
    path = tmp_path / "asserts.cu"
    path.write_text(
        HEAD + "#include <cassert>\n__global__ void f(int n) { assert(threadIdx.x < n); }\n"
        "int main() { f<<<1, 32>>>(30); EXPECT(cudaDeviceSynchronize() == cudaErrorAssert); }\n"
    )
    ended = run(path, "-I", str(FOLDER))
    assert ended.returncode == 0
    assert "assertion `threadIdx.x < n` failed" in ended.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__global__ void g() {}\n__global__ void f() { g<<<1, 1>>>(); }\nint main() {}\n", "dynamic parallelism"),
        ("#include <cublas_v2.h>\nint main() {}\n", "cublas_v2.h was not found; it is of a library"),
        ("#include <nowhere.h>\nint main() {}\n", "nowhere.h was not found; -I names the folder"),
    ],
)
def test_what_is_not_there_is_named(tmp_path: Path, device: Device, text: str, message: str) -> None:
    path = tmp_path / "beyond.cu"
    path.write_text(text)
    ended = run(path)
    assert ended.returncode == 2
    assert message in ended.stderr


def test_further_flags_for_nvcc(tmp_path: Path, device: Device) -> None:
    path = tmp_path / "flags.cu"
    path.write_text("int main() { return __cplusplus == 202002L && WIDTH == 4 ? 0 : 1; }\n")
    assert run(path, "--nvcc=-std=c++20", "--nvcc=-O1", "--nvcc=-use_fast_math", "-D", "WIDTH=4").returncode == 0
