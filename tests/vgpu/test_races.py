"""Accesses of several warps or blocks to one place, with and without what orders them."""

from __future__ import annotations

import numpy as np
import pytest
from ptxkit import INDEX, Bench, Blank, pointer

from cupilot.records import OtherAccess

TILE = ".shared .align 16 .b8 tile[1024];"
# %r11: the thread's word of the tile; %r12: the word of the thread half a block further on
WORDS = f"{TILE} {INDEX} mov.u32 %r10, %tid.x; shl.b32 %r11, %r10, 2; xor.b32 %r12, %r11, 128;"
BARRIER = "bar.sync 0;"
OUT = np.zeros(64, np.uint32)


def kinds(bench: Bench, body: str, *arguments: np.ndarray | Blank, **options: object) -> list[str]:
    return bench.run(body, *arguments, **options).kinds  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("st.shared.u32 [%r11], %r10;", "ld.shared.u32 %r13, [%r12];", id="written, then read"),
        pytest.param("st.shared.u32 [%r11], %r10;", "st.shared.u32 [%r12], %r10;", id="written twice"),
        pytest.param(
            "st.shared.u32 [%r11], %r10; bar.sync 0; ld.shared.u32 %r13, [%r12];",
            "st.shared.u32 [%r11], 77;",
            id="read, then written",
        ),
        pytest.param("st.shared.u8 [%r11], %r10;", "ld.shared.u8 %r13, [%r12];", id="bytes"),
        pytest.param(
            "st.shared.v2.u32 [%r11], {%r10, %r10};", "ld.shared.v2.u32 {%r13, %r14}, [%r12];", id="pairs of words"
        ),
    ],
)
def test_warps_of_a_block_need_a_barrier(bench: Bench, first: str, second: str) -> None:
    scaled = WORDS + (" shl.b32 %r11, %r11, 1; xor.b32 %r12, %r11, 256;" if "v2" in first else "")
    assert "shared-race" in kinds(bench, f"{scaled} {first} {second} ret;", threads=64)
    assert kinds(bench, f"{scaled} {first} {BARRIER} {second} ret;", threads=64) == []
    # one warp is in step with itself
    assert kinds(bench, f"{scaled} xor.b32 %r12, %r11, 64; {first} {second} ret;", threads=32) == []


def test_a_race_names_the_place_and_the_other_warp(bench: Bench) -> None:
    body = f"{WORDS}\n .loc 1 43 1\n st.shared.u32 [%r11], %r10;\n .loc 1 44 1\n ld.shared.u32 %r13, [%r12]; ret;"
    # the first warp reads before the second has written; the second writes what the first read, and reads what it wrote
    early, middle, finding = bench.run(body, threads=64).findings
    assert (early.kind, middle.kind, finding.kind) == ("uninitialized", "shared-race", "shared-race")
    assert middle.other == OtherAccess("read", "barrier", block=(0, 0, 0), warp=0, line=44)
    assert (finding.line, finding.block, finding.thread, finding.threads) == (44, (0, 0, 0), (32, 0, 0), 32)
    assert finding.other == OtherAccess("write", "barrier", block=(0, 0, 0), warp=0, line=43)
    assert finding.text.endswith("; warp 0 wrote it at line 43 since the last barrier")


def test_many_readers_and_then_a_writer(bench: Bench) -> None:
    fill = f"{WORDS} st.shared.u32 [%r11], %r10; {BARRIER} ld.shared.u32 %r13, [tile];"
    write = "setp.eq.u32 %p1, %r10, 70; @%p1 st.shared.u32 [tile], 5; ret;"
    assert kinds(bench, f"{fill} {write}", threads=96) == ["shared-race"]
    assert kinds(bench, f"{fill} {BARRIER} {write}", threads=96) == []


def test_the_same_value_may_be_written_by_all(bench: Bench) -> None:
    assert kinds(bench, f"{WORDS} st.shared.u32 [tile], 7; ret;", threads=96) == []
    assert kinds(bench, f"{WORDS} st.shared.u32 [tile], %r10; ret;", threads=96)[:1] == ["shared-race"]


def test_neighbouring_bytes_are_not_one_place(bench: Bench) -> None:
    index = f"{TILE} mov.u32 %r10, %tid.x; mad.lo.u32 %r11, %r10, 3, 1;"
    body = f"{index} st.shared.u8 [%r11], %r10; ld.shared.u8 %r13, [%r11]; ret;"
    assert kinds(bench, body, threads=96) == []


@pytest.mark.parametrize("kind", ["volatile", "relaxed.cta"])
def test_accesses_that_are_meant_to_meet(bench: Bench, kind: str) -> None:
    body = f"{WORDS} st.{kind}.shared.u32 [%r11], %r10; ld.{kind}.shared.u32 %r13, [%r12]; ret;"
    assert "shared-race" not in kinds(bench, body, threads=64)


