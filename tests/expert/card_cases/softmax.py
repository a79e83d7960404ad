"""What the cards of softmax claim."""

from __future__ import annotations

from card_case import CardCase

SOFTMAX = """
import torch

ROWS = {rows}
COLUMNS = {columns}


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""
LONG = SOFTMAX.format(rows=48, columns=2048)
ROW = "block-per-row"
WIDE = SOFTMAX.format(rows=6, columns=65536)
SHUFFLED = ROW + "\nwarp-shuffle\nvector-load(bytes=16)"
SHORT = SOFTMAX.format(rows=512, columns=128)

CASES = [
    # lanes read neighbours instead of rows of their own
    CardCase("block-per-row", LONG, "", "block-per-row", "global_load_sectors", at_most=0.2),
    CardCase("warp-per-row", SHORT, ROW + "\nwarp-shuffle", "warp-per-row\nwarp-shuffle", "barriers", at_most=0.0),
    CardCase("warp-shuffle", LONG, ROW, ROW + "\nwarp-shuffle", "barriers", at_most=0.3),
    # two reads of the row instead of three
    CardCase("online-softmax", LONG, ROW, ROW + "\nonline-softmax", "global_load_bytes", at_most=0.7),
    # one instead of three
    CardCase("register-cache", LONG, ROW, ROW + "\nregister-cache", "global_load_bytes", at_most=0.35),
    CardCase("shared-cache", LONG, ROW, ROW + "\nshared-cache", "global_load_bytes", at_most=0.35),
    # the same for rows that one block cannot keep
    CardCase("row-team", WIDE, SHUFFLED, SHUFFLED + "\nrow-team(elements=16384)", "global_load_bytes", at_most=0.35),
    CardCase(
        "fast-math-exp", LONG, ROW, ROW + "\nfast-math-exp", "warp_instructions", at_most=0.9,
        precision="tf32",
    ),
]  # fmt: skip
