"""The product of a tall and a wide matrix, of an inner dimension of 32."""

import torch

M = 32768
N = 32


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(M, N), torch.rand(N, M)]


def get_init_inputs():
    return []
