"""CUDA's own asynchronous copies, pipelines and barriers, compiled by nvcc: right results, and nothing found."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from ptxkit import Bench

from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.process import run

SOURCE = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

// every kernel gives, for step s and thread t of 64, an element of in[64 * s ...] that another thread copied
extern "C" __global__ void primitives(const float4* in, float4* out, int steps) {
    __shared__ float4 tile[3][64];
    int t = threadIdx.x;
    for (int s = 0; s < 2; s++) {
        if (s < steps) __pipeline_memcpy_async(&tile[s][t], in + 64 * s + t, 16);
        __pipeline_commit();
    }
    for (int s = 0; s < steps; s++) {
        if (s + 2 < steps) __pipeline_memcpy_async(&tile[(s + 2) % 3][t], in + 64 * (s + 2) + t, 16, 4);
        __pipeline_commit();
        __pipeline_wait_prior(2);
        __syncthreads();
        out[64 * s + t] = tile[s % 3][63 - t];
#ifdef ORDERED
        __syncthreads();
#endif
    }
}

extern "C" __global__ void with_barrier(const int4* in, int4* out, int steps) {
    __shared__ int4 tile[64];
    __shared__ Barrier bar;
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&bar, block.size());
    block.sync();
    for (int s = 0; s < steps; s++) {
        cuda::memcpy_async(block, tile, in + 64 * s, cuda::aligned_size_t<16>(sizeof tile), bar);
        bar.arrive_and_wait();
        out[64 * s + threadIdx.x] = tile[63 - threadIdx.x];
        block.sync();
    }
}

extern "C" __global__ void by_threads(const int4* in, int4* out, int steps) {
    __shared__ int4 tile[2][64];
    __shared__ Barrier bar[2];
    int t = threadIdx.x;
    if (t < 2) init(bar + t, blockDim.x);
    __syncthreads();
    for (int s = 0; s < steps; s++) {
        cuda::memcpy_async(&tile[s % 2][t], in + 64 * s + t, cuda::aligned_size_t<16>(16), bar[s % 2]);
        auto token = bar[s % 2].arrive();
        bar[s % 2].wait(std::move(token));
        out[64 * s + t] = tile[s % 2][63 - t];
    }
}

extern "C" __global__ void with_pipeline(const int4* in, int4* out, int steps) {
    __shared__ int4 tile[2][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    for (int s = 0, ahead = 0; s < steps; s++) {
        for (; ahead < steps && ahead < s + 2; ahead++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, tile[ahead % 2], in + 64 * ahead, sizeof tile[0], pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        out[64 * s + threadIdx.x] = tile[s % 2][63 - threadIdx.x];
        pipe.consumer_release();
    }
}

// the first warp copies for the others
extern "C" __global__ void with_roles(const int4* in, int4* out, int steps) {
    __shared__ int4 tile[2][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto role = threadIdx.x < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(block, &state, role);
    auto warp = cg::tiled_partition<32>(block);
    for (int s = 0; s < steps; s++) {
        if (role == cuda::pipeline_role::producer) {
            pipe.producer_acquire();
            cuda::memcpy_async(warp, tile[s % 2], in + 64 * s, sizeof tile[0], pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            out[64 * s + threadIdx.x - 32] = tile[s % 2][95 - threadIdx.x];
            pipe.consumer_release();
        }
    }
}

extern "C" __global__ void with_groups(const int4* in, int4* out, int steps) {
    __shared__ int4 tile[2][64];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile[0], in, sizeof tile[0]);
    for (int s = 0; s < steps; s++) {
        if (s + 1 < steps) {
            cg::memcpy_async(block, tile[(s + 1) % 2], in + 64 * (s + 1), sizeof tile[0]);
            cg::wait_prior<1>(block);
        } else {
            cg::wait(block);
        }
        out[64 * s + threadIdx.x] = tile[s % 2][63 - threadIdx.x];
        block.sync();
    }
}
"""
STEPS = 7


def compiled(bench: Bench, folder: Path, arch: str, *options: str) -> int:
    (folder / "copies.cu").write_text(SOURCE)
    cuda = find_cuda()
    flags = ("-ptx", f"-arch={arch}", "-std=c++17", "-diag-suppress", "20054", "-ccbin", cuda.host_compiler, *options)
    finished = run([cuda.nvcc, *flags, "copies.cu", "-o", "copies.ptx"], folder, timeout_s=120)
    assert finished is not None
    assert finished.status == 0, finished.output
    return bench.machine.load_ptx((folder / "copies.ptx").read_text())


@pytest.fixture(scope="module", params=["sm_75", "sm_80", "sm_90"])
def ptx_module(request: pytest.FixtureRequest, bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> int:
    return compiled(bench, tmp_path_factory.mktemp("copies"), request.param, "-DORDERED")


def launch(bench: Bench, module: int, kernel: str, threads: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    machine = bench.machine
    data = (
        np.random.default_rng(5)
        .integers(-99, 99, (STEPS, 64, 4))
        .astype(np.float32 if kernel == "primitives" else np.int32)
    )
    addresses = [machine.upload(data), machine.upload(np.zeros_like(data))]
    machine.begin(None, 20.0)
    arguments = [*(struct.pack("<Q", address) for address in addresses), struct.pack("<i", STEPS)]
    machine.start(module, kernel, (1, 1, 1), (threads, 1, 1), arguments)
    out = machine.view(addresses[1], data.shape, data.dtype).copy()
    for address in addresses:
        machine.free(address)
    return [finding.kind for finding in machine.findings()], data, out


@pytest.mark.parametrize(
    "kernel", ["primitives", "with_barrier", "by_threads", "with_pipeline", "with_roles", "with_groups"]
)
def test_copies_in_cuda(bench: Bench, ptx_module: int, kernel: str) -> None:
    kinds, data, out = launch(bench, ptx_module, kernel, 96 if kernel == "with_roles" else 64)
    if kernel == "primitives":
        data[2:, :, 3] = 0  # four bytes of each later copy are filled with zeros
    assert kinds == []
    assert np.array_equal(out, data[:, ::-1])


def test_a_forgotten_barrier_in_cuda(bench: Bench, tmp_path: Path) -> None:
    """Copies for a later step overwrite what other warps still read."""
    kinds, _, _ = launch(bench, compiled(bench, tmp_path, "sm_80"), "primitives", 64)
    assert "shared-race" in kinds
