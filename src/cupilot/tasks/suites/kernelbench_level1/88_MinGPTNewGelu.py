"""GELU by its tanh formula, written out operator by operator."""

import math

import torch

ROWS = 8192
COLUMNS = 8192


class Model(torch.nn.Module):
    def forward(self, x):
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
