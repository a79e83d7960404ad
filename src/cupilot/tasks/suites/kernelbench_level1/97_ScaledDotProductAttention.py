"""Scaled dot-product attention of half-precision queries, keys and values, with a long head dimension."""

import torch

BATCH = 32
HEADS = 32
SEQUENCE = 512
DIMENSION = 1024


class Model(torch.nn.Module):
    def forward(self, queries, keys, values):
        return torch.nn.functional.scaled_dot_product_attention(queries, keys, values)


def get_inputs():
    shape = (BATCH, HEADS, SEQUENCE, DIMENSION)
    return [torch.rand(shape, dtype=torch.float16) for _ in range(3)]


def get_init_inputs():
    return []
