"""The product of a matrix and a transposed matrix."""

import torch

M = 2048
K = 8192
N = 4096


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b.T)


def get_inputs():
    return [torch.rand(M, K), torch.rand(N, K)]


def get_init_inputs():
    return []
