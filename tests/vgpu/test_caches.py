"""The modelled caches, by what reading something twice takes from the next level."""

from __future__ import annotations

import numpy as np
import pytest
from ptxkit import Bench, Ran

L1_WAYS, L2_WAYS, LINE, SECTOR, PASSES = 4, 8, 128, 32, 2


def read(
    bench: Bench, steps: int, stride: int, together: bool = False, grid: int = 1, sample_budget: int | None = None
) -> Ran:
    """A warp per block reads its part of a buffer twice: ``steps`` times 16 bytes per lane, or one word for all lanes.

    ``stride`` is the distance of the steps in bytes.
    """
    load = "ld.global.u32 %r20, [%rd1];" if together else "ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd1];"
    body = f"""mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; ld.param.u64 %rd0, [p0];
    mul.wide.u32 %rd2, %r1, {steps * stride}; add.s64 %rd0, %rd0, %rd2;
    mad.wide.u32 %rd0, %r0, {0 if together else 16}, %rd0; mov.u32 %r10, 0;
    P: mov.u64 %rd1, %rd0; mov.u32 %r11, 0;
    M: {load} add.s64 %rd1, %rd1, {stride}; add.u32 %r11, %r11, 1; setp.lt.u32 %p1, %r11, {steps}; @%p1 bra M;
    add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, {PASSES}; @%p2 bra P; ret;"""
    data = np.zeros(grid * steps * stride // 4, np.uint32)
    ran = bench.run(body, data, grid=grid, sample_budget=sample_budget, profile=True)
    assert ran.findings == ()
    return ran


def l1_lines(bench: Bench) -> int:
    """Lines that the L1 of one block alone on its SM has, in whole sets."""
    size = bench.machine._device_record().l1_bytes
    return size // LINE // L1_WAYS * L1_WAYS


@pytest.mark.parametrize("eighths", [1, 4, 7])
def test_what_fits_into_l1_is_read_once(bench: Bench, eighths: int) -> None:
    """Wherever it begins: at both ends a set may have a line more."""
    steps = l1_lines(bench) * eighths // 8 * LINE // 512
    ran = read(bench, steps, 512)
    assert ran["global_load_sectors"] == PASSES * steps * 16
    assert ran["l2_read_sectors"] == steps * 16


def test_what_is_as_large_as_l1_misses_a_part_at_most(bench: Bench) -> None:
    """Where it begins at the first set nothing; elsewhere up to half of the sets have a line too many."""
    steps = l1_lines(bench) * LINE // 512
    assert read(bench, steps, 512)["l2_read_sectors"] <= (1 + 0.5 * 5 / 4) * steps * 16


def test_somewhat_larger_than_l1_keeps_a_part(bench: Bench) -> None:
    """A tenth more: the sets that have a line too many lose all of theirs, the others nothing."""
    steps = l1_lines(bench) * 11 // 10 * LINE // 512
    assert 1.2 * steps * 16 < read(bench, steps, 512)["l2_read_sectors"] < 1.95 * steps * 16


def test_what_is_twice_as_large_is_read_twice(bench: Bench) -> None:
    steps = 2 * l1_lines(bench) * LINE // 512
    assert read(bench, steps, 512)["l2_read_sectors"] == PASSES * steps * 16


@pytest.mark.parametrize("stride", [256, 1024, 4096, 16384, 65536])
def test_powers_of_two_are_spread(bench: Bench, stride: int) -> None:
    """A quarter of the lines that L1 has, one word of each."""
    steps = l1_lines(bench) // 4
    found = read(bench, steps, stride, together=True)["l2_read_sectors"]
    assert steps <= found <= 1.05 * steps


@pytest.mark.parametrize("stride", [2048, 8192, 32768])
def test_sectors_of_a_line_are_brought_in_one_by_one(bench: Bench, stride: int) -> None:
    ran = read(bench, 100, stride, together=True)
    assert ran["l2_read_sectors"] == 100
    assert ran["l1_hit_sectors"] == (PASSES - 1) * 100


def test_blocks_beside_each_other_share_l1(bench: Bench) -> None:
    """Two blocks for each SM: what fits into half of L1 is read once, what needs more than all of it twice."""
    grid = 2 * bench.machine.spec.sms
    steps = l1_lines(bench) * 3 // 8 * LINE // 512
    assert read(bench, steps, 512, grid=grid, sample_budget=1)["l2_read_sectors"] == grid * steps * 16
    steps = l1_lines(bench) * LINE // 512
    assert read(bench, steps, 512, grid=grid, sample_budget=1)["l2_read_sectors"] == grid * PASSES * steps * 16


@pytest.mark.parametrize(("eighths", "passes"), [(7, 1), (16, 2)])
def test_a_blocks_share_of_l2(bench: Bench, eighths: int, passes: int) -> None:
    """Each of 64 blocks has a 64th of L2, and the buffer is larger than what stays there from wave to wave."""
    share = bench.machine.spec.l2_bytes // 64 // LINE // L2_WAYS * L2_WAYS * LINE
    steps = share * eighths // 8 // 512
    ran = read(bench, steps, 512, grid=64, sample_budget=1)
    total = 64 * steps * 512
    assert ran["l2_read_sectors"] == PASSES * total / SECTOR
    assert ran["dram_read_bytes"] == passes * total
