"""What attention's cards claim."""

from __future__ import annotations

from card_case import CardCase

from cupilot.records import Evaluation

ATTENTION = """
import torch

HEADS = 4
QUERIES = {queries}
KEYS = {keys}
DIMENSION = {dim}


class Model(torch.nn.Module):
    def forward(self, queries, keys, values):
        return torch.nn.functional.scaled_dot_product_attention(queries, keys, values)


def get_inputs():
    lengths = (QUERIES, KEYS, KEYS)
    return [torch.randn(1, HEADS, length, DIMENSION, dtype=torch.float16) for length in lengths]


def get_init_inputs():
    return []
"""
SHORT = ATTENTION.format(queries=256, keys=256, dim=256)
LONG = ATTENTION.format(queries=256, keys=1024, dim=64)
FEED = "ldmatrix\nxor-swizzle\nasync-copy-pipeline(stages=2)\ntensor-cores\n"
FLASH = FEED + "flash-attention(keys=64, rows=16)\n"
SCORES = FEED + "score-tile\n"


def shared_bytes(evaluation: Evaluation) -> float:
    assert evaluation.profile is not None
    return float(max(launch.dynamic_shared_bytes for launch in evaluation.profile.launches))


CASES = [
    # keys and values are read once per tile of queries, not once per query
    CardCase(
        card="query-tile",
        task=LONG,
        without="",
        with_card=FLASH + "query-tile(queries=64)",
        measure="l2_read_sectors",
        at_most=0.1,
    ),
    # a warp's walk along one query becomes products of tiles
    CardCase(
        card="flash-attention",
        task=LONG,
        without="",
        with_card=FLASH + "query-tile(queries=64)",
        measure="warp_instructions",
        at_most=0.05,
    ),
    CardCase(
        card="score-tile",
        task=SHORT,
        without=FLASH.replace("keys=64", "keys=32") + "query-tile(queries=64)",
        with_card=SCORES + "head-chunks(inner=32, columns=256)\nquery-tile(queries=64)",
        measure="shared_load_wavefronts",
        at_most=0.7,
    ),
    # a chunk of a long head is in shared memory at a time, not all of it
    CardCase(
        card="head-chunks",
        task=SHORT,
        without=FLASH.replace("keys=64", "keys=32") + "query-tile(queries=128)",
        with_card=SCORES + "head-chunks(inner=32, columns=128)\nquery-tile(queries=128)",
        measure=shared_bytes,
        at_most=0.75,
    ),
]
