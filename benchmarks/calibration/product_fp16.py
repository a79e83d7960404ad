"""Product of two vectors of 32 Mi numbers in float16, element by element."""

import torch
from torch import nn

N = 33554432


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a * b


def get_inputs():
    return [torch.randn(N, dtype=torch.float16), torch.randn(N, dtype=torch.float16)]


def get_init_inputs():
    return []
