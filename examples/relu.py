"""ReLU over a large matrix: as many bytes as possible, almost no arithmetic."""

import torch
from torch import nn

BATCH = 4096
FEATURES = 16384


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return []