def test_shared_memory_starts_with_nothing(bench: Bench) -> None:
    fill = f"{WORDS} setp.lt.u32 %p1, %r10, 8; @%p1 st.shared.u32 [%r11], 1; {BARRIER}"
    read = f"{fill} ld.shared.u32 %r13, [tile+{{}}]; ret;"
    assert kinds(bench, read.replace("{}", "28"), threads=64, grid=3) == []
    ran = bench.run(read.replace("{}", "32"), threads=64)
    assert ran.kinds[0] == "uninitialized"
    assert ran.findings[0].text.endswith("of shared memory; nothing was written there")


def test_a_later_block_does_not_see_an_earlier_one(bench: Bench) -> None:
    first = f"{WORDS} mov.u32 %r20, %ctaid.x; setp.eq.u32 %p1, %r20, 0; @%p1 st.shared.u32 [%r11], 1;"
    body = f"{first} ld.shared.u32 %r13, [%r11]; ret;"
    assert kinds(bench, body, threads=32, grid=1) == []
    assert kinds(bench, body, threads=32, grid=2) == ["uninitialized"]


# --- blocks -----------------------------------------------------------------------------------

MINE = f"{INDEX}{pointer(0)}"
OTHERS = " xor.b32 %r20, %r0, 32;" + pointer(0, "%r20", register="%rd5")
FENCE = "membar.gl;"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("st.global.u32 [%rd0], %r0;", "ld.global.u32 %r21, [%rd5];", id="written, then read"),
        pytest.param("st.global.u32 [%rd0], %r0;", "st.global.u32 [%rd5], %r0;", id="written twice"),
        pytest.param(
            "st.global.u32 [%rd0], %r0; ld.global.u32 %r21, [%rd5+256];",
            "st.global.u32 [%rd0+256], 9;",
            id="read, then written",
        ),
    ],
)
def test_blocks_need_a_fence(bench: Bench, first: str, second: str) -> None:
    data = np.zeros(128, np.uint32)
    assert "global-race" in kinds(bench, f"{MINE}{OTHERS} {first} {second} ret;", data, grid=2)
    assert kinds(bench, f"{MINE}{OTHERS} {first} {FENCE} {second} ret;", data, grid=2) == []
    # one block is not two
    assert kinds(bench, f"{MINE}{OTHERS} {first} {second} ret;", data, threads=64, grid=1) == []


def test_two_launches_are_in_order(bench: Bench) -> None:
    """The same buffer is written in one launch and read by other blocks in the next."""
    machine = bench.machine
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry ordered_write(.param .u64 p0) { .reg .b32 %r<9>; .reg .b64 %rd<9>;
 mov.u32 %r1, %ctaid.x; ld.param.u64 %rd1, [p0]; mad.wide.u32 %rd1, %r1, 4, %rd1; st.global.u32 [%rd1], %r1; ret; }
.visible .entry ordered_read(.param .u64 p0) { .reg .b32 %r<9>; .reg .b64 %rd<9>;
 mov.u32 %r1, %ctaid.x; xor.b32 %r1, %r1, 1; ld.param.u64 %rd1, [p0]; mad.wide.u32 %rd2, %r1, 4, %rd1;
 ld.global.u32 %r2, [%rd2]; st.global.u32 [%rd2+64], %r2; ret; }
"""
    number = machine.load_ptx(text)
    address = machine.allocate(256)
    argument = [address.to_bytes(8, "little")]
    machine.begin(None, 10.0)
    for name in ("ordered_write", "ordered_read", "ordered_read"):
        assert machine.start(number, name, (8, 1, 1), (32, 1, 1), argument) == 0
    assert machine.findings() == ()
    machine.free(address)


def test_the_same_flag_may_be_raised_by_every_block(bench: Bench) -> None:
    body = f"{INDEX} ld.param.u64 %rd0, [p0]; st.global.u32 [%rd0], 1; ret;"
    assert kinds(bench, body, OUT, grid=4) == []
    assert kinds(bench, body.replace("], 1", "], %r0"), OUT, grid=4)[:1] == ["global-race"]


def test_a_sampled_launch_leaves_gaps_that_are_nobodys_fault(bench: Bench) -> None:
    machine = bench.machine
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry gaps_made(.param .u64 p0) { .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<2>;
 mov.u32 %r1, %ctaid.x; ld.param.u64 %rd1, [p0]; mad.wide.u32 %rd1, %r1, 4, %rd1; mov.u32 %r2, 0;
 L: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 50; @%p1 bra L; st.global.u32 [%rd1], %r2; ret; }
.visible .entry gaps_read(.param .u64 p0) { .reg .b32 %r<9>; .reg .b64 %rd<9>;
 mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [p0]; mad.wide.u32 %rd1, %r1, 4, %rd1; ld.global.u32 %r2, [%rd1]; ret; }
"""
    number = machine.load_ptx(text)
    for budget, wanted in ((100, ()), (None, ("uninitialized",))):
        # in full, the last words are missing because nobody was asked to write them
        blocks = 64 if budget else 60
        address = machine.allocate(256)
        argument = [address.to_bytes(8, "little")]
        machine.begin(budget, 10.0)
        for name, grid, threads in (("gaps_made", blocks, 32), ("gaps_read", 1, 64)):
            machine.start(number, name, (grid, 1, 1), (threads, 1, 1), argument)
        assert tuple(finding.kind for finding in machine.findings()) == wanted
        machine.free(address)
