"""A task with a parameter, a buffer, a constructor and gradients, and a kernel that knows no Python."""

TASK = '''"""Scaled rows, moved by a constant."""

import torch
from torch import nn

ROWS = 192
FEATURES = 160


class Model(nn.Module):
    def __init__(self, features: int, shift: float = 0.5):
        super().__init__()
        self.inner = nn.ModuleList([nn.Module()])
        self.inner[0].weight = nn.Parameter(torch.rand(features))
        self.register_buffer("mean", torch.rand(features))
        self.shift = shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.mean) * self.inner[0].weight + self.shift


def get_inputs():
    return [torch.rand(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES]


def backward(model, inputs, outputs, grads):
    weight = model.inner[0].weight
    return grads[0] * weight, ((inputs[0] - model.mean) * grads[0]).sum(0)
'''

KERNEL = """
#include <torch/extension.h>

namespace rows {

__global__ void scale(const float* x, const float* w, const float* m, float* y, int n, int columns, float shift) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (x[i] - m[i % columns]) * w[i % columns] + shift;
}

torch::Tensor forward(torch::Tensor x, torch::Tensor weight, torch::Tensor mean, double shift) {
    auto y = torch::empty_like(x);
    int n = (int)x.numel();
    scale<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), weight.data_ptr<float>(), mean.data_ptr<float>(),
                                    y.data_ptr<float>(), n, (int)x.size(1), (float)shift);
    return y;
}

}  // namespace rows
"""

CONVOLUTION = """
import torch

BATCH = 2
CHANNELS = 32
WIDER = 2 * CHANNELS
SIZE = 40


class Model(torch.nn.Module):
    def __init__(self, stride: int) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(CHANNELS, WIDER, kernel_size=3, stride=stride, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x))


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, SIZE, SIZE + 8)]


def get_init_inputs():
    return [2]
"""

TWO_OUTPUTS = """
import torch


class Model(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(8)
        self.factor = factor

    def forward(self, x: torch.Tensor, times: float):
        return self.norm(x) * times, x.sum(1)


def get_inputs():
    return [torch.rand(32, 8), 2.0]


def get_init_inputs():
    return [3.0]
"""

FILLING = """
#include <torch/extension.h>
void forward(torch::Tensor x, double times, torch::Tensor first, torch::Tensor second) {}
"""
