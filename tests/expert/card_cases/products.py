"""Claims of the cards about matrix products."""

from __future__ import annotations

from card_case import CardCase, registers, time_s, waiting_s

SOURCE = """
import torch

M = {m}
K = {k}
N = {n}


class Model(torch.nn.Module):
    def forward(self, a, b):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def product(m: int, k: int, n: int, result: str = "a @ b", inputs: str = "torch.rand(M, K), torch.rand(K, N)") -> str:
    return SOURCE.format(m=m, k=k, n=n, result=result, inputs=inputs)


SQUARE = product(256, 256, 256)
SMALL = product(128, 128, 128)
TALL = product(64, 8192, 64)
FLAT = product(2048, 16, 2048)
TRIANGULAR = product(512, 512, 512, "torch.triu(a @ b)", "torch.rand(M, M).triu(), torch.rand(M, M).triu()")

TILE = "coalesce\nshared-tile(block_m=64, block_n=64, block_k=16)"
BLOCKED = f"{TILE}\nregister-block(thread_m=4, thread_n=4)"
VECTORS = """coalesce
shared-tile(block_m=128, block_n=64, block_k=8)
register-block(thread_m=8, thread_n=8)
vector-load(bytes=16)"""
LARGE = """coalesce
shared-tile(block_m=128, block_n=128, block_k=8)
register-block(thread_m=8, thread_n=8)
transposed-a-tile"""
TILE_OF_32 = "coalesce\nshared-tile(block_m=64, block_n=64, block_k=32)"
WIDE = f"{TILE_OF_32}\ntensor-cores\nsplit-tf32"
PIPED = f"{WIDE}\nasync-copy-pipeline(stages=3)"

CASES = [
    CardCase("coalesce", SQUARE, "", "coalesce", "global_load_sectors", at_most=0.5),
    CardCase(
        "shared-tile", SQUARE, "coalesce", "coalesce\nshared-tile(block_m=32, block_n=32, block_k=32)",
        "global_load_sectors", at_most=0.2,
    ),
    CardCase(
        "register-block", SQUARE, "coalesce\nshared-tile(block_m=32, block_n=32, block_k=32)", BLOCKED,
        "shared_load_wavefronts", at_most=0.6,
    ),
    CardCase(
        "transposed-a-tile", SQUARE, VECTORS, f"{VECTORS}\ntransposed-a-tile", "shared_load_wavefronts", at_most=0.8
    ),
    CardCase(
        "shared-padding", SQUARE, f"{BLOCKED}\ntransposed-a-tile",
        f"{BLOCKED}\ntransposed-a-tile\nshared-padding(floats=1)", "shared_store_conflicts", at_most=0.6,
    ),
    CardCase("double-buffer", SQUARE, BLOCKED, f"{BLOCKED}\ndouble-buffer(buffers=2)", "barriers", at_most=0.6),
    CardCase(
        "launch-bounds", SQUARE, LARGE, f"{LARGE}\nlaunch-bounds(blocks=2)", registers, at_most=0.95,
    ),
    # the cache model gives each block its own share of L2, so what neighbours gain does not show; it is free
    CardCase("block-swizzle", SQUARE, BLOCKED, f"{BLOCKED}\nblock-swizzle(rows=2)", time_s, at_most=1.02),
    CardCase(
        "tensor-cores", SMALL, BLOCKED, f"{TILE}\ntensor-cores", "sass_instructions", at_most=0.5, precision="tf32"
    ),
    CardCase(
        "half-tiles", SQUARE, f"{TILE_OF_32}\ntensor-cores", f"{TILE_OF_32}\ntensor-cores\nhalf-tiles",
        "shared_load_wavefronts", at_most=0.5, precision="fp16",
    ),
    CardCase("split-tf32", SQUARE, BLOCKED, WIDE, "flop_fp32", at_most=0.3),
    CardCase("async-copy-pipeline", SQUARE, WIDE, PIPED, "barriers", at_most=0.6),
    CardCase("xor-swizzle", SQUARE, PIPED, f"{PIPED}\nxor-swizzle", "shared_load_conflicts", at_most=0.05),
    CardCase("ldmatrix", SQUARE, PIPED, f"{PIPED}\nldmatrix", "shared_load_requests", at_most=0.8),
    CardCase(
        "warp-tile", SQUARE, PIPED, f"{PIPED}\nwarp-tile(warp_m=64, warp_n=32)", "shared_load_wavefronts", at_most=0.85
    ),
    CardCase("persistent-blocks", FLAT, BLOCKED, f"{BLOCKED}\npersistent-blocks", waiting_s, at_most=0.8),
    CardCase(
        "stream-k", TALL, f"{PIPED}\npersistent-blocks", f"{PIPED}\npersistent-blocks\nstream-k", time_s, at_most=0.4
    ),
    CardCase(
        "warp-specialisation", SQUARE, f"{BLOCKED}\ndouble-buffer(buffers=2)",
        f"{BLOCKED}\ndouble-buffer(buffers=2)\nwarp-specialisation(warps=4)", "round_trips", at_most=0.6,
    ),
    CardCase("split-k", TALL, PIPED, f"{PIPED}\nsplit-k(splits=32)", time_s, at_most=0.5),
    CardCase("triangular-skip", TRIANGULAR, PIPED, f"{PIPED}\ntriangular-skip", "flop_tensor_tf32", at_most=0.45),
]  # fmt: skip
