"""Which blocks a sample has, and what they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from ptxkit import INDEX, Bench

from cupilot.records import Launch

# each block leaves its mark
MARK = f"""{INDEX} mov.u32 %r10, %ctaid.x; mov.u32 %r11, %ctaid.y; mov.u32 %r12, %ctaid.z; mov.u32 %r13, %nctaid.x;
 mov.u32 %r14, %nctaid.y; mad.lo.u32 %r15, %r12, %r14, %r11; mad.lo.u32 %r15, %r15, %r13, %r10; ld.param.u64 %rd0, [p0];
 mad.wide.u32 %rd1, %r15, 4, %rd0; mov.u32 %r16, 1; st.global.u32 [%rd1], %r16; ret;"""
# the loop of a block goes round as often as its number says in p1
LOOP = f"""{INDEX} ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r1, 4, %rd0; ld.global.u32 %r10, [%rd1];
 L: setp.gt.u32 %p1, %r10, 0; sub.u32 %r10, %r10, 1; @%p1 bra L; ret;"""


def sampled(bench: Bench, grid: tuple[int, int, int], seed: int, budget: int = 1000) -> set[int]:
    """The numbers of the blocks that ran."""
    begin = bench.machine.begin
    bench.machine.begin = lambda *given: begin(*given, sample_seed=seed)  # type: ignore[method-assign]
    try:
        (marks,) = bench.clean(MARK, np.zeros(int(np.prod(grid)), np.uint32), grid=grid, sample_budget=budget)
    finally:
        del bench.machine.begin  # type: ignore[method-assign]
    return set(np.flatnonzero(marks).tolist())


def looped(bench: Bench, rounds: np.ndarray, budget: int | None) -> Launch:
    launch = bench.run(LOOP, rounds.astype(np.uint32), grid=rounds.size, sample_budget=budget, profile=True).launch
    assert launch is not None
    return launch


def test_a_seed_gives_the_same_blocks_and_another_seed_others(bench: Bench) -> None:
    one, again, other = (sampled(bench, (100_000, 1, 1), seed) for seed in (1, 1, 2))
    assert one == again
    assert len(one & other) < len(one) / 4


def test_blocks_are_not_where_a_formula_of_the_grid_puts_them(bench: Bench) -> None:
    """The golden ratio's multiples were the sample once."""
    golden = {int((0.5 + 0.6180339887498949 * i) % 1.0 * 100_000) for i in range(256)}
    assert len(sampled(bench, (100_000, 1, 1), 3, budget=100_000) & golden) < 16


@pytest.mark.parametrize("grid", [(5000, 1, 1), (70, 50, 1), (20, 15, 12), (2, 3000, 1), (1, 1, 4000), (1, 1, 1)])
def test_all_corners_and_edges_are_there(bench: Bench, grid: tuple[int, int, int]) -> None:
    def place(block: int) -> tuple[str, ...]:
        at = block % grid[0], block // grid[0] % grid[1], block // grid[0] // grid[1]
        ends = zip(at, grid, strict=True)
        return tuple("first" if i == 0 else "last" if i == n - 1 else "between" for i, n in ends)

    there = {place(block) for block in sampled(bench, grid, 7, budget=20_000)}
    assert there == {place(block) for block in range(int(np.prod(grid)))}


@pytest.mark.parametrize("axis", [0, 1])
def test_every_part_of_every_axis_is_covered(bench: Bench, axis: int) -> None:
    blocks = sampled(bench, (64, 64, 1), 11, budget=100_000)
    at = [block % 64 if axis == 0 else block // 64 for block in blocks]
    assert 64 <= len(at) <= 256
    assert np.histogram(at, 16, (0, 64))[0].min() >= len(at) // 32


def test_a_small_grid_runs_whole(bench: Bench) -> None:
    assert sampled(bench, (7, 9, 3), 5, budget=1 << 30) == set(range(7 * 9 * 3))


def test_blocks_at_the_edges_count_for_themselves_only(bench: Bench) -> None:
    """The first and the last block do a thousand times as much as the others, and leave the budget to them."""
    rounds = np.full(20_000, 10)
    rounds[[0, -1]] = 10_000
    whole, part = looped(bench, rounds, None), looped(bench, rounds, 200_000)
    assert 100 < part.blocks_run < 300
    for name in ("warp_instructions", "lane_instructions", "global_load_bytes"):
        assert part.counter(name) == pytest.approx(whole.counter(name), rel=1e-3)
    assert part.counter("heaviest_block") == whole.counter("heaviest_block")


def test_a_sample_grows_where_blocks_differ(bench: Bench) -> None:
    even, uneven = np.full(50_000, 50), np.random.default_rng(0).integers(0, 2, 50_000) * 100
    few, many, whole = looped(bench, even, 200_000), looped(bench, uneven, 200_000), looped(bench, uneven, None)
    assert many.blocks_run > 3 * few.blocks_run
    assert many.counter("block_spread") == pytest.approx(1.0, rel=0.2)
    assert few.counter("sample_error") < 1e-6 < many.counter("sample_error") < 0.05
    off = many.counter("warp_instructions") / whole.counter("warp_instructions") - 1
    assert abs(off) < 4 * many.counter("sample_error")


def test_blocks_that_few_know_of_are_missed_as_often_as_chance_says(bench: Bench) -> None:
    """One block in a hundred has the work: of forty samples of 256 about three (7.6 %) miss it."""
    rounds = np.zeros(10_000)
    rounds[np.random.default_rng(1).permutation(10_000)[:100]] = 1
    heavy = set(np.flatnonzero(rounds).tolist())
    missed = sum(not heavy & sampled(bench, (10_000, 1, 1), seed, budget=1 << 20) for seed in range(40))
    assert missed <= 9
