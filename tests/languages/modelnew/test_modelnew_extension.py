"""Sources as ``load_inline`` and ``load`` get them: what is built of them, and how their mistakes read."""

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cupilot.contracts import Built
from cupilot.languages.modelnew.extension import (
    Extension,
    Source,
    build_extension,
    joined_source,
    kept_flags,
    without_defaults,
)
from cupilot.records import Failure
from cupilot.toolchain.abi import Library, TensorValue, WrapperError
from cupilot.toolchain.cuda import Cuda

DECLARED = """
// defaults stand in the definition too
torch::Tensor scaled(torch::Tensor x, double factor = SCALE, bool check = true);
std::vector<torch::Tensor> twice(torch::Tensor x);
"""
DEFINED = """
__global__ void scale(float* x, int n, float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] / factor;
}

torch::Tensor scaled(torch::Tensor x, double factor = SCALE, bool check = true) {
    TORCH_CHECK(!check || x.dim() == 1, "one dimension, not ", x.dim(), ", at ", SCALE);
    scale<<<1, 32>>>(x.data_ptr<float>(), x.numel(), factor);
    return x;
}
std::vector<torch::Tensor> twice(torch::Tensor x) { return {x, x}; }
"""
INLINE = Extension(
    "inline",
    (Source("", DECLARED, 7),),
    (Source("", DEFINED, 20),),
    ("scaled", "twice"),
    ("-O3", "-DSCALE=2.5", "--expt-relaxed-constexpr", "-gencode=arch=compute_70,code=sm_70"),
)
MODULE = """
#include <torch/extension.h>
void launch(float* x, int n);
torch::Tensor run(torch::Tensor x, int64_t times) {
    for (int64_t i = 0; i < times; ++i) launch(x.data_ptr<float>(), x.numel());
    return x;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &run, "doc", py::arg("x"), py::arg("times") = 3); }
"""
KERNEL = """
__global__ void increase(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 1; }
void launch(float* x, int n) { increase<<<1, 32>>>(x, n); }
"""
VALUE = TensorValue(16, (5,), (1,), "float32")


def built(extension: Extension, cuda: Cuda, out_dir: Path) -> Built:
    found = build_extension(extension, "sm_80", out_dir, cuda)
    assert isinstance(found, Built), found
    return found


def failed(extension: Extension, cuda: Cuda, out_dir: Path) -> Failure:
    found = build_extension(extension, "sm_80", out_dir, cuda)
    assert isinstance(found, Failure)
    assert found.stage == "build"
    return found


def test_all_functions_are_entries(
    cuda: Cuda, out_dir: Path, load: Callable[[Built], Library], runtime: ctypes.CDLL
) -> None:
    library = load(built(INLINE, cuda, out_dir))
    assert library.entries() == (
        ("scaled", "(Tensor, float, bool) -> Tensor"),
        ("twice", "(Tensor) -> Tensor[]"),
    )
    with pytest.raises(WrapperError, match=r"one dimension, not 2, at 2\.5"):
        library.call("scaled", [TensorValue(0, (3, 4), (4, 1), "float32"), 2.0, True])
    before = runtime.standin_launches()
    library.call("scaled", [VALUE, 2.0, True])
    assert runtime.standin_launches() == before + 1


def test_a_module_of_its_own_binds_what_it_says(
    cuda: Cuda, out_dir: Path, load: Callable[[Built], Library], runtime: ctypes.CDLL
) -> None:
    extension = Extension("own", (Source("binding.cpp", MODULE),), (Source("kernel.cu", KERNEL),))
    library = load(built(extension, cuda, out_dir))
    assert library.entries() == (("forward", "(Tensor, int) -> Tensor"),)
    before = runtime.standin_launches()
    library.call("forward", [VALUE])
    assert runtime.standin_launches() == before + 3


def test_flags_change_what_is_built(cuda: Cuda, out_dir: Path) -> None:
    plain = built(INLINE, cuda, out_dir)
    fast = built(replace(INLINE, flags=(*INLINE.flags, "-use_fast_math", "-std=c++20")), cuda, out_dir)
    assert plain.library != fast.library
    assert "div.rn.f32" in plain.ptx
    assert "div.rn.f32" not in fast.ptx
    assert plain.library == built(INLINE, cuda, out_dir).library


