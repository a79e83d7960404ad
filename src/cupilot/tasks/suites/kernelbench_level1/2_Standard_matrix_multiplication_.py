"""The product of two matrices of different shapes."""

import torch

M = 2048
K = 8192
N = 4096


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]


def get_init_inputs():
    return []
