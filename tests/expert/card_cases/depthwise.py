"""Claims of the cards about filters per channel."""

from __future__ import annotations

from card_case import CardCase
from window_tasks import window_source

SEPARABLE = window_source(
    "Sequential(torch.nn.Conv2d(32, 32, 3, padding=1, groups=32), torch.nn.Conv2d(32, 32, 1))", (2, 32, 32, 64)
)

CASES = [
    CardCase(
        "fused-stages", SEPARABLE, "", "fused-stages\nshared-tile(block_m=64, block_n=128, block_k=32)",
        "l2_write_sectors", at_most=0.6,
    ),
]  # fmt: skip
