"""Parameters of host functions, read from the text of candidates as people write them."""

from __future__ import annotations

import re
import time
from pathlib import Path
from textwrap import dedent

import pytest

from cupilot.toolchain.abi import Library
from cupilot.toolchain.signature import Parameter, fills_outputs, signature_of

DATA = Path(__file__).parent / "data"


def said(source: str, entry: str = "forward") -> str | None:
    """The signature on one line."""
    found = signature_of(dedent(source), entry)
    return None if found is None else ", ".join(map(str, found))


def of_type(text: str) -> Parameter:
    found = signature_of(f"torch::Tensor forward({text}) {{ return x; }}", "forward")
    assert found is not None
    assert len(found) == 1
    return found[0]


CONVOLUTION = """
    #include <torch/extension.h>
    // torch::Tensor conv2d_cuda(torch::Tensor old, float gone) { }
    __global__ void conv2d_kernel(const float* __restrict__ x, float* y, int stride) {
      extern __shared__ float tile[];
      for (int i = 0; i < stride; ++i) { y[i] = x[i]; }
    }
    /* the wrapper */
    torch::Tensor conv2d_cuda(
        const torch::Tensor& input, torch::Tensor weight,
        const c10::optional<torch::Tensor>& bias,   // may be absent
        int64_t stride, std::vector<int64_t> padding, at::IntArrayRef dilation, const int groups) {
      TORCH_CHECK(input.dim() == 4, "want 4 dimensions (got ", input.dim(), ")");
      if (groups > 1) { conv2d_kernel<<<1, 1>>>(nullptr, nullptr, stride); }
      return input;
    }
    """


def test_a_convolution() -> None:
    assert said(CONVOLUTION, "conv2d_cuda") == (
        "Tensor input, Tensor weight, Tensor? bias, int stride, ints padding, ints dilation, int groups"
    )
    assert said(CONVOLUTION, "conv2d_kernel") is None
    assert said(CONVOLUTION, "forward") is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("torch::Tensor x", "Tensor"),
        ("const at::Tensor& x", "Tensor"),
        ("at::Tensor const &x", "Tensor"),
        ("Tensor x", "Tensor"),
        ("torch::Tensor&& x", "Tensor"),
        ("[[maybe_unused]] const torch::Tensor x", "Tensor"),
        ("std::optional<at::Tensor> x", "Tensor?"),
        ("const c10::optional < torch::Tensor > & x", "Tensor?"),
        ("torch::optional<Tensor> x", "Tensor?"),
        ("int x", "int"),
        ("long long x", "int"),
        ("const unsigned int x", "int"),
        ("std::size_t x", "int"),
        ("uint32_t x", "int"),
        ("c10::SymInt x", "int"),
        ("double x", "float"),
        ("const float &x", "float"),
        ("const at::Scalar& x", "float"),
        ("bool x", "bool"),
        ("const std::string& x", "string"),
        ("std::string_view x", "string"),
        ("const char* x", "string"),
        ("const char *x", "string"),
        ("std::vector<int64_t> x", "ints"),
        ("const std::array<int, 2>& x", "ints"),
        ("c10::ArrayRef<int64_t> x", "ints"),
        ("torch::IntArrayRef x", "ints"),
        ("c10::SymIntArrayRef x", "ints"),
        ("torch::List<int64_t> x", "ints"),
        ("std::vector<double> x", "floats"),
        ("at::ArrayRef<float> x", "floats"),
        ("std::vector<torch::Tensor> x", "tensors"),
        ("const std::vector<std::optional<at::Tensor>>& x", "tensors"),
        ("at::TensorList x", "tensors"),
        ("at::ScalarType x", "other"),
        ("float* x", "other"),
        ("std::vector<std::string> x", "other"),
        ("std::tuple<int, int> x", "ints"),
        ("const std::pair<float, double>& x", "floats"),
        ("std::tuple<int, bool> x", "other"),
        ("std::map<int, int> x", "other"),
        ("std::vector<> x", "other"),
        ("std::vector<unsigned int> x", "ints"),
        ("std::array <long long, 3> x", "ints"),
        ("Settings x", "other"),
    ],
)
def test_types(text: str, kind: str) -> None:
    assert of_type(text) == Parameter(kind, "x")


