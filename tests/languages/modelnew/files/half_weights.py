"""Weights in half precision, and a table that the constructor makes on the GPU."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

scale = load_inline(
    name="scale",
    cpp_sources="torch::Tensor scale(torch::Tensor x, torch::Tensor weight, torch::Tensor table);",
    cuda_sources="""
#include <cuda_fp16.h>
__global__ void scale_kernel(const float* x, const __half* weight, const float* table, float* y, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * __half2float(weight[i % columns]) * table[i % columns];
}
torch::Tensor scale(torch::Tensor x, torch::Tensor weight, torch::Tensor table) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    scale_kernel<<<(n + 255) / 256, 256>>>(
        x.data_ptr<float>(), reinterpret_cast<const __half*>(weight.data_ptr<at::Half>()), table.data_ptr<float>(),
        y.data_ptr<float>(), n, x.size(-1));
    return y;
}
""",
    functions=["scale"],
)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns).half())
        self.table = torch.full((columns,), 2.0, device="cuda")
        self.table[0] = 3.0

    def forward(self, x):
        return scale.scale(x, self.weight, self.table)
