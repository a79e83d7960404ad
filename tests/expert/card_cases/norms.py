"""What the cards of norms claim."""

from __future__ import annotations

from card_case import CardCase

LAYER_NORM = """
import torch

ROWS = 40
COLUMNS = 2048


class Model(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.ln = torch.nn.LayerNorm(columns)

    def forward(self, x):
        return self.ln(x)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS]
"""
FROBENIUS = """
import torch

ROWS = 256
COLUMNS = 1024


class Model(torch.nn.Module):
    def forward(self, x):
        return x / torch.norm(x)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""
COLUMNS = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(torch.mean(x * x, dim=1, keepdim=True) + 1e-5)


def get_inputs():
    return [torch.rand(8, 64, 256)]


def get_init_inputs():
    return []
"""

CASES = [
    # mean and variance from one read of the row; the result takes another
    CardCase("welford", LAYER_NORM, "block-per-row", "block-per-row\nwelford", "global_load_bytes", at_most=0.85),
    # a reduction per 16384 elements instead of one per 4096
    CardCase("row-chunks", FROBENIUS, "", "row-chunks(elements=16384)", "barriers", at_most=0.4),
    # the loads of four steps go out before their stores
    CardCase(
        "read-only-path", COLUMNS, "unroll(factor=4)", "unroll(factor=4)\nread-only-path", "round_trips", at_most=0.8
    ),
]
