"""The slowest warp of a block, blocks of unequal work, and blocks that wait for each other."""

from __future__ import annotations

import numpy as np
import pytest
from ptxkit import INDEX, Bench

from cupilot.gpu import load_spec
from cupilot.records import Launch
from cupilot.vgpu.uneven import BlockCosts, busiest_blocks, chain, handover_cycles, kept_waves

# warp number p0 (by its place in the block) goes round a loop
BUSY = f"""{INDEX} ld.param.u32 %r10, [p0]; mov.u32 %r11, %tid.x; shr.u32 %r11, %r11, 5; setp.ne.u32 %p1, %r10, %r11;
 @%p1 bra end; mov.u32 %r12, 1000; L: sub.u32 %r12, %r12, 1; setp.gt.u32 %p2, %r12, 0; @%p2 bra L; end: ret;"""
# each block waits for the flag of the one before it, works, and sets its own
TURNS = f"""{INDEX} ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r1, 4, %rd0; setp.eq.u32 %p0, %r1, 0; @%p0 bra go;
wait: ld.volatile.global.u32 %r4, [%rd1+-4]; setp.eq.u32 %p1, %r4, 0; @%p1 bra wait;
go: mov.u32 %r12, WORK; L: sub.u32 %r12, %r12, 1; setp.gt.u32 %p2, %r12, 0; @%p2 bra L;
 membar.gl; mov.u32 %r13, 1; st.STORE.global.u32 [%rd1], %r13; ret;"""
# the same with one lock for all
LOCK = f"""{INDEX} ld.param.u64 %rd0, [p0];
wait: atom.global.cas.b32 %r4, [%rd0], 0, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra wait;
 mov.u32 %r12, 100; L: sub.u32 %r12, %r12, 1; setp.gt.u32 %p2, %r12, 0; @%p2 bra L;
 membar.gl; atom.global.exch.b32 %r5, [%rd0], 0; ret;"""
# each block puts down its own sum, looks at the one before, and puts down the whole
LOOK_BACK = f"""{INDEX} ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r1, 4, %rd0; mov.u32 %r13, 1; membar.gl;
 st.volatile.global.u32 [%rd1], %r13; setp.eq.u32 %p0, %r1, 0; @%p0 bra go;
wait: ld.volatile.global.u32 %r4, [%rd1+-4]; setp.eq.u32 %p1, %r4, 0; @%p1 bra wait;
go: membar.gl; mov.u32 %r13, 2; st.volatile.global.u32 [%rd1], %r13; ret;"""
# the last block to come looks at what all have put down
LAST = f"""{INDEX} ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r1, 4, %rd0; mov.u32 %r13, 1;
 st.volatile.global.u32 [%rd1+4], %r13; membar.gl; atom.global.add.u32 %r4, [%rd0], 1; mov.u32 %r5, %nctaid.x;
 add.u32 %r4, %r4, 1; setp.ne.u32 %p0, %r4, %r5; @%p0 bra end;
L: ld.volatile.global.u32 %r6, [%rd0+4]; add.u64 %rd0, %rd0, 4; sub.u32 %r5, %r5, 1; setp.gt.u32 %p1, %r5, 0;
 @%p1 bra L; end: ret;"""
ADD = f"{INDEX} ld.param.u64 %rd0, [p0]; atom.global.add.u32 %r4, [%rd0], 1; ret;"


def launched(bench: Bench, body: str, *arguments: object, **options: object) -> Launch:
    ran = bench.run(body, *arguments, profile=True, **options)  # type: ignore[arg-type]
    assert ran.findings == ()
    assert ran.launch is not None
    return ran.launch


@pytest.mark.parametrize("warp", [0, 5, 31])
def test_the_slowest_warp_of_a_block_is_known(bench: Bench, warp: int) -> None:
    launch = launched(bench, BUSY, np.uint32(warp), threads=1024, grid=3)
    all_of, slowest = launch.counter("warp_instructions"), launch.counter("critical_instructions")
    assert slowest > 3 * 3000
    assert slowest < all_of < slowest + 3 * 31 * 20


def test_equal_warps_are_all_as_slow(bench: Bench) -> None:
    launch = launched(bench, ADD, np.zeros(1, np.uint32), threads=256, grid=10)
    assert launch.counter("critical_instructions") == launch.counter("warp_instructions") / 8


# --- blocks one after another --------------------------------------------------------------------


def costs(values: list[float], stands_for: float = 1.0) -> BlockCosts:
    number = len(values)
    each, block = np.array(values, float), np.arange(number) * stands_for
    pair = (each, each)
    return BlockCosts(block, np.ones(number), np.full(number, stands_for), pair, pair, pair, pair, each)


def busiest(values: list[float], sms: int, resident: int) -> float:
    found = costs(values)
    return busiest_blocks(found, found.work, len(values), sms, resident)


