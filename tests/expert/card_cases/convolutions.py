"""Claims of the cards about convolutions."""

from __future__ import annotations

from card_case import CardCase

SOURCE = """
import torch

CHANNELS = 32
SIZE = {size}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.{layer}

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(2, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return []
"""


def convolution(layer: str, size: int) -> str:
    return SOURCE.format(layer=layer, size=size)


PADDED = convolution("Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)", 48)
STRIDED = convolution("ConvTranspose2d(CHANNELS, CHANNELS, 3, stride=2, padding=1, bias=False)", 32)

WINDOWS = convolution("Conv2d(CHANNELS, 64, 3, padding=1, bias=False)", 32)

TILE = "shared-tile(block_m=32, block_n=128, block_k=16)\nregister-block(thread_m=4, thread_n=8)"
CORES = "shared-tile(block_m=32, block_n=128, block_k=16)\ntensor-cores\nsplit-tf32\nwarp-tile(warp_m=16, warp_n=32)"

CASES = [
    # divisions and remainders for every value that is loaded
    CardCase("implicit-gemm-offsets", PADDED, TILE, f"{TILE}\nimplicit-gemm-offsets", "sass_int", at_most=0.6),
    # three of four taps of the plain kernel meet a hole
    CardCase("output-phases", STRIDED, "", f"{TILE}\noutput-phases", "lane_instructions", at_most=0.5),
    # every second float of a sector, twice
    CardCase(
        "staged-store", STRIDED, f"{CORES}\noutput-phases", f"{CORES}\noutput-phases\nstaged-store",
        "global_store_sectors", at_most=0.7,
    ),
    # 16 products instead of 36, and the transforms
    CardCase(
        "winograd", WINDOWS, f"{TILE}\nimplicit-gemm-offsets", "winograd(channels=64, patches=32)",
        "flop_fp32", at_most=0.55,
    ),
]  # fmt: skip