def test_optional_numbers_may_always_be_absent() -> None:
    assert of_type("c10::optional<double> x") == Parameter("float", "x", "None")
    assert of_type("std::optional<int64_t> x = 3") == Parameter("int", "x", "3")
    assert of_type("at::OptionalIntArrayRef x") == Parameter("ints", "x", "None")
    assert of_type("std::optional<std::vector<int64_t>> x = {}") == Parameter("ints", "x", "None")


@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("int x = 1", "1"),
        ("int64_t x=-1", "-1"),
        ("int x = 1'024u", "1024"),
        ("float x = 1e-5f", "1e-05"),
        ("float x = 1.f", "1.0"),
        ("double x = .5", "0.5"),
        ("double x = 2", "2.0"),
        ("float x = static_cast<float>(0.1)", "0.1"),
        ("bool x = true", "True"),
        ("std::string x = \"mean\"", "'mean'"),
        ("const std::string& x = std::string(\"a, b\")", "'a, b'"),
        ("std::vector<int64_t> x = {1, 2}", "[1, 2]"),
        ("std::vector<int64_t> x = std::vector<int64_t>{2, 3}", "[2, 3]"),
        ("std::vector<int64_t> x = {}", "[]"),
        ("std::vector<int64_t> x = std::vector<int64_t>(2, 1)", "std::vector<int64_t>(2, 1)"),
        ("std::vector<int64_t> x = std::vector<int64_t>(3)", "std::vector<int64_t>(3)"),
        ("c10::optional<torch::Tensor> x = c10::nullopt", "None"),
        ("std::optional<torch::Tensor> x = {}", "None"),
        ("torch::Tensor x = torch::Tensor()", "None"),
        ("torch::Tensor x = {}", "None"),
        ("c10::optional<double> x = c10::optional<double>(0.5)", "0.5"),
        ("at::ScalarType x = torch::kFloat32", "torch::kFloat32"),
        ("int x = BLOCK * 2", "BLOCK * 2"),
        ("int x = chosen(5)", "chosen(5)"),
    ],
)  # fmt: skip
def test_defaults_are_python_where_they_are_literals(text: str, default: str) -> None:
    assert of_type(text).default == default
    assert of_type(text).name == "x"


def test_names_may_be_missing() -> None:
    source = "at::Tensor forward(at::Tensor, const at::Tensor&, unsigned long, const float, std::vector<int>, bool) {}"
    assert said(source) == "Tensor, Tensor, int, float, ints, bool"
    assert said("at::Tensor forward() {}") == ""
    assert said("at::Tensor forward(void) {}") == ""


def test_aliases_stand_for_what_they_mean() -> None:
    source = """
    using torch::Tensor;
    using index_t = int64_t;
    using MaybeTensor = c10::optional<Tensor>;
    typedef std::vector<index_t> Shape;
    Tensor forward(const Tensor& x, MaybeTensor b, index_t n, const Shape& s) { return x; }
    """
    assert said(source) == "Tensor x, Tensor? b, int n, ints s"


def test_namespaces_and_linkage() -> None:
    source = """
    namespace a { namespace b::c {
    namespace { static torch::Tensor inner(torch::Tensor x) { return x; } }
    torch::Tensor forward(torch::Tensor x, int in_namespace) { return inner(x); }
    } }
    extern "C" { torch::Tensor plain(torch::Tensor x, int k) { return x; } }
    extern "C" torch::Tensor other(torch::Tensor x, double eps) { return x; }
    __host__ inline auto trailing(at::Tensor x, bool f) -> at::Tensor { return x; }
    """
    assert said(source) == "Tensor x, int in_namespace"
    assert said(source, "plain") == "Tensor x, int k"
    assert said(source, "other") == "Tensor x, float eps"
    assert said(source, "trailing") == "Tensor x, bool f"


def test_defaults_may_stand_in_a_declaration() -> None:
    source = """
    torch::Tensor forward(torch::Tensor x, double eps = 1e-5, std::vector<int64_t> s = {1, 1});
    torch::Tensor backward(torch::Tensor g) { return forward(g); }
    torch::Tensor forward(torch::Tensor x, double eps, std::vector<int64_t> stride) { return x; }
    """
    assert said(source) == "Tensor x, float eps=1e-05, ints s=[1, 1]"


def test_a_call_is_no_declaration() -> None:
    source = """
    static int made = forward(1, 2);
    torch::Tensor outer(torch::Tensor x) { forward(x); if (x.defined()) { return forward(x, x); } return x; }
    #define forward(a) inner(a)
    torch::Tensor forward(torch::Tensor x, float alpha) { return x; }
    """
    assert said(source) == "Tensor x, float alpha"


