"""The parts of the toolchain that need no nvcc run: finding, reading, keeping, host builds."""

import time
from pathlib import Path

import pytest

from cupilot.errors import MachineError, ToolchainMissing
from cupilot.records import Kernel, Resources
from cupilot.toolchain.cache import digest, folder_digest, publish, scratch_beside
from cupilot.toolchain.cuda import Cuda, find_cuda, find_host_compiler
from cupilot.toolchain.diagnostics import first_error
from cupilot.toolchain.host import build_host_library
from cupilot.toolchain.process import run
from cupilot.toolchain.ptxas import read_report
from cupilot.toolchain.source import defined_names, host_functions, translation_unit, without_comments

REPORT = """\
ptxas info    : 0 bytes gmem, 24 bytes cmem[4]
ptxas info    : Compiling entry function '_Z5firstPf' for 'sm_80'
ptxas info    : Function properties for _Z5firstPf
    96 bytes stack frame, 40 bytes spill stores, 56 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 96 bytes cumulative stack size, 4096 bytes smem, 360 bytes cmem[0]
ptxas info    : Compile time = 4.112 ms
ptxas info    : Function properties for helper
    8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Compiling entry function '_Z6secondPf' for 'sm_80'
ptxas info    : Function properties for _Z6secondPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers, 360 bytes cmem[0]
"""


def test_the_wheels_are_found(cuda: Cuda) -> None:
    assert cuda.version.split(".")[0] == "13"
    assert all(path.exists() for path in (cuda.nvcc, cuda.ptxas, *cuda.include, cuda.host_compiler))


def test_a_folder_without_cuda(tmp_path: Path) -> None:
    with pytest.raises(ToolchainMissing, match="nvcc was not found under"):
        find_cuda(tmp_path)


def test_no_host_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainMissing, match=r"install g\+\+"):
        find_host_compiler()


def test_the_report_of_ptxas() -> None:
    assert read_report(REPORT) == (
        ("_Z5firstPf", Resources(registers=255, static_shared_bytes=4096, spill_bytes=96, barriers=1)),
        ("_Z6secondPf", Resources(registers=10)),
    )


def test_host_functions_are_told_from_kernels() -> None:
    code = without_comments(
        """
        // torch::Tensor old(torch::Tensor x) {}
        template <int N> __global__ void __launch_bounds__(256) kernel(float* x) { if (x) { x[0] = N; } }
        __device__ __forceinline__ void inner(float* x) {}
        static std::tuple<torch::Tensor, torch::Tensor> both(torch::Tensor x) { return {x, x}; }
        at::Tensor
        one(const at::Tensor& x) { const char* url = "http://x"; return x; }
        PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &both); /* m.def("no", &one); */ }
        """
    )
    assert host_functions(code) == ("both", "one")
    assert defined_names(code) == ("run",)


def test_only_what_is_named_is_included() -> None:
    unit = translation_unit(Kernel("#include <torch/extension.h>\ntorch::Tensor forward();"), "kernel.cu")
    assert isinstance(unit, str)
    assert unit.splitlines() == [
        "#define CUPILOT_WITHOUT_HALF",
        "#define CUPILOT_WITHOUT_STRING",
        '#include "kernel.cu"',
        "#include <torch/extension.h>",
        "CUPILOT_ENTRY(forward)",
    ]
    unit = translation_unit(Kernel("torch::Half h; std::string s; std::function<void()> forward();"), "kernel.cu")
    assert isinstance(unit, str)
    assert unit.splitlines()[:2] == ["#include <functional>", '#include "kernel.cu"']


def test_errors_of_both_compilers() -> None:
    assert str(first_error('kernel.cu(7): warning: w\nkernel.cu(12): error: expected a ";"\n')) == (
        'kernel.cu:12: expected a ";"'
    )
    assert str(first_error("x.cpp: In function f:\nx.cpp:3:10: fatal error: y.h: No such file\n")) == (
        "x.cpp:3: y.h: No such file"
    )
    assert first_error("all is well") is None


def test_digests_know_borders_and_names(tmp_path: Path) -> None:
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    (tmp_path / "a").write_text("x")
    before = folder_digest(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert folder_digest(tmp_path) != before


def test_the_first_to_publish_wins(tmp_path: Path) -> None:
    final = tmp_path / "final"
    for text in ("first", "second"):
        with scratch_beside(final) as scratch:
            (scratch / "file").write_text(text)
            publish(scratch, final)
    assert (final / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


def test_a_group_is_killed_at_the_time_limit(tmp_path: Path) -> None:
    # the child of the shell holds the pipe open: without killing the group this would wait for it
    assert run(["sh", "-c", "sleep 60 & wait"], tmp_path, timeout_s=0.05) is None


def test_host_libraries(tmp_path: Path) -> None:
    source = tmp_path / "source.cpp"
    source.write_text('extern "C" int answer() { return 42; }\n')
    first = build_host_library("answer", [source], tmp_path / "out")
    written_ns = first.stat().st_mtime_ns
    assert first.name == "libanswer.so"
    assert build_host_library("answer", [source], tmp_path / "out") == first
    assert first.stat().st_mtime_ns == written_ns
    source.write_text('extern "C" int answer() { return forty_two; }\n')
    with pytest.raises(MachineError, match=r"source\.cpp:1: .*forty_two"):
        build_host_library("answer", [source], tmp_path / "out")


def test_comments_that_are_never_closed_cost_no_more_than_others() -> None:
    began_s = time.process_time()
    assert without_comments("int x; " + "/*\n" * 200_000).strip() == "int x;"
    assert time.process_time() - began_s < 5.0
