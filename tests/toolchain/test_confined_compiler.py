"""Sources that attack the machine through the compiler, and honest ones that look like them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cupilot.contracts import Built
from cupilot.records import Failure, Kernel
from cupilot.sandbox.bubblewrap import find_bubblewrap
from cupilot.sandbox.confine import landlock_version
from cupilot.sandbox.process import Limits
from cupilot.toolchain import nvcc
from cupilot.toolchain.cuda import Cuda
from cupilot.toolchain.nvcc import build_kernel

SECRET = "the-secret-of-another-file"
KERNEL = """#include <torch/extension.h>
{before}
__global__ void k(float* x) {{ {device} x[threadIdx.x] = 1.0f; }}
torch::Tensor forward(torch::Tensor x) {{ {host} k<<<1, 32>>>(x.data_ptr<float>()); return x; }}
"""


def source(before: str = "", device: str = "", host: str = "") -> str:
    return KERNEL.format(before=before, device=device, host=host)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the user's own, which a source knows the path of."""
    path = tmp_path / "home" / "secret.txt"
    path.parent.mkdir()
    path.write_text(f"{SECRET}\n")
    return path


SANDBOXES = [
    pytest.param("landlock", marks=pytest.mark.skipif(not landlock_version(), reason="no Landlock here")),
    pytest.param("bubblewrap", marks=pytest.mark.skipif(not find_bubblewrap().program, reason="no bubblewrap here")),
]

# --- files ----------------------------------------------------------------------------------------

FILES = {
    "include": '#include "{path}"',
    "include by a macro": '#define NAME "{path}"\n#include NAME',
    "include_next": '#include_next "{path}"',
    "import": '#import "{path}"',
    "line names it": '#line 1 "{path}"\n#error look at this',
    "embed": 'const char text[] = {{\n#embed "{path}"\n}};',
    "incbin at file scope": 'asm(".section .rodata\\nsecret: .incbin \\"{path}\\"\\n.previous");',
    "assembler's include": 'asm(".include \\"{path}\\"");',
    "pragma dependency": '#pragma GCC dependency "{path}"\n#error stop',
    "included as a string": 'const char* text =\n#include "{path}"\n;',
}


@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize("trick", FILES.values(), ids=FILES.keys())
def test_no_file_of_the_user_is_read(trick: str, sandbox: str, secret: Path, cuda: Cuda, tmp_path: Path) -> None:
    text = source(before=trick.format(path=secret))
    failed = build_kernel(Kernel(text), "sm_80", tmp_path / "out", cuda, sandbox=sandbox)
    assert isinstance(failed, Failure), "it was compiled"
    assert SECRET not in failed.log + failed.message
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/self/environ", "/proc/self/maps", "/sys/kernel/notes"])
def test_nothing_of_the_system_is_read(path: str, cuda: Cuda, tmp_path: Path) -> None:
    for trick in (FILES["include"], FILES["incbin at file scope"]):
        failed = build_kernel(Kernel(source(before=trick.format(path=path))), "sm_80", tmp_path, cuda)
        assert isinstance(failed, Failure)
        assert failed.kind == "forbidden-include", failed
        assert path in failed.message
        assert "root:" not in failed.log


def test_a_link_in_the_cache_leads_nowhere(secret: Path, cuda: Cuda, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "link").symlink_to(secret)
    failed = build_kernel(Kernel(source('#include "../link"')), "sm_80", out, cuda)
    assert isinstance(failed, Failure)
    assert SECRET not in failed.log


def test_has_include_does_not_tell_of_files(secret: Path, cuda: Cuda, tmp_path: Path) -> None:
    text = source(f'#if __has_include("{secret}")\n#error it is there\n#endif')
    built = build_kernel(Kernel(text), "sm_80", tmp_path / "out", cuda)
    assert "it is there" not in getattr(built, "log", "")


def test_incbin_in_device_code_is_no_instruction(secret: Path, cuda: Cuda, tmp_path: Path) -> None:
    text = source(device=f'asm volatile(".incbin \\"{secret}\\";");')
    failed = build_kernel(Kernel(text), "sm_80", tmp_path / "out", cuda)
    assert isinstance(failed, Failure)
    assert SECRET not in failed.log


# --- memory, time, disk ---------------------------------------------------------------------------

