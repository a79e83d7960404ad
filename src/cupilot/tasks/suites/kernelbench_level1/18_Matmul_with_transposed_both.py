"""The product of two transposed matrices."""

import torch

M = 2048
K = 8192
N = 4096


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a.T, b.T)


def get_inputs():
    return [torch.rand(K, M), torch.rand(N, K)]


def get_init_inputs():
    return []
