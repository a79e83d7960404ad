"""The product of two lower triangular matrices, which is lower triangular itself."""

import torch

N = 4096


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.tril(torch.matmul(a, b))


def get_inputs():
    return [torch.tril(torch.rand(N, N)), torch.tril(torch.rand(N, N))]


def get_init_inputs():
    return []