SMALL = Limits(memory_bytes=700 << 20, tasks=48, output_bytes=8 << 20, answer_bytes=1 << 20)
ENDLESS = {
    "zero": '#include "/dev/zero"',
    "random": '#include "/dev/urandom"',
    "itself": "#include __FILE__",
    "itself, by its name": '#include "kernel.cu"',
    "template recursion": "template <long N> struct R { static constexpr long v = R<N + 1>::v; };\nlong v = R<0>::v;",
    "template tree": (
        "template <int N, int P> struct T : T<N - 1, 2 * P>, T<N - 1, 2 * P + 1> {};\n"
        "template <int P> struct T<0, P> {};\nT<24, 1> t;"
    ),
    "macro bomb": "\n".join(
        ["#define A0 1,1,1,1,1,1,1,1,1,1", *(f"#define A{i} {','.join([f'A{i - 1}'] * 10)}" for i in range(1, 10))]
    ) + "\nint bomb[] = {A9};",
    "constant evaluation": (
        "constexpr long f(long n) { long s = 0; while (n) s += n; return s; }\nconstexpr long v = f(1);"
    ),
    "filled by the assembler": 'asm(".data\\n.fill 0x7fffffffff, 1, 1\\n.text");',
    "repeated by the assembler": 'asm(".rept 2000000000\\n.long 1\\n.endr");',
    "initialised array": "char a[1L << 40] = {1};",
    "errors without end": "#pragma GCC diagnostic error \"-Wall\"\n" + "int f() { return undeclared; }\n" * 5000,
}  # fmt: skip


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_compiler_is_stopped(text: str, cuda: Cuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "LIMITS", SMALL)
    failed = build_kernel(Kernel(source(text)), "sm_80", tmp_path, cuda, timeout_s=10)
    assert isinstance(failed, Failure), "it was compiled"
    assert failed.stage == "build"
    assert failed.message
    assert len(failed.log) < 5 << 20
    assert list(tmp_path.iterdir()) == []


def test_a_large_source_is_compiled_or_stopped(cuda: Cuda, tmp_path: Path) -> None:
    text = source("\n".join(f"// line {i} of a source that is much too long" for i in range(250_000)))
    assert len(text) > 10 << 20
    assert isinstance(build_kernel(Kernel(text), "sm_80", tmp_path, cuda), Built)


def test_what_is_said_of_memory_and_time(cuda: Cuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = source(ENDLESS["template tree"])
    monkeypatch.setattr(nvcc, "LIMITS", Limits(memory_bytes=300 << 20, tasks=48))
    failed = build_kernel(Kernel(tree), "sm_80", tmp_path, cuda)
    assert isinstance(failed, Failure)
    assert (failed.kind, failed.message) == ("limit", "the compiler used more than 300 MiB of memory")
    monkeypatch.setattr(nvcc, "LIMITS", SMALL)
    failed = build_kernel(Kernel(tree), "sm_80", tmp_path, cuda, timeout_s=0.5)
    assert isinstance(failed, Failure)
    assert failed.kind == "time-out"


# --- honest sources -------------------------------------------------------------------------------

HONEST = {
    "half": ("#include <cuda_fp16.h>\n#include <cuda_bf16.h>", "x[0] = __half2float(__float2half(x[1]));", ""),
    "cub": (
        "#include <cub/cub.cuh>\ntypedef cub::WarpReduce<float> Reduce;",
        "__shared__ Reduce::TempStorage t; x[1] = Reduce(t).Sum(x[0]);", "",
    ),
    "thrust": (
        "#include <thrust/functional.h>\n#include <thrust/pair.h>", "x[0] = thrust::plus<float>()(x[0], 1);", "",
    ),
    "cooperative groups": (
        "#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\nnamespace cg = cooperative_groups;",
        "auto b = cg::this_thread_block(); b.sync();", "",
    ),
    "wmma": ("#include <mma.h>", "nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> f;", ""),
    "standard library": (
        "#include <vector>\n#include <algorithm>\n#include <unordered_map>\n#include <iostream>\n#include <string>", "",
        "std::vector<int> v{3, 1}; std::sort(v.begin(), v.end()); std::unordered_map<int, int> m; m[v[0]] = 2;",
    ),
    "CUDA's standard library": (
        "#include <cuda/std/limits>", "x[0] = cuda::std::numeric_limits<float>::infinity();", "",
    ),
    "lambda on the device": (
        "template <class F> __global__ void each(float* x, F f) { x[threadIdx.x] = f(x[threadIdx.x]); }", "",
        "each<<<1, 32>>>(x.data_ptr<float>(), [=] __device__(float v) { return v + 1; });",
    ),
    "assembly": ("", 'int lane; asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane)); x[0] = lane;', ""),
    "pragmas and lines": (
        '#pragma once\n#pragma GCC diagnostic ignored "-Wunused"\n#line 7 "mine.cu"',
        "\n#pragma unroll\nfor (int i = 0; i < 4; ++i) x[i] += 1;", "",
    ),
    "asks for headers": ("#if __has_include(<cuda_fp8.h>)\n#include <cuda_fp8.h>\n#endif", "", ""),
    "many instances": (
        "template <int N> __device__ float f(float x) { return f<N - 1>(x) * x + N; }\n"
        "template <> __device__ float f<0>(float x) { return x; }", "x[0] = f<200>(x[0]);", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "device", "host"), HONEST.values(), ids=HONEST.keys())
def test_honest_sources_are_compiled(before: str, device: str, host: str, cuda: Cuda, tmp_path: Path) -> None:
    built = build_kernel(Kernel(source(before, device, host)), "sm_80", tmp_path, cuda)
    assert isinstance(built, Built), built


def test_nothing_of_the_environment_reaches_the_compiler(
    cuda: Cuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "mine.h").write_text("#define MINE 1\n")
    monkeypatch.setitem(os.environ, "CPLUS_INCLUDE_PATH", str(folder))
    failed = build_kernel(Kernel(source("#include <mine.h>")), "sm_80", tmp_path / "out", cuda)
    assert isinstance(failed, Failure)
    assert failed.kind == "missing-header"
