"""Claims about running sums."""

from __future__ import annotations

from card_case import CardCase, time_s

CUMSUM = """
import torch

ROWS, COLUMNS = 64, 2048

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1)

def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]

def get_init_inputs():
    return []
"""

LONG = CUMSUM.replace("64, 2048", "1, 131072")
SHARED = "block-per-row\nwarp-scan\nvector-load(bytes=16)\n"

CASES = [
    CardCase("decoupled-look-back", LONG, SHARED, SHARED + "decoupled-look-back", time_s, at_most=0.4),
    CardCase("warp-scan", CUMSUM, "", "warp-scan", "global_load_sectors", at_most=0.2),
    CardCase(
        "blocked-arrangement",
        CUMSUM,
        "warp-scan",
        "warp-scan\nblocked-arrangement(items=8)",
        "opcodes_warp",
        at_most=0.2,
    ),
]
