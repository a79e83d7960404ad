"""A large product of two matrices with a short inner dimension."""

import torch

M = 32768
K = 64
N = 32768


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]


def get_init_inputs():
    return []
