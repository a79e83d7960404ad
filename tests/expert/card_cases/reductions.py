"""Claims about reductions over an axis and products of a matrix and a vector."""

from __future__ import annotations

from card_case import CardCase, time_s

SUM = """
import torch

FEW, LENGTH, COLUMNS = 2, 4096, 64

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=1)

def get_inputs():
    return [torch.rand(FEW, LENGTH, COLUMNS)]

def get_init_inputs():
    return []
"""

MATVEC = """
import torch

ROWS, LENGTH = 64, 4096

class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)

def get_inputs():
    return [torch.rand(ROWS, LENGTH), torch.rand(LENGTH, 1)]

def get_init_inputs():
    return []
"""

ROWS = "block-per-row\nwarp-shuffle\n"

CASES = [
    CardCase("split-length", SUM, "unroll(factor=4)", "split-length(parts=8)\nunroll(factor=4)", time_s, at_most=0.6),
    # the vector is read once for four rows: five accesses instead of eight
    CardCase("several-rows", MATVEC, ROWS, ROWS + "several-rows(rows=4)", "global_load_requests", at_most=0.65),
]
