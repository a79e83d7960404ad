"""Builds of candidates: what comes out, what is kept, and how failures read."""

import ctypes
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cupilot.contracts import Built
from cupilot.errors import MachineError
from cupilot.records import Failure, Kernel
from cupilot.toolchain.abi import Library, TensorValue, WrapperError
from cupilot.toolchain.cuda import Cuda
from cupilot.toolchain.nvcc import build_kernel

PLAIN = """#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void scale(float* x, int n, float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor;
}

torch::Tensor scaled(torch::Tensor x, float factor) {
    TORCH_CHECK(x.dim() == 1, "x must have one dimension, not ", x.dim(), ": ", x.sizes());
    const int n = std::min<int>(x.numel(), INT_MAX);
    scale<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), n, factor);
    return x;
}
"""


def wrapper(body: str) -> str:
    return f"#include <torch/extension.h>\n\ntorch::Tensor forward(torch::Tensor x) {{\n    {body}\n}}\n"


def failure(source: str, cuda: Cuda, out_dir: Path, entry: str = "forward") -> Failure:
    built = build_kernel(Kernel(source, entry), "sm_80", out_dir, cuda)
    assert isinstance(built, Failure)
    assert built.stage == "build"
    return built


@pytest.fixture(scope="module")
def plain(cuda: Cuda, out_dir: Path) -> Built:
    built = build_kernel(Kernel(PLAIN, "scaled"), "sm_80", out_dir, cuda)
    assert isinstance(built, Built), built
    return built


def test_a_source_without_a_module_is_registered(
    plain: Built, load: Callable[[Built], Library], runtime: ctypes.CDLL
) -> None:
    library = load(plain)
    assert library.entries() == (("scaled", "(Tensor, float) -> Tensor"),)
    with pytest.raises(WrapperError, match=r"^x must have one dimension, not 2: \[3, 4\]$"):
        library.call("scaled", [TensorValue(0, (3, 4), (4, 1), "float32"), 2])
    before = runtime.standin_launches()
    library.call("scaled", [TensorValue(16, (5,), (1,), "float32"), 2.0])
    assert runtime.standin_launches() == before + 1


def test_what_a_build_holds(plain: Built, many: Built) -> None:
    assert ".visible .entry _Z5scalePfif" in plain.ptx
    assert '"kernel.cu"' in plain.ptx
    assert str(plain.library.parent.parent) not in plain.ptx
    ((name, resources),) = plain.resources
    assert name == "_Z5scalePfif"
    assert 0 < resources.registers < 32
    assert (resources.static_shared_bytes, resources.spill_bytes, resources.barriers) == (0, 0, 0)
    assert (plain.library.parent / "kernel.cubin").read_bytes()[:4] == b"\x7fELF"
    by_name = dict(many.resources)
    assert by_name["_Z13double_kernelIfEvPKT_PS0_l"].static_shared_bytes == 1024
    assert by_name["_Z13double_kernelIdEvPKT_PS0_l"].static_shared_bytes == 2048
    assert by_name["_Z13double_kernelIfEvPKT_PS0_l"].barriers == 1


def test_a_linked_runtime_comes_along(plain: Built, runtime_path: Path, cuda: Cuda, out_dir: Path) -> None:
    linked = build_kernel(plain.kernel, "sm_80", out_dir, cuda, link=[runtime_path])
    assert isinstance(linked, Built)
    code = "import sys; from cupilot.toolchain.abi import Library; print(Library(sys.argv[1]).entries()[0][0])"
    for built, expected in ((linked, "scaled\n"), (plain, "")):
        command = [sys.executable, "-c", code, str(built.library)]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        assert finished.stdout == expected
    assert "the library cannot be loaded" in finished.stderr


def test_a_second_build_runs_no_compiler(plain: Built, cuda: Cuda, out_dir: Path) -> None:
    broken = replace(cuda, nvcc=out_dir / "absent", ptxas=out_dir / "absent")
    assert build_kernel(plain.kernel, "sm_80", out_dir, broken) == plain


