"""Exchange between lanes: shfl, vote, match, redux, elect, activemask, bar.warp.sync."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest
from forms import ENGINE, decode, encode
from hypothesis import given
from hypothesis import strategies as st
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


FULL = 0xFFFFFFFF


def from_present(lanes: list[int], present: int) -> list[int]:
    """What a shuffle reads: of a lane that is not present, zero."""
    return [int(VALUES[other]) if present >> other & 1 else 0 for other in lanes]


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("known", [True, False])
def test_shuffles_from_absent_lanes_read_zero(bench: Bench, mode: str, known: bool) -> None:
    """Lanes that the block does not have, and lanes outside the member mask."""
    load = "" if known else " ld.param.b32 %r12, [p3];"
    for amount, width, threads, members in itertools.product((1, 5, 16), (32, 4), (32, 20), (FULL, 0x0F0FFFF1)):
        lane = str(amount) if known else "%r12"
        body = f"""{LOAD}{load} mov.b32 %r13, {clamp(mode, width)}; mov.b32 %r14, {members};
        shfl.sync.{mode}.b32 %r11|%p1, %r10, {lane}, %r13, %r14; {STORE}"""
        empty = np.zeros_like(VALUES)
        data = bench.clean(body, VALUES, empty, empty, np.uint32(amount), threads=threads)
        lanes, inside = shuffled(mode, amount, width)
        wanted = from_present(lanes, members & (1 << threads) - 1)
        assert data[1][:threads].tolist() == wanted[:threads], (amount, width, threads, members)
        assert data[2][:threads].tolist() == inside[:threads]


def test_a_guarded_shuffle_sees_only_the_lanes_of_its_guard(bench: Bench) -> None:
    body = f"""{LOAD} mov.u32 %r11, 5; setp.eq.u32 %p1, %r0, %r0; and.b32 %r5, %r0, 3; setp.ne.u32 %p2, %r5, 3;
    @%p2 shfl.sync.down.b32 %r11, %r10, 1, 31, -1; {STORE}"""
    out = bench.clean(body, VALUES, np.zeros_like(VALUES), np.zeros_like(VALUES))[1]
    wanted = [5 if i % 4 == 3 else 0 if i % 4 == 2 else VALUES[i + 1] for i in range(32)]
    assert out.tolist() == [int(v) for v in wanted]


def test_lanes_with_member_masks_of_their_own_shuffle_apart(bench: Bench) -> None:
    members = np.where(LANES % 2, 0xAAAAAAAA, 0x55555555).astype(np.uint32)
    body = f"{LOAD} ld.global.u32 %r12, [%rd1]; shfl.sync.down.b32 %r11|%p1, %r10, %r0, 31, %r12; {STORE}"
    out = bench.clean(body, VALUES, members, np.zeros_like(VALUES))[1]
    # lane i reads lane 2i, which is odd for none: the odd lanes find nobody of their group, or themselves out of range
    assert out.tolist() == [int(VALUES[2 * i if 2 * i < 32 else i]) * (i % 2 == 0 or i >= 16) for i in range(32)]


def test_the_forms_without_sync(bench: Bench) -> None:
    body = f"""{LOAD} shfl.bfly.b32 %r11|%p1, %r10, 1, 31; setp.lt.u32 %p2, %r0, 3; vote.ballot.b32 %r12, %p2;
    vote.any.pred %p3, !%p2; selp.u32 %r13, 1, 0, %p3; add.u32 %r11, %r11, %r12; add.u32 %r11, %r11, %r13; {STORE}"""
    out = bench.clean(body, VALUES, np.zeros_like(VALUES), np.zeros_like(VALUES))[1]
    assert out.tolist() == (VALUES[LANES ^ 1] + 8).tolist()


def test_a_constant_in_a_register_of_an_outer_block(bench: Bench) -> None:
    """The usual reduction as nvcc writes it: lane numbers and masks in registers, set before a loop."""
    body = f"""{LOAD} mov.b32 %r20, -1; mov.b32 %r21, 31; mov.b32 %r22, 1; mov.u32 %r23, 0; mov.u32 %r11, %r10;
    L: shfl.sync.bfly.b32 %r12|%p1, %r11, %r22, %r21, %r20; add.u32 %r11, %r11, %r12; add.u32 %r23, %r23, 1;
    setp.lt.u32 %p2, %r23, 3; @%p2 bra L; setp.eq.u32 %p1, %r0, %r0; {STORE}"""
    out = bench.clean(body, VALUES, np.zeros_like(VALUES), np.zeros_like(VALUES))[1]
    pairs = VALUES + VALUES[LANES ^ 1]
    assert out.tolist() == (4 * pairs).tolist()


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


# --- match, redux, elect --------------------------------------------------------------------

GROUPS = {
    "everyone": [FULL] * 32,
    "halves": [0xFFFF if i < 16 else 0xFFFF0000 for i in range(32)],
    "odd and even": [0xAAAAAAAA if i % 2 else 0x55555555 for i in range(32)],
}


def of_groups(values: list[int], members: list[int], threads: int) -> list[list[int]]:
    """For each lane the lanes it acts with."""
    return [[other for other in range(threads) if members[lane] >> other & 1] for lane in range(threads)]


@pytest.mark.parametrize("members", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("threads", [32, 21])
def test_match(bench: Bench, members: list[int], bits: int, threads: int) -> None:
    r, size = {32: "%r", 64: "%rd"}[bits], bits // 8
    body = f"""{INDEX}{pointer(0, size=size)}{pointer(1)}{pointer(2, size=12)} ld.global.b{bits} {r}20, [%rd0];
    ld.global.u32 %r30, [%rd1]; match.any.sync.b{bits} %r31, {r}20, %r30; match.all.sync.b{bits} %r32|%p1, {r}20, %r30;
    selp.u32 %r33, 1, 0, %p1; st.global.u32 [%rd2], %r31; st.global.u32 [%rd2+4], %r32;
    st.global.u32 [%rd2+8], %r33; ret;"""
    rng = random.Random(bits)
    top = 1 << bits - 1
    for choices in ((7,), (0, top), (1, top + 1, 3), tuple(range(64))):
        values = [rng.choice(choices) for _ in range(32)]
        if choices == (1, top + 1, 3):
            values[:16] = [3] * 16  # one half agrees
        out = bench.clean(
            body, np.array(values, f"u{size}"), np.array(members, np.uint32), np.zeros((32, 3), np.uint32),
            threads=threads,
        )[2]  # fmt: skip
        for lane, group in enumerate(of_groups(values, members, threads)):
            equal = sum(1 << other for other in group if values[other] == values[lane])
            everyone = sum(1 << other for other in group)
            agree = equal == everyone
            assert out[lane].tolist() == [equal, everyone if agree else 0, int(agree)], (lane, values)


def test_match_in_divergent_code(bench: Bench) -> None:
    """Lanes that went another way do not take part, although the mask names them."""
    body = f"""{LOAD} and.b32 %r5, %r0, 1; setp.eq.u32 %p1, %r5, 0; mov.u32 %r11, 0; @%p1 bra END;
    match.any.sync.b32 %r11, %r5, -1; END: {STORE}"""
    out = bench.clean(body, VALUES, np.zeros_like(VALUES), np.zeros_like(VALUES))[1]
    assert out.tolist() == [0xAAAAAAAA if i % 2 else 0 for i in range(32)]


REDUCTIONS: dict[str, Callable[[int, int], int]] = {
    "add.u32": lambda a, b: a + b & FULL,
    "add.s32": lambda a, b: a + b & FULL,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "xor.b32": lambda a, b: a ^ b,
    "min.u32": min,
    "max.u32": max,
    "min.s32": lambda a, b: min(a, b, key=lambda v: decode(v, "s32")),
    "max.s32": lambda a, b: max(a, b, key=lambda v: decode(v, "s32")),
}


def redux_body(form: str) -> str:
    return (
        f"""{LOAD} ld.global.u32 %r12, [%rd1]; redux.sync.{form} %r11, %r10, %r12; st.global.u32 [%rd2], %r11; ret;"""
    )


@pytest.mark.parametrize("form", REDUCTIONS)
@given(data=st.data())
@ENGINE
def test_redux(bench: Bench, form: str, data: st.DataObject) -> None:
    word = st.integers(0, FULL) | st.sampled_from((0, 1, 0x7FFFFFFF, 0x80000000, FULL))
    values = data.draw(st.lists(word, min_size=32, max_size=32))
    members = GROUPS[data.draw(st.sampled_from(sorted(GROUPS)))]
    threads = data.draw(st.sampled_from((32, 19)))
    out = bench.clean(
        redux_body(form), np.array(values, np.uint32), np.array(members, np.uint32), np.zeros(32, np.uint32),
        threads=threads,
    )[2]  # fmt: skip
    for lane, group in enumerate(of_groups(values, members, threads)):
        assert out[lane] == reduce(REDUCTIONS[form], [values[other] for other in group])


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("spread", [False, True])
def test_redux_of_floats(bench: Bench, name: str, absolute: bool, spread: bool) -> None:
    form = f"{name}{'.abs' if absolute else ''}{'.NaN' if spread else ''}.f32"
    nan, rng = 0x7FC00001, random.Random(form)
    edges = [encode(v, "f32") for v in (0.0, -0.0, 1.0, -1.0, 2.0**-149, -3.5, float("inf"), float("-inf"))]
    cases = [[nan] * 32, [0x80000000] * 16 + [0] * 16, [rng.choice(edges) for _ in range(32)]]
    cases += [[rng.choice([*edges[:6], nan]) for _ in range(32)], [*[encode(2.0, "f32")] * 31, nan]]
    for values in cases:
        args = (np.array(values, np.uint32), np.full(32, FULL, np.uint32), np.zeros(32, np.uint32))
        out = bench.clean(redux_body(form), *args)[2]
        inputs = [v & 0x7FFFFFFF if absolute else v for v in values]
        numbers = [v for v in inputs if v & 0x7FFFFFFF <= 0x7F800000]
        best = (min if name == "min" else max)(
            numbers, key=lambda v: (decode(v, "f32"), not v >> 31), default=0x7FFFFFFF
        )
        wanted = 0x7FFFFFFF if spread and len(numbers) < 32 else best
        assert out.tolist() == [wanted] * 32, (values, form)


def test_elect(bench: Bench) -> None:
    body = f"""{LOAD} ld.global.u32 %r12, [%rd1]; elect.sync %r11|%p1, %r12; elect.sync _|%p2, %r12;
    selp.u32 %r13, 2, 0, %p2; selp.u32 %r20, 1, 0, %p1; add.u32 %r20, %r20, %r13; st.global.u32 [%rd1], %r11;
    st.global.u32 [%rd2], %r20; ret;"""
    for members in ([FULL] * 32, [0xFFF0] * 16 + [0xFFFF0000] * 16):
        _, leaders, chosen = bench.clean(body, VALUES, np.array(members, np.uint32), np.zeros(32, np.uint32))
        wanted = [(m & -m).bit_length() - 1 for m in members]
        assert leaders.tolist() == wanted
        assert chosen.tolist() == [3 if lane == leader else 0 for lane, leader in enumerate(wanted)]


def test_elect_in_divergent_code(bench: Bench) -> None:
    body = f"""{LOAD} mov.u32 %r11, 99; setp.lt.u32 %p2, %r0, 7; setp.eq.u32 %p1, %r0, 99; @%p2 bra END;
    elect.sync %r11|%p1, -1; END: {STORE}"""
    _, leaders, chosen = bench.clean(body, VALUES, np.zeros_like(VALUES), np.zeros_like(VALUES))
    assert leaders.tolist() == [99] * 7 + [7] * 25
    assert chosen.tolist() == [int(i == 7) for i in range(32)]


LANE_MASKS = {
    "eq": lambda i: 1 << i,
    "lt": lambda i: (1 << i) - 1,
    "le": lambda i: (2 << i) - 1,
    "gt": lambda i: FULL & ~((2 << i) - 1),
    "ge": lambda i: FULL & ~((1 << i) - 1),
}


@pytest.mark.parametrize("name", LANE_MASKS)
def test_lane_masks(bench: Bench, name: str) -> None:
    body = (
        f"{INDEX}{pointer(0)} mov.u32 %r10, %lanemask_{name}; and.b32 %r11, %r10, -1; st.global.u32 [%rd0], %r11; ret;"
    )
    ran = bench.run(body, np.zeros(64, np.uint32), threads=64)
    assert ran.findings == ()
    assert ran.buffers[0].tolist() == [LANE_MASKS[name](i % 32) for i in range(64)]


def test_warp_aggregated_tickets(bench: Bench) -> None:
    """One lane takes a number for all active lanes, as compilers and people write it."""
    body = f"""{LOAD} and.b32 %r5, %r0, 3; setp.eq.u32 %p1, %r5, 0; @%p1 bra END; activemask.b32 %r20;
    mov.u32 %r4, %laneid; mov.u32 %r6, -1; shl.b32 %r6, %r6, %r4; not.b32 %r6, %r6;
    and.b32 %r6, %r6, %r20; popc.b32 %r7, %r6; popc.b32 %r8, %r20;
    brev.b32 %r9, %r20; clz.b32 %r9, %r9; setp.eq.u32 %p2, %r7, 0; ld.param.u64 %rd5, [p1];
    @%p2 atom.global.add.u32 %r12, [%rd5], %r8; shfl.sync.idx.b32 %r12, %r12, %r9, 31, %r20; add.u32 %r12, %r12, %r7;
    st.global.u32 [%rd2], %r12; END: ret;"""
    _, counter, tickets = bench.clean(body, VALUES, np.zeros(1, np.uint32), np.full(32, 77, np.uint32))
    assert counter[0] == 24
    assert tickets.tolist() == [77 if i % 4 == 0 else i - i // 4 - 1 for i in range(32)]
