"""Shared-memory tiles; the output is made in Python and filled by a function that returns nothing."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

matmul_source = """
#define TILE 16

__global__ void matmul_tiled(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a[TILE][TILE];
    __shared__ float b[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
        int k = t * TILE;
        a[threadIdx.y][threadIdx.x] = row < M && k + threadIdx.x < K ? A[row * K + k + threadIdx.x] : 0.0f;
        b[threadIdx.y][threadIdx.x] = column < N && k + threadIdx.y < K ? B[(k + threadIdx.y) * N + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += a[threadIdx.y][i] * b[i][threadIdx.x];
        __syncthreads();
    }
    if (row < M && column < N) C[row * N + column] = sum;
}

void matmul_into(torch::Tensor A, torch::Tensor B, torch::Tensor C) {
    int M = A.size(0), K = A.size(1), N = B.size(1);
    dim3 block(TILE, TILE), grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
    matmul_tiled<<<grid, block>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, N, K);
}
"""

matmul = load_inline(
    name="matmul_tiled",
    cpp_sources="void matmul_into(torch::Tensor A, torch::Tensor B, torch::Tensor C);",
    cuda_sources=matmul_source,
    functions=["matmul_into"],
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        assert a.is_cuda
        assert a.is_contiguous()
        assert a.device.type == "cuda"
        out = torch.empty((a.size(0), b.size(1)), device=a.device, dtype=a.dtype)
        matmul.matmul_into(a, b, out)
        return out