def test_braces_among_the_parameters_end_nothing() -> None:
    source = """
    torch::Tensor first(torch::Tensor x, std::vector<int64_t> k = {3, 3}, int p = 0) { return x; }
    torch::Tensor forward(torch::Tensor x, int dim) { auto f = [&](int i) { return i; }; return x; }
    """
    assert said(source, "first") == "Tensor x, ints k=[3, 3], int p=0"
    assert said(source) == "Tensor x, int dim"


def test_strings_and_comments_hide_what_is_in_them() -> None:
    source = """
    const char* text = "torch::Tensor forward(int wrong) {";
    // torch::Tensor forward(int wrong) {}
    const char open = '{';
    torch::Tensor forward(torch::Tensor x, /* int old, */ float slope = 0.01f // the slope
    ) { return x; }
    """
    assert said(source) == "Tensor x, float slope=0.01"


TWO = """
    torch::Tensor scale_cuda(torch::Tensor x, double s) { return x; }
    torch::Tensor norm_cuda(torch::Tensor x, torch::Tensor w, double e) { return x; }
    """


def test_a_module_names_functions() -> None:
    source = (
        TWO
        + """
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
      m.doc() = "two functions, forward(x)";
      m.def("scale", &scale_cuda, "scales (x, s) = x * s");
      m.def("forward", &norm_cuda, "norm", py::arg("input"), py::arg("gamma").none(true), py::arg("eps") = 1e-6);
      m.def("literal", &scale_cuda, "x"_a, "s"_a = 2).def("chained", torch::wrap_pybind_function(norm_cuda));
    }
    """
    )
    assert said(source) == "Tensor input, Tensor gamma, float eps=1e-06"
    assert said(source, "scale") == "Tensor x, float s"
    assert said(source, "literal") == "Tensor x, float s=2.0"
    assert said(source, "chained") == "Tensor x, Tensor w, float e"
    assert said(source, "norm_cuda") == "Tensor x, Tensor w, float e"
    assert said(source, "absent") is None


def test_a_module_may_hold_lambdas() -> None:
    source = (
        TWO
        + """
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
      m.def("forward", [](const torch::Tensor& x, std::array<int64_t, 2> k, c10::optional<at::Tensor> b) {
        if (k[0] < 3, k[1] > 2) { return scale_cuda(x, 1.0); }
        return x;
      }, py::arg("x"), py::arg("kernel_size") = std::vector<int64_t>{3, 3}, py::arg("bias") = py::none());
      m.def("fill", [=](at::Tensor x, at::Tensor y) -> void { });
      m.def("quiet", [](at::Tensor x) { launch(x); return; });
    }
    """
    )
    assert said(source) == "Tensor x, ints kernel_size=[3, 3], Tensor? bias=None"
    assert not fills_outputs(source, "forward")
    assert fills_outputs(source, "fill")
    assert fills_outputs(source, "quiet")


def test_overloads_are_told_by_their_casts() -> None:
    source = """
    namespace deep {
    at::Tensor twice(const at::Tensor& x) { return x; }
    at::Tensor twice(const at::Tensor& x, int64_t a) { return x; }
    }
    at::Tensor twice(const at::Tensor& x, bool other) { return x; }
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
      m.def("two", py::overload_cast<const at::Tensor&, int64_t>(&deep::twice));
      m.def("one", static_cast<at::Tensor (*)(const at::Tensor&)>(&deep::twice));
      m.def("old", (at::Tensor (*)(const at::Tensor&, bool)) &twice);
      m.def("made", &deep::made<float>);
    }
    namespace deep { template <class T> at::Tensor made(at::Tensor x, float y) { return x; } }
    """
    assert said(source, "two") == "Tensor x, int a"
    assert said(source, "one") == "Tensor x"
    assert said(source, "old") == "Tensor x, bool other"
    assert said(source, "made") == "Tensor x, float y"


