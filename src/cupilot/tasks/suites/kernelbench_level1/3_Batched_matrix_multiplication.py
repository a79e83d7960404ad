"""Products of many pairs of matrices."""

import torch

BATCH = 128
M = 512
K = 1024
N = 2048


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.rand(BATCH, M, K), torch.rand(BATCH, K, N)]


def get_init_inputs():
    return []
