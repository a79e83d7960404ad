"""Whole programs: what is compiled again, and how failures read."""

from pathlib import Path

import pytest

from cupilot.errors import UserError
from cupilot.records import Failure
from cupilot.toolchain.cache import MANIFEST
from cupilot.toolchain.cuda import Cuda
from cupilot.toolchain.program import LIBRARY, RESOURCES, BuiltProgram, ProgramSource, build_program

FIRST = """#include "size.h"
static __global__ void same(float* x) { __shared__ float s[SIZE]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads();
                                        x[threadIdx.x] = s[SIZE - 1 - threadIdx.x]; }
void run_first(float* x) { same<<<1, SIZE>>>(x); }
int main() { return 0; }
"""
SECOND = """static __global__ void same(float* x) { x[threadIdx.x] = 0; }
void run_second(float* x) { same<<<1, 32>>>(x); }
"""


def failure(folder: Path, out_dir: Path, cuda: Cuda, *texts: str) -> Failure:
    files = []
    for number, text in enumerate(texts):
        files.append(folder / f"file{number}.cu")
        files[-1].write_text(text)
    built = build_program(ProgramSource(tuple(files)), "sm_80", out_dir, cuda)
    assert isinstance(built, Failure)
    assert built.stage == "build"
    return built


def test_builds_are_kept_by_the_content_of_files_and_headers(tmp_path: Path, cuda: Cuda) -> None:
    (tmp_path / "first.cu").write_text(FIRST)
    (tmp_path / "second.cu").write_text(SECOND)
    (tmp_path / "with space").mkdir()
    header = tmp_path / "with space" / "size.h"
    header.write_text("#define SIZE 64\n")
    out_dir = tmp_path / "built"
    source = ProgramSource((tmp_path / "first.cu", tmp_path / "second.cu"), (tmp_path / "with space",))

    def build() -> BuiltProgram:
        built = build_program(source, "sm_80", out_dir, cuda)
        assert isinstance(built, BuiltProgram)
        return built

    small = build()
    # of two kernels with one name, the one that needs more decides
    assert dict(small.resources)["_Z4samePf"].static_shared_bytes == 256
    assert sorted(path.name for path in small.library.parent.iterdir()) == [MANIFEST, LIBRARY, RESOURCES]
    stamp = small.library.stat().st_mtime_ns
    assert build() == small
    assert small.library.stat().st_mtime_ns == stamp
    header.write_text("#define SIZE 128\n")
    large = build()
    assert dict(large.resources)["_Z4samePf"].static_shared_bytes == 512
    header.write_text("#define SIZE 64\n")
    assert build().resources == small.resources


def test_failures_say_what_is_wrong(tmp_path: Path, cuda: Cuda) -> None:
    out_dir = tmp_path / "built"
    wrong = failure(tmp_path, out_dir, cuda, "int main() {\n  return nothing;\n}\n")
    assert wrong.kind == "compile-error"
    assert wrong.message == f'{tmp_path}/file0.cu:2: identifier "nothing" is undefined'
    missing = failure(tmp_path, out_dir, cuda, "#include <nvrtc.h>\nint main() {}\n")
    assert missing.message == f"{tmp_path}/file0.cu:1: the header nvrtc.h was not found; -I names the folder it is in"
    elsewhere = (
        "extern __device__ int far(int);\n__global__ void k(int* x) { *x = far(1); }\nint main() { k<<<1, 1>>>(0); }"
    )
    assert "relocatable device code" in failure(tmp_path, out_dir, cuda, elsewhere).message
    twice = failure(tmp_path, out_dir, cuda, "int x = 1;\nint main() {}\n", "int x = 2;\n")
    assert (twice.kind, twice.message) == ("link-error", "x is defined in more than one file")
    assert list(out_dir.iterdir()) == []


def test_other_files_are_refused(tmp_path: Path, cuda: Cuda) -> None:
    with pytest.raises(UserError, match=r"notes\.txt is no source file"):
        build_program(ProgramSource((tmp_path / "notes.txt",)), "sm_80", tmp_path, cuda)
