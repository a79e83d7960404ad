"""The product of a tensor of three dimensions and a matrix, over the tensor's last one."""

import torch

N = 16
M = 1024
K = 2048
L = 768


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(N, M, K), torch.rand(K, L)]


def get_init_inputs():
    return []
