"""The product of a tensor of four dimensions and a matrix, over the tensor's last one."""

import torch

BATCH = 8
I = 256
J = 512
L = 256
K = 768


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.einsum("bijl,lk->bijk", a, b)


def get_inputs():
    return [torch.rand(BATCH, I, J, L), torch.rand(L, K)]


def get_init_inputs():
    return []