def test_nothing_is_left_of_failed_builds(cuda: Cuda, tmp_path: Path) -> None:
    failed = failure(wrapper("return y;"), cuda, tmp_path)
    assert failed.kind == "compile-error"
    assert failed.message == 'kernel.cu:4: identifier "y" is undefined'
    assert "return y;" in failed.log
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ("return torch::matmul(x, x);", "torch::matmul"),
        ("return x.contiguous().mm(x);", "torch::Tensor::mm"),
        ("return torch::nn::functional::relu(x);", "torch::nn::functional::relu"),
        ("return x * 2;", "torch::Tensor * int"),
    ],
)
def test_computing_calls_are_named(body: str, call: str, cuda: Cuda, out_dir: Path) -> None:
    failed = failure(wrapper(body), cuda, out_dir)
    assert failed.kind == "unsupported-host-call"
    assert (
        failed.message == f"kernel.cu:4: unsupported host call: {call}: a candidate must compute with its own kernels"
    )


def test_libraries_are_named(cuda: Cuda, out_dir: Path) -> None:
    source = "#include <cublas_v2.h>\n" + wrapper("cublasHandle_t handle; return x;")
    failed = failure(source, cuda, out_dir)
    assert failed.kind == "unsupported-host-call"
    assert failed.message.startswith("kernel.cu:5: unsupported library: cublasHandle_t: ")
    failed = failure("#include <cutlass/gemm.h>\n" + wrapper("return x;"), cuda, out_dir)
    assert failed.kind == "missing-header"
    assert failed.message.startswith("kernel.cu:1: the header cutlass/gemm.h is not available: ")


def test_what_only_compiles_with_the_flags_of_pytorch(cuda: Cuda, out_dir: Path) -> None:
    source = "__global__ void k(at::Half* x) { __half h; h = x[0]; x[1] = h; }\n"
    source = wrapper("k<<<1, 1>>>(x.data_ptr<at::Half>()); return x;").replace("\n\n", "\n" + source)
    assert isinstance(build_kernel(Kernel(source), "sm_80", out_dir, cuda), Built)


def test_the_default_entry_is_the_only_function(plain: Built, cuda: Cuda, out_dir: Path) -> None:
    assert build_kernel(Kernel(PLAIN), "sm_80", out_dir, cuda) == plain


def test_a_misuse_of_our_header_is_placed_in_the_source(cuda: Cuda, out_dir: Path) -> None:
    failed = failure(wrapper("x.data_ptr<unsigned long long>(); return x;"), cuda, out_dir)
    assert failed.message.startswith("kernel.cu:4: not an element type of tensors")


def test_inline_assembly_that_ptxas_refuses(cuda: Cuda, out_dir: Path) -> None:
    source = '__global__ void k() { asm volatile("nonsense;"); }\n' + wrapper("k<<<1, 1>>>(); return x;")
    failed = failure(source, cuda, out_dir)
    assert failed.kind == "compile-error"
    assert failed.message.startswith("ptxas: ")
    assert "nonsense" in failed.log


def test_an_entry_that_is_not_there(cuda: Cuda, out_dir: Path) -> None:
    failed = failure(PLAIN, cuda, out_dir, "backward")
    assert failed.kind == "no-such-entry"
    assert failed.message == "there is no host function backward; host functions in the source: scaled"
    assert failure(PLAIN, cuda, out_dir, "scale").kind == "no-such-entry"  # a __global__ kernel is not a wrapper
    assert failure(PLAIN, cuda, out_dir, "factor").kind == "no-such-entry"  # a name, but not of a function


def test_the_time_limit(cuda: Cuda, tmp_path: Path) -> None:
    failed = build_kernel(Kernel(PLAIN, "scaled"), "sm_80", tmp_path, cuda, timeout_s=0)
    assert isinstance(failed, Failure)
    assert (failed.stage, failed.kind) == ("build", "time-out")
    assert list(tmp_path.iterdir()) == []


def test_an_architecture_that_nvcc_does_not_know(cuda: Cuda, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="compute_1"):
        build_kernel(Kernel(PLAIN, "scaled"), "sm_1", tmp_path, cuda)