def test_schemas() -> None:
    source = """
    at::Tensor conv(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b, at::IntArrayRef s) {}
    at::Tensor on_cpu(const at::Tensor& wrong) {}
    TORCH_LIBRARY(ops, m) {
      m.def("conv(Tensor input, Tensor weight, Tensor? bias=None,"
            " int[2] stride=[1, 1]) -> Tensor");
      m.def("hidden(Tensor(a!) x, *, float eps=1e-5, int? dim=None, str mode='sum', SymInt[] s, Tensor[] t) -> ()", &m);
      m.def("ops::scaled(Tensor x, Scalar s) -> Tensor", [](const at::Tensor&, double) { return at::Tensor(); });
    }
    TORCH_LIBRARY_IMPL(ops, CPU, m) { m.impl("conv", &on_cpu); }
    TORCH_LIBRARY_IMPL(ops, CUDA, m) {
      m.impl("both", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(on_cpu)));
      m.impl("both", torch::dispatch(c10::DispatchKey::CUDA, TORCH_FN(conv)));
      m.impl("conv", c10::kCUDA, TORCH_FN(conv));
    }
    """
    assert said(source, "conv") == "Tensor x, Tensor w, Tensor? b=None, ints s=[1, 1]"
    assert said(source, "both") == "Tensor x, Tensor w, Tensor? b, ints s"
    assert said(source, "scaled") == "Tensor x, float s"
    assert said(source, "hidden") == "Tensor x, float eps=1e-5, int dim=None, string mode='sum', ints s, tensors t"
    assert fills_outputs(source, "hidden")
    assert not fills_outputs(source, "conv")


def test_functions_that_return_nothing_fill_their_outputs() -> None:
    source = "void fill(at::Tensor x, at::Tensor out) {}\nat::Tensor give(at::Tensor x) { return x; }"
    assert fills_outputs(source, "fill")
    assert not fills_outputs(source, "give")
    assert not fills_outputs(source, "absent")


def test_what_macros_make_is_not_found() -> None:
    assert said("#define F(name) at::Tensor name(at::Tensor x) { return x; }\nF(forward)\n") is None
    assert said("struct Op { at::Tensor operator()(at::Tensor x) { return x; } };") is None


def test_methods_of_classes() -> None:
    source = """
    struct Op { int k = 0; static at::Tensor apply(at::Tensor x, int n) { return x; } };
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &Op::apply); }
    """
    assert said(source) == "Tensor x, int n"


def test_text_that_is_no_program_is_no_error() -> None:
    for text in ("", "torch::Tensor forward(", "at::Tensor forward(at::Tensor x", 'm.def("forward"', "}{)(", '"'):
        assert signature_of(text, "forward") is None or text.startswith("at::Tensor forward")
    assert said('PYBIND11_MODULE(a, m) { m.def("forward", &nowhere); }') is None


@pytest.mark.parametrize(
    "text",
    [
        "at::Tensor forward(" + "std::vector<" * 5000 + " x) {}",
        "at::Tensor forward(std::vector<int> x = " + "{" * 3000 + "}" * 3000 + ") {}",
        "at::Tensor forward(int x = " + "-" * 20_000 + "1) {}",
        "typedef " * 20_000,
        "using a = " * 20_000,
        "using a = b; using b = a; at::Tensor forward(a x) {}",
        "a::" * 50_000 + "forward(",
        "struct " * 30_000 + "{",
        "[[" * 20_000 + "at::Tensor forward(" + "[[" * 20_000 + ") {}",
        "PYBIND11_MODULE(a, m) {" + 'm.def("a", ' * 5000,
    ],
    ids=lambda text: text[:30],
)
def test_text_that_is_made_to_waste_time_does_not(text: str) -> None:
    began_s = time.process_time()
    signature_of(text, "forward")
    assert time.process_time() - began_s < 10.0


COMPILED = {"str": "string", "int[]": "ints", "bool[]": "ints", "float[]": "floats", "Tensor[]": "tensors",
            "ScalarType": "other", "Device": "other", "unsupported type": "other", "str[]": "other"}  # fmt: skip


def test_the_compiler_sees_the_same_types(library: Library) -> None:
    source = (DATA / "many_wrappers.cu").read_text()
    compared = 0
    for name, signature in library.entries():
        taken, _, given = signature.partition(" -> ")
        types = [each for each in re.split(", ", taken[1:-1]) if each]
        plain = [each if each == "Tensor?" else each.removesuffix("?") for each in types]
        found = signature_of(source, name)
        assert found is not None, name
        assert [each.type for each in found] == [COMPILED.get(each, each) for each in plain], name
        assert fills_outputs(source, name) == (given == "None"), name
        compared += len(found)
    assert compared > 40
