"""The product of two symmetric matrices."""

import torch

N = 4096


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def symmetric():
    half = torch.rand(N, N)
    return (half + half.T) / 2


def get_inputs():
    return [symmetric(), symmetric()]


def get_init_inputs():
    return []
