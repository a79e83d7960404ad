"""Exchange between lanes: shfl, vote, activemask, bar.warp.sync."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from ptxkit import INDEX, Bench, pointer

LANES = np.arange(32)
VALUES = (1000 + 7 * LANES).astype(np.uint32)
LOAD = INDEX + "".join(pointer(n) for n in range(3)) + " ld.global.u32 %r10, [%rd0];"
STORE = " selp.u32 %r20, 1, 0, %p1; st.global.u32 [%rd1], %r11; st.global.u32 [%rd2], %r20; ret;"


def shuffled(mode: str, amount: int, width: int) -> tuple[list[int], list[int]]:
    """What CUDA promises for ``__shfl_*_sync`` with a width: lanes stay inside their segment, or keep their value."""
    lanes, inside = [], []
    for lane in range(32):
        start = lane // width * width
        wanted = {"up": lane - amount, "down": lane + amount, "bfly": lane ^ amount, "idx": start + amount % width}[
            mode
        ]
        # bfly may reach back into an earlier segment, never into a later one
        fine = wanted < start + width and (wanted >= start or mode == "bfly")
        lanes.append(wanted if fine else lane)
        inside.append(int(fine))
    return lanes, inside


def clamp(mode: str, width: int) -> int:
    return (32 - width) << 8 | (0 if mode == "up" else 31)


CASES = [(m, b, w) for m, b, w in itertools.product(("up", "down", "bfly", "idx"), (0, 1, 3, 16, 31), (32, 8, 2))]


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles_with_literal_lanes(bench: Bench, mode: str) -> None:
    for _, amount, width in (case for case in CASES if case[0] == mode):
        body = f"{LOAD} shfl.sync.{mode}.b32 %r11|%p1, %r10, {amount}, {clamp(mode, width)}, -1; {STORE}"
        _check_shuffle(bench.clean(body, VALUES, np.zeros_like(VALUES), np.zeros_like(VALUES)), mode, amount, width)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles_with_lanes_known_at_run_time(bench: Bench, mode: str) -> None:
    body = f"""{LOAD} ld.param.b32 %r12, [p3]; ld.param.b32 %r13, [p4]; mov.b32 %r14, 0xffffffff;
    shfl.sync.{mode}.b32 %r11|%p1, %r10, %r12, %r13, %r14; {STORE}"""
    for _, amount, width in (case for case in CASES if case[0] == mode):
        empty = np.zeros_like(VALUES)
        data = bench.clean(body, VALUES, empty, empty, np.uint32(amount), np.uint32(clamp(mode, width)))
        _check_shuffle(data, mode, amount, width)


def _check_shuffle(buffers: list[np.ndarray], mode: str, amount: int, width: int) -> None:
    lanes, inside = shuffled(mode, amount, width)
    assert buffers[1].tolist() == VALUES[lanes].tolist(), (mode, amount, width)
    assert buffers[2].tolist() == inside, (mode, amount, width)


def test_every_lane_may_ask_for_another_one(bench: Bench) -> None:
    wanted = np.random.default_rng(1).permutation(32).astype(np.uint32)
    body = f"{LOAD} ld.global.u32 %r12, [%rd1]; shfl.sync.idx.b32 %r11|%p1, %r10, %r12, 31, -1; {STORE}"
    assert bench.clean(body, VALUES, wanted, np.zeros_like(VALUES))[1].tolist() == VALUES[wanted].tolist()


def test_a_tree_of_shuffles_adds_up(bench: Bench) -> None:
    steps = "".join(f" shfl.sync.down.b32 %r12, %r11, {n}, 31, -1; add.u32 %r11, %r11, %r12;" for n in (16, 8, 4, 2, 1))
    body = f"{INDEX}{pointer(0)} ld.global.u32 %r11, [%rd0]; {steps} st.global.u32 [%rd0], %r11; ret;"
    assert bench.clean(body, VALUES)[0][0] == VALUES.sum()


def test_a_shuffle_in_divergent_code_keeps_the_other_lanes(bench: Bench) -> None:
    body = f"""{LOAD} mov.u32 %r11, 5; setp.ge.u32 %p2, %r0, 16; setp.eq.u32 %p1, %r0, %r0; @%p2 bra END;
    shfl.sync.bfly.b32 %r11, %r10, 8, 31, 0xffff; END: {STORE}"""
    out = bench.clean(body, VALUES, np.zeros_like(VALUES), np.zeros_like(VALUES))[1]
    assert out.tolist() == [int(VALUES[i ^ 8]) if i < 16 else 5 for i in range(32)]


VOTES = {
    "all": lambda bits, lanes: int(bits & lanes == lanes),
    "any": lambda bits, lanes: int(bits & lanes != 0),
    "uni": lambda bits, lanes: int(bits & lanes in (0, lanes)),
    "ballot": lambda bits, lanes: bits & lanes,
}


@pytest.mark.parametrize("mode", VOTES)
@pytest.mark.parametrize("threads", [32, 20])
def test_votes(bench: Bench, mode: str, threads: int) -> None:
    out = "vote.sync.ballot.b32 %r11, %p2, %r13;" if mode == "ballot" else f"vote.sync.{mode}.pred %p3, %p2, %r13;"
    keep = "" if mode == "ballot" else " selp.u32 %r11, 1, 0, %p3;"
    body = f"""{INDEX}{pointer(0)}{pointer(1)}{pointer(2)} ld.global.u32 %r10, [%rd0]; ld.global.u32 %r13, [%rd1];
    setp.ne.u32 %p2, %r10, 0; {out}{keep} st.global.u32 [%rd2], %r11; ret;"""
    here = (1 << threads) - 1
    halves = np.where(LANES < 16, 0xFFFF, 0xFFFF0000).astype(np.uint32)
    for members in (np.full(32, 0xFFFFFFFF, np.uint32), halves):  # halves of a warp may vote on their own
        for bits in (0, 0xFFFFFFFF, 1, 0x80000000, 0xFFFF, 0xF0F0F0F0, 0x000FFFFF):
            votes = (bits >> LANES & 1).astype(np.uint32)
            result = bench.clean(body, votes, members, np.zeros(32, np.uint32), threads=threads)[2]
            wanted = [VOTES[mode](bits, int(m) & here) for m in members[:threads]]
            assert result[:threads].tolist() == wanted, (hex(bits), members)


def test_active_lanes(bench: Bench) -> None:
    body = f"""{INDEX}{pointer(0)} activemask.b32 %r10; mov.u32 %r11, 0; setp.lt.u32 %p1, %r0, 5;
    @%p1 activemask.b32 %r11;
    @!%p1 bra A; activemask.b32 %r12; bra B; A: activemask.b32 %r12;
    B: bar.warp.sync 0xffffffff; activemask.b32 %r13; mul.lo.u32 %r0, %r0, 12; cvt.u64.u32 %rd5, %r0;
    add.u64 %rd0, %rd0, %rd5;
    st.global.v4.u32 [%rd0], {{%r10, %r11, %r12, %r13}}; ret;"""
    (out,) = bench.clean(body, np.zeros((20, 4), np.uint32), threads=20)
    full = (1 << 20) - 1
    assert out.tolist() == [[full, 31 if i < 5 else 0, 31 if i < 5 else full ^ 31, full] for i in range(20)]
