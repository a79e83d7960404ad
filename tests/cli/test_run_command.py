"""``cupilot run`` end to end: a program behaves as it would by itself, and findings come after."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cupilot.contracts import Device

MAIN = r"""
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <unistd.h>
#include "parts.h"
#ifndef STEP
#define STEP 0
#endif

static __device__ int step = STEP;
static __global__ void advance(int* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += step; }
__global__ void forever(volatile int* x) { while (*x == 0) {} }
struct Last { ~Last() { puts("destroyed"); } } last;
// a name that the C library and Python have as well
extern "C" int error(int x) { return x + 1; }

int main(int argc, char** argv) {
    const char* what = argc > 1 ? argv[1] : "";
    char word[32] = "", folder[512];
    if (!strcmp(what, "status")) std::exit(atoi(argv[2]));
    if (!strcmp(what, "abort")) { fprintf(stderr, "giving up\n"); abort(); }
    if (!strcmp(what, "crash")) return *(volatile int*)8;
    int* x;
    cudaMalloc(&x, 32 * sizeof(int));
    cudaMemset(x, 0, 32 * sizeof(int));
    if (!strcmp(what, "forever")) {
        forever<<<1, 1>>>(x);
        return cudaDeviceSynchronize() == cudaErrorLaunchTimeout ? 0 : 1;
    }
    int threads = 32, far = !strcmp(what, "astray") ? 40 : 32;
    advance<<<1, far == 32 ? threads : 64>>>(x, far);
    int back[32];
    cudaError_t failed = cudaMemcpy(back, x, sizeof back, cudaMemcpyDeviceToHost);
    if (far != 32) return failed == cudaErrorIllegalAddress ? 0 : 1;
    if (scanf("%31s", word) != 1) word[0] = 0;
    std::cout << argv[0] << ' ' << argc << ' ' << word << ' ' << back[31] + other(x) + error(1) << std::endl;
    fprintf(stderr, "%s\n", getcwd(folder, sizeof folder));
    const char* key = getenv("OPENAI_API_KEY");
    return key ? 9 : 0;
}
"""
OTHER = r"""
#include "parts.h"
static __device__ int step = 1000;
static __global__ void advance(int* x, int n) { extern __shared__ int s[]; s[0] = step; x[0] += s[0]; }
int other(int* x) {
    int back;
    advance<<<1, 1, 4>>>(x, 1);
    cudaMemcpyAsync(&back, x, 4, cudaMemcpyDefault);
    return back + plain();
}
"""
PLAIN = """#include "parts.h"
#include <cuda_runtime.h>
int plain() { int count = 0; cudaGetDeviceCount(&count); return 10000 * count; }
"""
SOURCES = ("main.cu", "other.cu", "plain.cpp")
FILES = (*SOURCES, "-I", "include", "-D", "STEP=20", "-D", "CUDA_API_PER_THREAD_DEFAULT_STREAM")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, device: Device) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "include").mkdir()
    (folder / "include" / "parts.h").write_text("int other(int*);\nint plain();\n")
    for name, text in (("main.cu", MAIN), ("other.cu", OTHER), ("plain.cpp", PLAIN)):
        (folder / name).write_text(text)
    return folder


def run(folder: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "cupilot", "run", *arguments)
    return subprocess.run(
        command, cwd=folder, input=given, capture_output=True, text=True, check=False, timeout=120
    )  # fmt: skip


def test_a_program_of_several_files_runs_as_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    done = run(folder, *FILES, "--", "--device", "b", given="word more\n")
    assert done.stderr == f"{folder}\n"
    # 20 by the first file's kernel, in element 0 as well; 1000 by the second's; 10000 by plain C++; error(1) is 2
    assert done.stdout == f"main 3 word {20 + (20 + 1000 + 10000) + 2}\ndestroyed\n"
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("how", "status", "out", "err"),
    [
        ("status 7", 7, "destroyed\n", ""),
        ("abort", 134, "", "giving up\ncupilot: main.cu was ended by SIGABRT\n"),
        ("crash", 139, "", "cupilot: main.cu was ended by SIGSEGV\n"),
    ],
)
def test_how_a_program_ends(folder: Path, how: str, status: int, out: str, err: str) -> None:
    done = run(folder, *FILES, "--", *how.split())
    assert (done.returncode, done.stdout, done.stderr) == (status, out, err)


def test_findings_come_after_the_output(folder: Path) -> None:
    done = run(folder, *FILES, "--", "astray")
    assert (done.returncode, done.stdout) == (86, "destroyed\n")
    first, where, *rest = done.stderr.splitlines()
    assert first.startswith("========= out-of-bounds: ")
    assert (
        where
        == "=========     in kernel advance, line 14 of main.cu, block (0, 0, 0), thread (32, 0, 0) and 7 more threads"
    )
    assert rest[-1].endswith("of the virtual GPU")


def test_a_kernel_without_end_is_stopped(folder: Path) -> None:
    done = run(folder, *FILES, "--timeout", "1", "--", "forever")
    assert (done.returncode, done.stdout) == (124, "destroyed\n")
    assert done.stderr.splitlines()[-1] == "cupilot: main.cu did not finish within 1 s"
    assert "in kernel forever, line" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (SOURCES, "the header parts.h was not found"),
        (("plain.cpp", "-I", "include"), "cupilot: the program has no function main\n"),
        (("gone.cu",), "cupilot: the file gone.cu does not exist\n"),
        (("main.py",), "cupilot: main.py is no source file of a CUDA program: .cu and .cpp files are\n"),
        (("main.cu", "--device", "virtual:none"), "none"),
        ((), "required: FILE.cu"),
    ],
)
def test_what_cannot_be_run(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