@pytest.mark.parametrize(
    ("values", "waves"),
    [
        ([7.0] * 8, 2.0),
        ([7.0] * 9, 3.0),
        ([1.0] * 4 + [0.0] * 60, 16.0),  # four at once: never less than the waves that equal blocks would be
        ([64.0] + [0.0] * 63, 64.0),  # one works
        ([0.0] * 63 + [64.0], 64.0),
        ([1.0] * 4 + [5.0], (1 + 5) / (9 / 5)),  # the last one starts when the first four are done
        ([5.0] + [1.0] * 4, 5 / (9 / 5)),  # the first one hides the others
    ],
)
def test_the_machine_is_kept_until_the_last_block_ends(values: list[float], waves: float) -> None:
    assert kept_waves(costs(values), len(values), 4) == pytest.approx(waves)


def test_samples_tell_the_same_as_all_blocks() -> None:
    rising = [float(i) for i in range(1, 1001)]
    whole, part = kept_waves(costs(rising), 1000, 40), kept_waves(costs(rising[4::10], 10.0), 1000, 40)
    assert part == pytest.approx(whole, rel=0.03)
    assert whole > 25


def test_the_busiest_sm_has_the_heaviest_block_beside_others() -> None:
    """Two SMs with two blocks each at a time."""
    assert busiest([3.0] * 8, 2, 2) == 4
    # four of the cheap blocks came before, half of them on the same SM; one more is beside it
    assert busiest([1.0] * 7 + [9.0], 2, 2) == pytest.approx(4 * 0.5 / 2 + 0.5 + 4.5)
    assert busiest([1.0] * 3 + [5.0], 2, 2) == pytest.approx(0.5 + 2.5)
    assert busiest([0.0] * 99 + [7.0], 2, 2) == pytest.approx(100)


# --- blocks that wait for each other ---------------------------------------------------------------


@pytest.mark.parametrize("store", ["volatile", "relaxed.gpu", "weak"])
def test_a_chain_of_turns_is_as_long_as_all_of_them(bench: Bench, store: str) -> None:
    """Whether the flag is set by a volatile store or a plain one, which a first look makes worth a look."""
    handover = handover_cycles(load_spec("a100-80gb"))
    lengths = []
    for work in (1, 1001):
        body = TURNS.replace("WORK", str(work)).replace("STORE", store)
        launch = launched(bench, body, np.zeros(200, np.uint32), grid=200)
        assert 197 <= launch.counter("chain_hops") <= 199
        lengths.append(launch.counter("chain_cycles"))
    assert lengths[0] > 197 * handover
    # two cycles for each of three instructions
    assert lengths[1] - lengths[0] == pytest.approx(199 * 1000 * 6, rel=0.02)


def test_a_sample_of_a_chain_runs_whole(bench: Bench) -> None:
    body = TURNS.replace("WORK", "1").replace("STORE", "volatile")
    whole, part = (
        launched(bench, body, np.zeros(300, np.uint32), grid=300, sample_budget=budget) for budget in (None, 1000)
    )
    assert part.blocks_run == 300
    assert part.counter("chain_cycles") == pytest.approx(whole.counter("chain_cycles"), rel=0.1)


def test_a_lock_is_taken_by_one_block_after_the_other(bench: Bench) -> None:
    whole = launched(bench, LOCK, np.zeros(1, np.uint32), threads=1, grid=2000)
    part = launched(bench, LOCK, np.zeros(1, np.uint32), threads=1, grid=2000, sample_budget=2000)
    assert whole.counter("chain_hops") == 1999
    assert part.blocks_run < 200
    assert part.counter("chain_cycles") == pytest.approx(whole.counter("chain_cycles"), rel=0.1)


def test_a_look_back_is_not_a_chain(bench: Bench) -> None:
    launch = launched(bench, LOOK_BACK, np.zeros(500, np.uint32), grid=500)
    assert launch.counter("chain_hops") <= 2
    assert launch.counter("chain_cycles") < 5000


def test_the_last_block_waits_once_for_all(bench: Bench) -> None:
    launch = launched(bench, LAST, np.zeros(301, np.uint32), threads=1, grid=300)
    assert 1 <= launch.counter("chain_hops") <= 2


def test_adding_to_a_counter_is_no_wait(bench: Bench) -> None:
    assert launched(bench, ADD, np.zeros(1, np.uint32), grid=300).counter("chain_hops") == 0


def test_short_chains_do_not_grow_with_the_grid() -> None:
    assert chain(1000.0, 2, 10_000, 100) == {"chain_cycles": 1000.0, "chain_hops": 2.0}
    assert chain(1000.0, 90, 10_000, 100) == {"chain_cycles": 100_000.0, "chain_hops": 9000.0}
    assert chain(1000.0, 0, 10_000, 100) == {}


# the same, but whoever waits wants the second value
SECOND = LOOK_BACK.replace("setp.eq.u32 %p1, %r4, 0;", "setp.ne.u32 %p1, %r4, 2;")


def test_who_waits_for_the_second_value_waits_in_a_chain(bench: Bench) -> None:
    launch = launched(bench, SECOND, np.zeros(500, np.uint32), grid=500)
    assert launch.counter("chain_hops") > 490
    assert launch.counter("chain_cycles") > 490 * handover_cycles(load_spec("a100-80gb"))
