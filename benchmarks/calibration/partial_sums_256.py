"""One sum for each 256 of 32 Mi numbers: the first stage of a reduction, a block of 256 threads each."""

import torch
from torch import nn

BLOCKS = 131072


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1)


def get_inputs():
    return [torch.randn(BLOCKS, 256)]


def get_init_inputs():
    return []
