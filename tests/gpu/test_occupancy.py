"""Occupancy against values worked out by hand from CUDA's rules."""

from __future__ import annotations

import pytest

from cupilot.gpu import load_spec, occupancy
from cupilot.records import Resources

A100 = load_spec("a100-80gb")


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "warps", "limit"),
    [
        # 8 warps per block, 64 warps per SM; 32 registers: 1024 per warp, exactly 64 warps
        (256, 32, 0, 8, 64, "warps"),
        # 33 registers are allocated as 40: 1280 per warp, 12 warps in each quarter of 16384, 48 in all
        (256, 33, 0, 6, 48, "registers"),
        # 121 as 128: 4096 per warp, 4 per quarter
        (256, 121, 0, 2, 16, "registers"),
        # 168: 5376 per warp, 3 per quarter (not 12.19 over the whole file), 12 warps of blocks of 4
        (128, 168, 0, 3, 12, "registers"),
        # 255 as 256: 8192 per warp, 2 per quarter, one block of 8 warps
        (256, 255, 0, 1, 8, "registers"),
        # one warp per block: 32 blocks and no more
        (32, 16, 0, 32, 32, "blocks"),
        # 33 threads are two warps
        (33, 16, 0, 32, 64, "warps"),
        # 3 warps per block: 21 blocks of 64 warps
        (96, 16, 0, 21, 63, "warps"),
        # 1024 threads with 64 registers: 2048 per warp, 8 per quarter: one block
        (1024, 64, 0, 1, 32, "registers"),
        # 48 KB and 1 KB for the system: 3 times in 164 KB
        (128, 32, 48 * 1024, 3, 12, "shared"),
        # 163 KB is the most for one block
        (128, 32, 163 * 1024, 1, 4, "shared"),
        # 8 KB + 1 KB: 18 blocks
        (64, 32, 8 * 1024, 18, 36, "shared"),
        # one byte takes 128: 1152 with the reserve, 145 blocks; blocks bind
        (32, 16, 1, 32, 32, "blocks"),
    ],
)
def test_sm_80(*, threads, registers, shared, blocks, warps, limit):
    found = occupancy(A100, threads, Resources(registers), shared)
    assert (found.blocks_per_sm, found.warps_per_sm, found.limit) == (blocks, warps, limit)
    assert found.fraction == warps / 64


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "limit"),
    [
        (1025, 16, 0, "warps"),
        (1024, 72, 0, "registers"),
        (128, 256, 0, "registers"),
        (128, 16, 163 * 1024 + 1, "shared"),
    ],
)
def test_a_block_that_does_not_fit(threads, registers, shared, limit):
    found = occupancy(A100, threads, Resources(registers), shared)
    assert (found.blocks_per_sm, found.limit, found.fraction) == (0, limit, 0.0)


def test_static_and_dynamic_shared_memory_add_up():
    assert occupancy(A100, 128, Resources(32, static_shared_bytes=24 * 1024), 24 * 1024) == occupancy(
        A100, 128, Resources(32), 48 * 1024
    )


def test_ada_holds_fewer_warps():
    found = occupancy(load_spec("rtx-4090"), 256, Resources(32), 0)
    assert (found.blocks_per_sm, found.warps_per_sm, found.fraction) == (6, 48, 1.0)
