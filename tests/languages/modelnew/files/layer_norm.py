"""Weight and bias as parameters, a tuple of sizes and a number for the constructor."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

cpp = """
torch::Tensor layer_norm_cuda(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps = 1e-5);
"""
cuda = """
__global__ void layer_norm(const float* x, const float* weight, const float* bias, float* y, int n, float eps) {
    __shared__ float sums[2];
    const float* row = x + (long)blockIdx.x * n;
    if (threadIdx.x < 2) sums[threadIdx.x] = 0.f;
    __syncthreads();
    float sum = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += row[i];
    atomicAdd(&sums[0], sum);
    __syncthreads();
    float mean = sums[0] / n, squares = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) squares += (row[i] - mean) * (row[i] - mean);
    atomicAdd(&sums[1], squares);
    __syncthreads();
    float scale = rsqrtf(sums[1] / n + eps);
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        y[(long)blockIdx.x * n + i] = (row[i] - mean) * scale * weight[i] + bias[i];
}

torch::Tensor layer_norm_cuda(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps = 1e-5) {
    auto y = torch::empty_like(x);
    int n = weight.numel();
    layer_norm<<<x.numel() / n, 128>>>(x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
                                       y.data_ptr<float>(), n, (float)eps);
    return y;
}
"""
module = load_inline(name="layer_norm", cpp_sources=cpp, cuda_sources=cuda, functions=["layer_norm_cuda"])


class ModelNew(nn.Module):
    def __init__(self, normalized_shape: tuple, eps: float):
        super().__init__()
        assert isinstance(normalized_shape, tuple)
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return module.layer_norm_cuda(x.contiguous(), self.weight, self.bias, self.eps)
