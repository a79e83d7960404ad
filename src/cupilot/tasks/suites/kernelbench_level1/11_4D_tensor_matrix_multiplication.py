"""The product of a tensor of four dimensions and a matrix, over the tensor's last one."""

import torch

BATCH = 8
ROWS = 256
COLUMNS = 512
INNER = 256
DEPTH = 768


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.einsum("bijl,lk->bijk", a, b)


def get_inputs():
    return [torch.rand(BATCH, ROWS, COLUMNS, INNER), torch.rand(INNER, DEPTH)]


def get_init_inputs():
    return []
