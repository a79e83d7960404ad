"""CUDA's own wmma classes, compiled by nvcc, against numpy: what real kernels make of the matrix instructions."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from ptxkit import Bench

from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.process import run

SOURCE = r"""
#include <cuda_bf16.h>
#include <mma.h>
using namespace nvcuda::wmma;

template <int M, int N, int K, class T, class Out, class LayoutA, class LayoutB, class In>
__device__ void product(const In* a, const In* b, Out* d, int lda, int ldb, int ldd, layout_t layout) {
    fragment<matrix_a, M, N, K, T, LayoutA> fa;
    fragment<matrix_b, M, N, K, T, LayoutB> fb;
    fragment<accumulator, M, N, K, Out> fd;
    load_matrix_sync(fd, d, ldd, layout);
    load_matrix_sync(fa, a, lda);
    load_matrix_sync(fb, b, ldb);
    mma_sync(fd, fa, fb, fd);
    if constexpr (sizeof(Out) > 2)
        for (int i = 0; i < fd.num_elements; i++) fd.x[i] = fd.x[i] + fd.x[i];
    store_matrix_sync(d, fd, ldd, layout);
}

#define KERNEL(NAME, M, N, K, T, OUT, LA, LB, IN, LDA, LDB, LDD, LAYOUT)                          \
    extern "C" __global__ void NAME(const IN* a, const IN* b, OUT* d) {                           \
        product<M, N, K, T, OUT, LA, LB>(a, b, d, LDA, LDB, LDD, LAYOUT);                         \
    }
KERNEL(half_row_col, 16, 16, 16, half, float, row_major, col_major, half, 16, 16, 16, mem_row_major)
KERNEL(half_tall, 32, 8, 16, half, half, col_major, row_major, half, 32, 8, 8, mem_row_major)
KERNEL(brain_wide, 8, 32, 16, __nv_bfloat16, float, row_major, col_major, __nv_bfloat16, 16, 16, 8, mem_col_major)
KERNEL(tf32_row_col, 16, 16, 8, precision::tf32, float, row_major, col_major, float, 8, 8, 16, mem_row_major)
KERNEL(bytes_row_col, 16, 16, 16, signed char, int, row_major, col_major, signed char, 16, 16, 16, mem_row_major)
KERNEL(doubles_row_col, 8, 8, 4, double, double, row_major, col_major, double, 4, 4, 8, mem_row_major)

// a whole product through shared memory, a strip of 16 columns of B per warp
extern "C" __global__ void blocked(const half* a, const half* b, float* d, int n, int k) {
    __shared__ half sa[16][24], sb[16][40];
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 0.0f);
    int warp = threadIdx.x / 32;
    for (int step = 0; step < k; step += 16) {
        for (int i = threadIdx.x; i < 256; i += 64)
            sa[i / 16][i % 16] = a[(blockIdx.y * 16 + i / 16) * k + step + i % 16];
        for (int i = threadIdx.x; i < 512; i += 64)
            sb[i / 32][i % 32] = b[(step + i / 32) * n + blockIdx.x * 32 + i % 32];
        __syncthreads();
        fragment<matrix_a, 16, 16, 16, half, row_major> fa;
        fragment<matrix_b, 16, 16, 16, half, row_major> fb;
        load_matrix_sync(fa, &sa[0][0], 24);
        load_matrix_sync(fb, &sb[0][16 * warp], 40);
        mma_sync(sum, fa, fb, sum);
        __syncthreads();
    }
    store_matrix_sync(d + blockIdx.y * 16 * n + blockIdx.x * 32 + 16 * warp, sum, n, mem_row_major);
}
"""


@pytest.fixture(scope="module")
def ptx_module(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> int:
    folder: Path = tmp_path_factory.mktemp("wmma")
    (folder / "wmma.cu").write_text(SOURCE)
    cuda = find_cuda()
    flags = ("-ptx", "-arch=sm_80", "-std=c++17", "-ccbin", cuda.host_compiler)
    finished = run([cuda.nvcc, *flags, "wmma.cu", "-o", "wmma.ptx"], folder, timeout_s=120)
    assert finished is not None
    assert finished.status == 0, finished.output
    return bench.machine.load_ptx((folder / "wmma.ptx").read_text())


def launch(
    bench: Bench, module: int, kernel: str, arrays: list[np.ndarray], numbers: tuple[int, ...] = (), **shape: int
) -> np.ndarray:
    """Run; gives the last array back."""
    machine = bench.machine
    addresses = [machine.upload(array) for array in arrays]
    data = [struct.pack("<Q", address) for address in addresses] + [struct.pack("<i", number) for number in numbers]
    machine.begin(None, 20.0)
    grid = (shape.get("grid_x", 1), shape.get("grid_y", 1), 1)
    status = machine.start(module, kernel, grid, (shape.get("threads", 32), 1, 1), data)
    assert (status, machine.findings()) == (0, ())
    out = machine.view(addresses[-1], arrays[-1].shape, arrays[-1].dtype).copy()
    for address in addresses:
        machine.free(address)
    return out


def brain(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize(("kernel", "m", "n", "k", "source", "target", "orders"), [
    ("half_row_col", 16, 16, 16, np.float16, np.float32, "CFC"),
    ("half_tall", 32, 8, 16, np.float16, np.float16, "FCC"),
    ("brain_wide", 8, 32, 16, None, np.float32, "CFF"),
    ("tf32_row_col", 16, 16, 8, np.float32, np.float32, "CFC"),
    ("bytes_row_col", 16, 16, 16, np.int8, np.int32, "CFC"),
    ("doubles_row_col", 8, 8, 4, np.float64, np.float64, "CFC"),
])  # fmt: skip
def test_fragments_in_cuda(
    bench: Bench, ptx_module: int, kernel: str, m: int, n: int, k: int, source: type | None, target: type, orders: str
) -> None:
    rng = np.random.default_rng(1)
    a, b, c = (rng.integers(-4, 5, shape) for shape in ((m, k), (k, n), (m, n)))
    lines = [x.flatten(order) for x, order in zip((a, b), orders, strict=False)]
    memory = [brain(x) if source is None else x.astype(source) for x in lines]
    got = launch(bench, ptx_module, kernel, [*memory, c.flatten(orders[2]).astype(target)])
    factor = 1 if target is np.float16 else 2  # the kernels double wide results, element by element
    assert np.array_equal(got.reshape((m, n), order=orders[2]), factor * (a @ b + c))


def test_a_product_through_shared_memory(bench: Bench, ptx_module: int) -> None:
    rng = np.random.default_rng(2)
    m, n, k = 32, 64, 48
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    out = np.zeros((m, n), np.float32)
    got = launch(bench, ptx_module, "blocked", [a, b, out], (n, k), grid_x=n // 32, grid_y=m // 16, threads=64)
    exact, size = (
        a.astype(np.float64) @ b.astype(np.float64),
        np.abs(a.astype(np.float64)) @ np.abs(b).astype(np.float64),
    )
    assert (np.abs(got - exact) <= k * 2.0**-24 * size).all()
