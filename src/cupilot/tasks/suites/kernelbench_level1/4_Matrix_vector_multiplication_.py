"""Product of a matrix with a vector."""

import torch

ROWS = 2048
LENGTH = 1048576


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(ROWS, LENGTH), torch.rand(LENGTH, 1)]


def get_init_inputs():
    return []