def test_mistakes_are_placed_in_the_python_file(cuda: Cuda, out_dir: Path) -> None:
    source = DEFINED.replace("SCALE", "2").replace("x.data_ptr<float>()", "x.data_ptr<float>().get()")
    wrong = replace(INLINE, host=(Source("", DECLARED.replace("SCALE", "2")),), cuda=(Source("", source, 20),))
    failure = failed(wrong, cuda, out_dir)
    assert failure.kind == "compile-error"
    assert failure.message == 'inline: solution.py:28: expression must have class type but it has type "float *"'


def test_a_call_that_computes_is_named_with_its_line(cuda: Cuda, out_dir: Path) -> None:
    source = "torch::Tensor run(torch::Tensor x) {\n  return torch::softmax(x, 1);\n}"
    host = Source("", "torch::Tensor run(torch::Tensor x);")
    failure = failed(Extension("library", (host,), (Source("", source, 41),), ("run",)), cuda, out_dir)
    assert failure.kind == "unsupported-host-call"
    assert failure.message.startswith("library: solution.py:42: unsupported host call: torch::softmax: ")
    assert (failure.findings[0].file, failure.findings[0].line) == ("solution.py", 42)


def test_a_declaration_of_other_types_does_not_pass(cuda: Cuda, out_dir: Path) -> None:
    # PyTorch compiles them apart, so there the function would be missing when the extension is loaded
    host = Source("", "void run(torch::Tensor x, int n);")
    device = Source("", "void run(torch::Tensor x, int64_t n) {}")
    assert failed(Extension("other", (host,), (device,), ("run",)), cuda, out_dir).kind == "compile-error"


def test_functions_must_be_declared_and_there_must_be_some(cuda: Cuda, out_dir: Path) -> None:
    undeclared = failed(replace(INLINE, functions=("scaled", "missing")), cuda, out_dir)
    assert undeclared.kind == "compile-error"
    assert undeclared.message == "inline: functions has missing, which cpp_sources do not declare"
    nothing = failed(replace(INLINE, functions=()), cuda, out_dir)
    assert nothing.kind == "no-such-entry"


def test_lines_are_those_of_the_python_file() -> None:
    text = joined_source(replace(INLINE, host=(Source("a/b c.cpp", "int x;"),)))
    assert '#line 1 "a_b_c.cpp"\nint x;\n' in text
    assert '#line 20 "solution.py"\n\n__global__ void scale' in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("void f(int a = 1, float b=2.f);", "void f(int a , float b);"),
        ("void f(std::vector<int> a = {1, 2}, bool b = g(1, 2));", "void f(std::vector<int> a , bool b );"),
        ("void f(int a =\n  1);", "void f(int a \n);"),
        ("int x = 1, y = 2;", "int x = 1, y = 2;"),
        ("void f(int a) { for (int i = 0; i < a; ++i) g(i = 2); }",) * 2,
        ('// f(int a = 1)\n#define F(a) g(a = 1)\nvoid f(const char* a = "=),");',
         "// f(int a = 1)\n#define F(a) g(a = 1)\nvoid f(const char* a );"),
        ("template <class T> auto f(T a) -> decltype(a == 1);",) * 2,
    ],
)  # fmt: skip
def test_default_arguments_are_left_out(text: str, expected: str) -> None:
    assert without_defaults(text) == expected


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        (("-DX", "-D", "Y=1", "-UZ", "-DW=a b"), ("-DX", "-DY=1", "-UZ", "-DW=a b")),
        (("-use_fast_math", "--use_fast_math", "-O3", "-lineinfo"), ("--use_fast_math",)),
        (("-maxrregcount", "64"), ("--maxrregcount=64",)),
        (("--maxrregcount=32", "-fmad=false", "--ftz=true"), ("--maxrregcount=32", "--fmad=false", "--ftz=true")),
        (("-std=c++17", "--std", "c++20"), ("-std=c++20",)),
        (("-gencode", "arch=compute_90,code=sm_90", "-Xcompiler", "-fopenmp", "-lcublas", "--keep", "-I/x", "-o"), ()),
    ],
)  # fmt: skip
def test_flags_that_matter_are_kept(flags: tuple[str, ...], kept: tuple[str, ...]) -> None:
    assert kept_flags(flags) == kept
