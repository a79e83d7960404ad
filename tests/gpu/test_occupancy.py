"""Occupancy against values worked out by hand from CUDA's rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupilot.gpu import load_spec, occupancy, spec_names
from cupilot.gpu.occupancy import allocated_shared_bytes, l1_bytes, shared_carveout
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
        # 168: 5376 per warp, 3 per quarter, 12 warps of blocks of 4
        (128, 168, 0, 3, 12, "registers"),
        # 40: 1280 per warp, 12 per quarter: 16 blocks of 3 warps (the 51 of an undivided file would be 17)
        (96, 40, 0, 16, 48, "registers"),
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
        # 187 units of 128 with the reserve: 7 times in 164 KB (units of 256 would be 6 times)
        (64, 32, 187 * 128 - 1024, 7, 14, "shared"),
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


# one GPU for each other capability: threads, registers, shared bytes, blocks, warps, limit
OTHERS = [
    # 7.0: 64 warps, 32 blocks, 96 KB in units of 256 and nothing for the system.  48 KB: exactly two
    ("v100", 128, 32, 48 * 1024, 2, 8, "shared"),
    # one byte more: 49408, one block
    ("v100", 128, 32, 48 * 1024 + 1, 1, 4, "shared"),
    # all 96 KB in one block
    ("v100", 1024, 32, 96 * 1024, 1, 32, "shared"),
    # 1 byte takes 256: 384 blocks would fit, 32 may come
    ("v100", 64, 32, 1, 32, 64, "warps"),
    # 72 registers: 2304 per warp, 7 in a quarter of 16384, 28 warps: 3 blocks of 8
    ("v100", 256, 72, 0, 3, 24, "registers"),
    # 7.5: 32 warps and 16 blocks.  64 registers: 2048 per warp, 8 per quarter: all 32 warps
    ("t4", 256, 64, 0, 4, 32, "warps"),
    # one warp per block: 16 blocks, half of the warps
    ("t4", 32, 64, 0, 16, 16, "blocks"),
    # 65 registers count as 72: 28 warps, 3 blocks of 8
    ("t4", 256, 65, 0, 3, 24, "registers"),
    # 20 KB three times in 64 KB
    ("t4", 128, 32, 20 * 1024, 3, 12, "shared"),
    # 8.6: 48 warps and 16 blocks.  40 registers: 1280 per warp, 12 per quarter: all 48
    ("a6000", 128, 40, 0, 12, 48, "warps"),
    # two warps per block: 16 blocks come first
    ("a6000", 64, 40, 0, 16, 32, "blocks"),
    # 1024 threads: one block, 32 of 48 warps
    ("rtx-3090", 1024, 32, 0, 1, 32, "warps"),
    # 48 KB + 1 KB: twice in 100 KB
    ("a10", 256, 32, 48 * 1024, 2, 16, "shared"),
    # 99 KB is the most for one block
    ("a10", 256, 32, 99 * 1024, 1, 8, "shared"),
    # 8.9: as 8.6 with 24 blocks: two warps each fill the 48
    ("l40s", 64, 40, 0, 24, 48, "warps"),
    ("rtx-4090", 32, 40, 0, 24, 24, "blocks"),
    # 41 registers count as 48: 1536 per warp, 10 per quarter, 40 warps: 5 blocks of 8
    ("l4", 256, 41, 0, 5, 40, "registers"),
    # 9.0: 228 KB.  112 KB + 1 KB: twice
    ("h100-sxm", 128, 64, 112 * 1024, 2, 8, "shared"),
    # 113 KB + 1 KB: exactly twice; one byte more: once
    ("h100-pcie", 128, 64, 113 * 1024, 2, 8, "shared"),
    ("h200", 128, 64, 113 * 1024 + 1, 1, 4, "shared"),
    # 384 threads, 168 registers: 5376 per warp, 3 per quarter: one block of 12
    ("h100-sxm", 384, 168, 200 * 1024, 1, 12, "registers"),
    # 10.0: as 9.0; 227 KB is the most for one block
    ("b200", 256, 128, 227 * 1024, 1, 8, "shared"),
    # 128 registers: 4096 per warp, 4 per quarter: 16 warps
    ("b200", 128, 128, 16 * 1024, 4, 16, "registers"),
]


@pytest.mark.parametrize(("name", "threads", "registers", "shared", "blocks", "warps", "limit"), OTHERS)
def test_other_capabilities(*, name, threads, registers, shared, blocks, warps, limit):
    found = occupancy(load_spec(name), threads, Resources(registers), shared)
    assert (found.blocks_per_sm, found.warps_per_sm, found.limit) == (blocks, warps, limit)


def test_barriers_run_out_since_hopper():
    # 64 of them for an SM, 16 for each block
    found = occupancy(load_spec("h100-sxm"), 64, Resources(32, barriers=16), 0)
    assert (found.blocks_per_sm, found.limit) == (4, "barriers")
    for spec in (A100, load_spec("h100-sxm")):
        assert occupancy(spec, 64, Resources(32, barriers=1), 0) == occupancy(spec, 64, Resources(32), 0)
    assert occupancy(A100, 64, Resources(32, barriers=16), 0) == occupancy(A100, 64, Resources(32), 0)


@pytest.mark.parametrize(
    ("name", "shared", "blocks", "carveout", "l1"),
    [
        # the 1 KB of the system counts: 8 blocks without shared memory take 8 KB of an A100's 192
        ("a100-80gb", 0, 8, 8, 184),
        ("a100-80gb", 0, 9, 16, 176),
        # 3 x 33 KB is 99, 4 x 33 KB is 132
        ("a100-80gb", 32 * 1024, 3, 100, 92),
        ("a100-80gb", 32 * 1024, 4, 132, 60),
        ("a100-80gb", 163 * 1024, 1, 164, 28),
        # nothing resident, nothing carved out; on Turing 32 KB always are
        ("h100-sxm", 0, 0, 0, 256),
        ("t4", 0, 16, 32, 64),
        ("t4", 33 * 1024, 1, 64, 32),
        # no reserve before 8.0
        ("v100", 0, 32, 0, 128),
        ("v100", 8 * 1024, 1, 8, 120),
        ("v100", 8 * 1024 + 1, 1, 16, 112),
        ("l40s", 48 * 1024, 1, 64, 64),
        ("b200", 48 * 1024, 4, 196, 60),
    ],
)
def test_the_driver_carves_out_what_resident_blocks_need(name, shared, blocks, carveout, l1):
    spec = load_spec(name)
    found = shared_carveout(spec, shared, blocks)
    assert (found, l1_bytes(spec, found)) == (carveout * 1024, l1 * 1024)


fixed = settings(derandomize=True, deadline=None, database=None)
gpus = st.sampled_from([load_spec(name) for name in spec_names()])
kernels = st.builds(
    Resources,
    registers=st.integers(0, 255),
    static_shared_bytes=st.integers(0, 48 * 1024),
    barriers=st.integers(0, 16),
)


@fixed
@given(gpus, st.integers(1, 1024), kernels, st.integers(0, 180 * 1024), st.integers(0, 32 * 1024))
def test_more_of_anything_never_gives_more_blocks(spec, threads, kernel, dynamic, more):
    blocks = occupancy(spec, threads, kernel, dynamic).blocks_per_sm
    changed = [
        occupancy(spec, threads, replace(kernel, registers=min(255, kernel.registers + more % 64)), dynamic),
        occupancy(spec, threads, replace(kernel, barriers=kernel.barriers + more % 4), dynamic),
        occupancy(spec, threads, kernel, dynamic + more),
        occupancy(spec, min(1024, threads + more % 256), kernel, dynamic),
    ]
    assert max(other.blocks_per_sm for other in changed) <= blocks


@fixed
@given(gpus, st.integers(1, 1024), kernels, st.integers(0, 180 * 1024))
def test_resident_blocks_fit_in_every_limit(spec, threads, kernel, dynamic):
    found = occupancy(spec, threads, kernel, dynamic)
    blocks, shared = found.blocks_per_sm, kernel.static_shared_bytes + dynamic
    assert 0 <= blocks <= spec.blocks_per_sm
    assert found.warps_per_sm == blocks * -(-threads // 32) <= spec.warps_per_sm
    assert blocks * threads * kernel.registers <= spec.registers_per_sm
    assert blocks * shared <= shared_carveout(spec, shared, blocks) <= spec.shared_bytes_per_sm
    assert found.fraction == found.warps_per_sm / spec.warps_per_sm


@fixed
@given(gpus, st.integers(0, 100 * 1024), st.integers(0, 32))
def test_a_carveout_is_the_smallest_of_its_gpu(spec, shared, blocks):
    found = shared_carveout(spec, shared, blocks)
    assert found in spec.shared_carveouts
    smaller = [size for size in spec.shared_carveouts if size < found]
    assert all(size < blocks * allocated_shared_bytes(spec, shared) for size in smaller)
    assert 0 < l1_bytes(spec, found) <= spec.l1_bytes_per_sm
