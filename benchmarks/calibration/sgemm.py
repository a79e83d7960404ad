"""C = 0.5 A B + 3 C in float32, the task of the SGEMM ladder."""

import torch
from torch import nn

M = 4096
N = 4096
K = 4096


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return 0.5 * (a @ b) + 3.0 * c


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N), torch.randn(M, N)]


def get_init_inputs():
    return []
