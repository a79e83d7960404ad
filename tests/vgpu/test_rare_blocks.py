"""Blocks that compare otherwise than most are found from the PTX, for every block what running it would give."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cupilot.vgpu.index_values import symbols_of
from cupilot.vgpu.ptx.indices import index_code
from cupilot.vgpu.ptx.parse import parse_module
from cupilot.vgpu.rare_blocks import PICKS, RareBlocks, RareBlocksOfLaunches, Shape, rare_blocks

HEAD = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u32 n) {
.reg .pred %p<9>; .reg .b32 %r<32>; .reg .b64 %d<9>; .reg .f32 %f<9>;
ld.param.u32 %r1, [n];
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ntid.x;
mov.u32 %r4, %tid.x;
mad.lo.s32 %r5, %r2, %r3, %r4;
"""
BLOCKS, THREADS = 100_000, 256


def found(body: str, n: int = BLOCKS * THREADS, grid: tuple[int, int, int] = (BLOCKS, 1, 1)) -> RareBlocks:
    function = parse_module(HEAD + body + "ret;\n}").functions["k"]
    code = index_code(function)
    known = dict.fromkeys(symbols_of(code), n.to_bytes(4, "little"))
    return rare_blocks(code, Shape(grid, (THREADS, 1, 1)), known, seed=1)


# what is computed from the index, and which blocks are told apart by it
ALONE = {
    "one block": ("setp.eq.s32 %p1, %r2, 70001;", [70001]),
    "one element": ("setp.eq.s32 %p1, %r5, 20000003;", [20000003 // THREADS]),
    "two elements": ("add.s32 %r6, %r5, -20000003; setp.lt.u32 %p1, %r6, 2;", [20000003 // THREADS]),
    "a remainder": ("rem.u32 %r6, %r2, 9973; setp.eq.u32 %p1, %r6, 5;", list(range(5, BLOCKS, 9973))),
    "as a float": ("cvt.rn.f32.u32 %f1, %r2; setp.eq.f32 %p1, %f1, 0f4788B880;", [70001]),
    "bits": ("popc.b32 %r6, %r2; setp.eq.s32 %p1, %r6, 16;", [65535, 98303]),
    "a division by a product": (
        "mul.wide.u32 %d1, %r2, 1374389535; shr.u64 %d2, %d1, 39; cvt.u32.u64 %r6, %d2; mul.lo.s32 %r7, %r6, 400;"
        "sub.s32 %r8, %r2, %r7; setp.eq.s32 %p1, %r8, 399;",
        list(range(399, BLOCKS, 400)),
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_rare_outcome_is_picked(name: str) -> None:
    body, wanted = ALONE[name]
    rare = found(body)
    assert set(rare.picks.tolist()) & set(wanted)
    assert set(wanted) <= set(rare.blocks.tolist())


def test_the_last_block_of_a_bound_is_rare_and_others_are_not() -> None:
    rare = found("setp.ge.s32 %p1, %r5, %r1;", n=BLOCKS * THREADS - 100)
    assert rare.blocks.tolist() == [BLOCKS - 1]


def test_blocks_that_all_compare_alike_are_not_rare() -> None:
    assert found("setp.ge.s32 %p1, %r5, %r1;").blocks.size == 0
    assert found("setp.eq.s32 %p1, %r4, 7;").blocks.size == 0


def test_halves_are_not_rare() -> None:
    assert found("and.b32 %r6, %r2, 1; setp.eq.s32 %p1, %r6, 1;").blocks.size == 0


def test_many_groups_are_bounded() -> None:
    rare = found(
        "mul.lo.s32 %r6, %r2, 1664525; setp.lt.u32 %p1, %r6, 4000000; rem.u32 %r7, %r2, 331; setp.eq.s32 %p2, %r7, 1;"
    )
    assert 0 < rare.picks.size <= PICKS
    assert np.isin(rare.picks, rare.blocks).all()


def test_both_coordinates_together_are_rare() -> None:
    body = "mov.u32 %r6, %ctaid.y; setp.eq.s32 %p1, %r2, 17; setp.eq.s32 %p2, %r6, 23; and.pred %p3, %p1, %p2;"
    assert 23 * 64 + 17 in found(body, grid=(64, 64, 1)).picks


def test_what_loops_and_memory_hold_is_left_out() -> None:
    loop = "mov.u32 %r6, %r2; add.s32 %r6, %r6, 1; setp.eq.s32 %p1, %r6, 70001;"
    assert found(loop).blocks.size == 0
    assert found("ld.global.u32 %r6, [%d1]; setp.eq.s32 %p1, %r6, 3;").blocks.size == 0


def test_odd_operands_are_passed_over() -> None:
    assert found("setp.eq.s32 %p1, %r2, %r31; div.s32 %r6, %r2, 0; setp.eq.s32 %p2, %r6, -1;").blocks.size == 0


# --- as the runtime asks -------------------------------------------------------------------------


@dataclass
class Runtime:
    """Keeps the callback that it is given."""

    answer: Any = None

    def vgc_rare_blocks(self, callback: Any) -> None:
        self.answer = callback


def asked(body: str) -> tuple[Runtime, RareBlocksOfLaunches]:
    function = parse_module(HEAD + body + "ret;\n}").functions["k"]
    code = SimpleNamespace(index_code=index_code(function), params={}, variables=())
    runtime = Runtime()
    return runtime, RareBlocksOfLaunches(runtime, {0: code})  # type: ignore[arg-type]


def picked(runtime: Runtime, seed: int) -> list[int]:
    sizes = ctypes.c_uint32 * 3
    address = runtime.answer(0, sizes(BLOCKS, 1, 1), sizes(THREADS, 1, 1), 0, seed)
    words = ctypes.cast(address, ctypes.POINTER(ctypes.c_uint64))
    count, picks = words[0], words[1]
    return [words[2 + 2 * count + n] for n in range(picks)]


def test_every_seed_has_picks_of_its_own() -> None:
    runtime, rare = asked("rem.u32 %r6, %r2, 997; setp.eq.u32 %p1, %r6, 5;")
    first = picked(runtime, 1)
    assert len(first) > 1
    assert picked(runtime, 2) != first == picked(runtime, 1)
    assert rare.problem is None


def test_an_error_of_ours_is_kept_and_not_passed_over() -> None:
    runtime, rare = asked("setp.eq.s32 %p1, %r2, 70001;")
    rare._codes = {}
    sizes = ctypes.c_uint32 * 3
    assert not runtime.answer(0, sizes(BLOCKS, 1, 1), sizes(THREADS, 1, 1), 0, 1)
    assert isinstance(rare.problem, KeyError)
