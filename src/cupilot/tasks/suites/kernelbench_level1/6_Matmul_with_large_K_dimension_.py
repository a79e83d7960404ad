"""A small product of two matrices with a very long inner dimension."""

import torch

M = 256
K = 524288
N = 256


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]


def get_init_inputs():
    return []
