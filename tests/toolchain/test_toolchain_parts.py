"""The parts of the toolchain that need no nvcc run: finding, reading, keeping, host builds."""

import time
from pathlib import Path

import pytest

from cupilot.errors import MachineError, ToolchainMissing
from cupilot.records import Failure, Finding, Kernel, Resources
from cupilot.toolchain.cache import digest, folder_digest, publish, scratch_beside
from cupilot.toolchain.cuda import Cuda, find_cuda, find_host_compiler
from cupilot.toolchain.diagnostics import compile_errors, compile_failure
from cupilot.toolchain.functions import host_functions
from cupilot.toolchain.host import build_host_library, host_library
from cupilot.toolchain.process import run
from cupilot.toolchain.ptxas import read_report
from cupilot.toolchain.source import (
    chosen_entry,
    defined_names,
    forwarded_headers,
    translation_unit,
    without_comments,
)

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
    assert host_functions(code) == {"both": "both", "one": "one"}
    assert defined_names(code) == ("run",)


ONE = "torch::Tensor %s(torch::Tensor x) { return x; }\n"
MODULE = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { %s }\n"


@pytest.mark.parametrize(
    ("source", "asked", "entry"),
    [
        (ONE % "forward" + ONE % "other", "forward", "forward"),
        (ONE % "scale_cuda", "forward", "scale_cuda"),
        (ONE % "scale_cuda", "backward", None),
        (ONE % "one" + ONE % "two", "forward", None),
        (ONE % "inner" + "at::Tensor outer(at::Tensor x) { return inner(x); }", "forward", "outer"),
        ("template <class T>\n" + ONE % "inner" + "at::Tensor outer(at::Tensor x) { return inner<float>(x); }",
         "forward", "outer"),
        (ONE % "one" + ONE % "two" + MODULE % 'm.def("run", &two);', "forward", "run"),
        (MODULE % 'm.def("f_forward", &one); m.def("f_backward", &two);', "forward", "f_forward"),
        (MODULE % 'm.def("one", &one); m.def("two", &two);', "forward", None),
        ('TORCH_LIBRARY(ops, m) { m.def("f(Tensor x)" " -> Tensor"); m.impl("f", &one); }', "forward", "f"),
        ("struct Op { at::Tensor apply(at::Tensor x) { return x; } };\n" + ONE % "go", "forward", "go"),
        ('const char* text = "at::Tensor no(at::Tensor x) {";\n#define OPEN {\n' + ONE % "yes", "forward", "yes"),
    ],
)  # fmt: skip
def test_the_entry_is_the_only_function_that_it_can_be(source: str, asked: str, entry: str | None) -> None:
    assert chosen_entry(Kernel(source, asked)) == entry


def test_functions_in_namespaces_have_their_full_names() -> None:
    code = 'extern "C" { namespace a { namespace { namespace b::c {\n' + ONE % "forward" + "} } } }\n" + ONE % "last"
    assert host_functions(code) == {"forward": "a::b::c::forward", "last": "last"}


def test_headers_of_pytorch_and_of_libraries_are_made() -> None:
    source = '#include <ATen/core/Tensor.h>\n # include "torch/x/y.cuh"\n#include <cublas_v2.h>\n#include <vector>\n'
    made = forwarded_headers(source + "#include <torch/../../secret.h>\n#include <mine/torch/a.h>\n")
    assert list(made) == ["ATen/core/Tensor.h", "torch/x/y.cuh", "cublas_v2.h"]
    assert "torch/extension.h" in made["torch/x/y.cuh"]
    assert "torch" not in made["cublas_v2.h"]


def unit_lines(source: str) -> list[str]:
    made = translation_unit(Kernel(source), "kernel.cu")
    assert not isinstance(made, Failure)
    assert made[0] == Kernel(source)
    return made[1].splitlines()


def test_only_what_is_named_is_included() -> None:
    assert unit_lines("#include <torch/extension.h>\nnamespace a { torch::Tensor forward() { is_contiguous(); } }") == [
        "#define CUPILOT_WITHOUT_HALF",
        "#define CUPILOT_WITHOUT_STRING",
        "#define CUPILOT_WITHOUT_OPTIONAL",
        "#define CUPILOT_WITHOUT_TUPLE",
        "#define CUPILOT_WITHOUT_VECTOR",
        "#define CUPILOT_WITHOUT_REORDERING",
        "#define CUPILOT_WITHOUT_CONVERSION",
        '#include "kernel.cu"',
        "#include <torch/extension.h>",
        "CUPILOT_ENTRY(forward, a::forward)",
    ]
    named = "torch::Half h; std::string s; std::optional<std::tuple<int>> t; x.to(a).contiguous();"
    lines = unit_lines(f"{named} std::function<void()> forward();")
    assert lines[:2] == ["#include <functional>", '#include "kernel.cu"']
    assert lines[-1] == "CUPILOT_ENTRY(forward, forward)"


def test_errors_of_both_compilers() -> None:
    assert compile_errors('kernel.cu(7): warning: w\nkernel.cu(12): error: expected a ";"\n') == (
        Finding("compile-error", 'expected a ";"', file="kernel.cu", line=12),
    )
    assert compile_errors("x.cpp: In function f:\nx.cpp:3:10: fatal error: y.h: No such file\n") == (
        Finding("compile-error", "y.h: No such file", file="x.cpp", line=3),
    )
    assert compile_errors("all is well") == ()


def test_an_error_in_a_header_is_placed_where_it_came_from() -> None:
    log = "a.h(3): error: first\n  instantiated at line 9 of kernel.cu\nkernel.cu(4): error: second\n"
    first, second = compile_errors(log, "kernel.cu")
    assert (first.file, first.line, first.text) == ("kernel.cu", 9, "first")
    assert (second.file, second.line, second.text) == ("kernel.cu", 4, "second")
    failure = compile_failure(log, "kernel.cu")
    assert (failure.findings, failure.log) == ((first, second), log)
    assert failure.message == "kernel.cu:9: first; 1 more error"


def test_only_the_first_of_many_errors_are_read() -> None:
    log = "".join(f"kernel.cu({n}): error: e{n}\n" for n in range(1, 100))
    assert [error.line for error in compile_errors(log)] == list(range(1, 9))
    nothing = compile_failure("\nsegmentation fault\n", "kernel.cu")
    assert (nothing.kind, nothing.message) == ("compile-error", "segmentation fault")


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
    told: list[tuple[int, int]] = []
    place = host_library("answer", [source], tmp_path / "out")
    assert not place.exists()
    first = build_host_library("answer", [source], tmp_path / "out", tell=lambda done, of: told.append((done, of)))
    assert (first, told) == (place, [(1, 1)])
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
