"""Stride and padding as Python integers; the parameters have other names than the task's."""

import math

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

__global__ void conv2d(const float* x, const float* w, const float* b, float* y, int C, int H, int W, int O, int K,
                       int OH, int OW, int stride, int padding, int count) {
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    int ow = index % OW, oh = index / OW % OH, o = index / (OW * OH) % O, n = index / (OW * OH * O);
    float sum = b[o];
    for (int c = 0; c < C; ++c)
        for (int i = 0; i < K; ++i)
            for (int j = 0; j < K; ++j) {
                int h = oh * stride - padding + i, v = ow * stride - padding + j;
                if (h >= 0 && h < H && v >= 0 && v < W)
                    sum += x[((n * C + c) * H + h) * W + v] * w[((o * C + c) * K + i) * K + j];
            }
    y[index] = sum;
}

torch::Tensor conv2d_cuda(torch::Tensor x, torch::Tensor w, torch::Tensor b, int stride, int padding) {
    int N = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3), O = w.size(0), K = w.size(2);
    int OH = (H + 2 * padding - K) / stride + 1, OW = (W + 2 * padding - K) / stride + 1;
    auto y = torch::empty({N, O, OH, OW}, x.options());
    int count = y.numel();
    conv2d<<<(count + 127) / 128, 128>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(),
                                         y.data_ptr<float>(), C, H, W, O, K, OH, OW, stride, padding, count);
    return y;
}
"""

cpp_source = "torch::Tensor conv2d_cuda(torch::Tensor x, torch::Tensor w, torch::Tensor b, int stride, int padding);"
conv = load_inline(name="conv2d", cpp_sources=[cpp_source], cuda_sources=[source], functions=["conv2d_cuda"])


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0):
        super().__init__()
        self.filters = nn.Parameter(torch.empty(out_channels, in_channels, kernel_size, kernel_size))
        self.offsets = nn.Parameter(torch.empty(out_channels))
        nn.init.kaiming_uniform_(self.filters, a=math.sqrt(5))
        nn.init.uniform_(self.offsets, -0.1, 0.1)
        self.stride, self.padding = stride, padding

    def forward(self, x):
        return conv.conv2d_cuda(x, self.filters, self.offsets, self.stride, self.padding)
