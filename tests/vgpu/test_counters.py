"""Counters against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from ptxkit import INDEX, Bench, Blank, Ran, pointer

DATA = np.zeros(8192, np.uint32)


def profiled(bench: Bench, body: str, *arguments: np.ndarray, **options: object) -> Ran:
    ran = bench.run(body, *arguments, profile=True, **options)  # type: ignore[arg-type]
    assert ran.findings == ()
    return ran


def item(kind: str) -> tuple[int, str]:
    """Bytes of an access, and registers for it."""
    count, _, base = kind.rpartition(".")
    width, number = int(base[1:]) // 8, int(count[1:] or 1) if count else 1
    register = {1: "%rs", 2: "%rs", 4: "%r", 8: "%rd"}[width]
    names = [f"{register}{40 + i}" for i in range(number)]
    return width * number, names[0] if number == 1 else "{" + ", ".join(names) + "}"


@pytest.mark.parametrize(
    ("kind", "stride", "start", "threads", "sectors", "wavefronts"),
    [
        pytest.param("b32", 4, 0, 32, 4, 1, id="one word each"),
        pytest.param("b32", 4, 0, 20, 3, 1, id="part of a warp"),
        pytest.param("b32", 4, 4, 32, 5, 1, id="shifted by a word"),
        pytest.param("b32", 4, 64, 32, 4, 1, id="shifted by two sectors"),
        pytest.param("b32", 0, 0, 32, 1, 1, id="all the same word"),
        pytest.param("b32", 8, 0, 32, 8, 2, id="every other word"),
        pytest.param("b32", 32, 0, 32, 32, 8, id="a sector each"),
        pytest.param("b32", 128, 0, 32, 32, 32, id="a line each"),
        pytest.param("b8", 1, 0, 32, 1, 1, id="bytes"),
        pytest.param("b16", 2, 0, 32, 2, 1, id="half words"),
        pytest.param("b64", 8, 0, 32, 8, 2, id="eight bytes each"),
        pytest.param("v2.b32", 8, 0, 32, 8, 2, id="pairs of words"),
        pytest.param("v4.b32", 16, 0, 32, 16, 4, id="four words each"),
        pytest.param("v4.b32", 16, 16, 32, 17, 4, id="four words, shifted"),
    ],
)
@pytest.mark.parametrize("verb", ["load", "store"])
def test_global_requests(
    bench: Bench, kind: str, stride: int, start: int, threads: int, sectors: int, wavefronts: int, verb: str
) -> None:
    size, names = item(kind)
    what = (
        f"ld.global.{kind} {names}, [%rd0+{start}];" if verb == "load" else f"st.global.{kind} [%rd0+{start}], {names};"
    )
    ran = profiled(bench, f"{INDEX}{pointer(0, size=stride)} {what} ret;", DATA, threads=threads)
    got = [ran[f"global_{verb}_{name}"] for name in ("requests", "sectors", "wavefronts", "bytes")]
    assert got == [1, sectors, wavefronts, size * threads]


@pytest.mark.parametrize(
    ("kind", "stride", "wavefronts"),
    [
        ("b32", 4, 1), ("b32", 8, 2), ("b32", 16, 4), ("b32", 128, 32), ("b32", 132, 1), ("b32", 0, 1), ("b32", 12, 1),
        ("b8", 1, 1), ("b16", 2, 1), ("b64", 8, 2), ("v2.b32", 8, 2), ("v4.b32", 16, 4), ("b64", 16, 4),
        ("v4.b32", 32, 8),
    ],
)  # fmt: skip
@pytest.mark.parametrize("verb", ["load", "store"])
def test_shared_bank_conflicts(bench: Bench, kind: str, stride: int, wavefronts: int, verb: str) -> None:
    size, names = item(kind)
    store, load = f"st.shared.{kind} [%r11], {names};", f"ld.shared.{kind} {names}, [%r11];"
    what = f"{store} {load} {load}" if verb == "load" else f"{store} {store}"
    body = f".shared .align 16 .b8 tile[8192]; {INDEX} mul.lo.u32 %r11, %r0, {stride}; {what} ret;"
    ran = profiled(bench, body)
    got = [ran[f"shared_{verb}_{name}"] for name in ("requests", "wavefronts", "bytes")]
    assert got == [2, 2 * wavefronts, 2 * 32 * size]


def test_a_pattern_is_looked_at_again_when_it_changes(bench: Bench) -> None:
    """One load in a loop: 4 sectors, 5 when shifted by a word, 8 with a stride of two."""
    body = f"""{INDEX} ld.param.u64 %rd0, [p0]; mov.u32 %r10, 0; L: setp.eq.u32 %p1, %r10, 2; selp.u32 %r11, 8, 4, %p1;
    mad.wide.u32 %rd1, %r0, %r11, %rd0; and.b32 %r12, %r10, 1; mad.wide.u32 %rd1, %r12, 4, %rd1;
    ld.global.u32 %r13, [%rd1];
    add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 3; @%p2 bra L; ret;"""
    assert profiled(bench, body, DATA)["global_load_sectors"] == 4 + 5 + 8


def test_a_generic_load_counts_in_the_space_it_reaches(bench: Bench) -> None:
    """The same load first reads shared memory, then global memory with the same distances between lanes."""
    body = f""".shared .align 128 .b8 tile[4096]; {INDEX} ld.param.u64 %rd0, [p0]; mov.u64 %rd1, tile;
    cvta.shared.u64 %rd1, %rd1; mad.wide.u32 %rd2, %r0, 128, %rd1; st.u32 [%rd2], %r0;
    mov.u32 %r10, 0; L: setp.eq.u32 %p1, %r10, 1; selp.b64 %rd2, %rd0, %rd1, %p1; mad.wide.u32 %rd2, %r0, 128, %rd2;
    ld.u32 %r13, [%rd2]; add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 2; @%p2 bra L; ret;"""
    ran = profiled(bench, body, DATA)
    assert ran["global_load_sectors"] == 32
    assert ran["l2_read_sectors"] == 32


def test_instructions_of_a_loop(bench: Bench) -> None:
    """9 before the loop (with the 4 of the index), 4 in each round, 2 after it."""
    body = f"""{INDEX} ld.param.u64 %rd0, [p0]; mov.f32 %f1, 0f00000000; mov.f64 %fd1, 0d0000000000000000;
    mov.u32 %r10, 0; mov.u32 %r11, 0;
    L: fma.rn.f32 %f1, %f1, %f1, %f1; add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 25; @%p1 bra L;
    mul.f64 %fd1, %fd1, %fd1; ret;"""
    ran = profiled(bench, body, DATA, threads=64, grid=3)
    warps = 6
    assert ran["warp_instructions"] == warps * (9 + 4 * 25 + 2)
    assert ran["lane_instructions"] == 32 * ran["warp_instructions"]
    assert ran["instructions_fp32"] == warps * 25
    assert ran["instructions_fp64"] == warps
    assert ran["instructions_int"] == warps * (1 + 2 * 25)
    assert ran["flop_fp32"] == 2 * 25 * 32 * warps
    assert ran["flop_fp64"] == 32 * warps


def test_only_active_lanes_compute(bench: Bench) -> None:
    body = f"""{INDEX} mov.f32 %f1, 0f3F800000; setp.ge.u32 %p1, %r0, 5; @%p1 bra A; add.f32 %f1, %f1, %f1;
    mul.f32 %f1, %f1, %f1;
    A: st.shared.f32 [tile], %f1; ret;"""
    ran = profiled(bench, body, threads=40, before=".shared .align 4 .b8 tile[4];")
    assert ran["flop_fp32"] == 2 * 5
    # 7 instructions before the branch's end for 40 lanes, 2 for 5 lanes, 2 for all
    assert ran["lane_instructions"] == 7 * 40 + 2 * 5 + 2 * 40
    assert ran["warp_instructions"] == 2 * 9 + 2


def test_barriers_are_counted_for_each_warp(bench: Bench) -> None:
    assert profiled(bench, f"{INDEX} bar.sync 0; bar.sync 0; ret;", threads=96, grid=2)["barriers"] == 2 * 3 * 2


@pytest.mark.parametrize(
    ("code", "critical", "independent"),
    [
        ("ld.global.u64 %rd5, [%rd0]; ld.global.u64 %rd6, [%rd0+8]; add.s64 %rd7, %rd5, %rd6;", 1, 2),
        ("ld.global.u64 %rd5, [%rd0]; add.s64 %rd5, %rd5, %rd0; ld.global.u64 %rd6, [%rd5];", 2, 1),
    ],
)
def test_loads_that_wait_for_loads(bench: Bench, code: str, critical: int, independent: int) -> None:
    ran = profiled(bench, f"{INDEX}{pointer(0, size=8)} {code} ret;", DATA, threads=64)
    assert (ran["critical_loads"], ran["independent_loads"]) == (critical, independent)


COPY = f"{INDEX}{pointer(0)}{pointer(1)}\n.loc 1 9 1\n ld.global.f32 %f1, [%rd0]; st.global.f32 [%rd1], %f1; ret;"


def test_a_streaming_kernel_moves_every_byte_once(bench: Bench) -> None:
    data = np.zeros(1 << 15, np.float32)
    ran = profiled(bench, COPY, data, data, threads=128, grid=data.size // 128)
    assert (ran["dram_read_bytes"], ran["dram_write_bytes"]) == (data.nbytes, data.nbytes)
    assert (ran["l2_read_sectors"], ran["l2_write_sectors"]) == (data.nbytes // 32, data.nbytes // 32)


def test_a_sample_of_the_blocks_stands_for_all(bench: Bench) -> None:
    data = np.zeros(1 << 16, np.float32)
    whole, part = (
        profiled(bench, COPY, data, data, threads=128, grid=data.size // 128, sample_budget=budget)
        for budget in (None, 1)
    )
    assert whole.launch is not None
    assert part.launch is not None
    assert part.launch.blocks_run < whole.launch.blocks_run == 512
    assert {c.name: c.value for c in part.launch.counters} == pytest.approx(
        {c.name: c.value for c in whole.launch.counters}
    )
    assert part.launch.lines == whole.launch.lines != ()


def test_what_is_read_again_comes_from_the_caches(bench: Bench) -> None:
    """Eight blocks read the same 4 KiB twice: L1 keeps them for a block, L2 for all."""
    body = f"""{INDEX} mov.u32 %r0, %tid.x; {pointer(0)} mov.u32 %r10, 0; L: mov.u64 %rd1, %rd0; mov.u32 %r11, 0;
    M: ld.global.u32 %r12, [%rd1]; add.s64 %rd1, %rd1, 256; add.u32 %r11, %r11, 1; setp.lt.u32 %p1, %r11, 16;
    @%p1 bra M;
    add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 2; @%p2 bra L; ret;"""
    ran = profiled(bench, body, np.zeros(1024, np.uint32), threads=64, grid=8)
    assert ran["global_load_sectors"] == 2 * 8 * 4096 // 32
    assert ran["l2_read_sectors"] == 8 * 4096 // 32
    assert ran["dram_read_bytes"] == 4096


def test_source_lines_get_their_share(bench: Bench) -> None:
    body = (
        f"{INDEX}{pointer(0)}\n.loc 1 50 1\n ld.global.u32 %r10, [%rd0]; "
        "add.u32 %r10, %r10, 1;\n.loc 1 51 1\n st.global.u32 [%rd0+16384], %r10; ret;"
    )
    ran = profiled(bench, body, DATA, threads=64, grid=2)
    assert ran.launch is not None
    assert [(c.line, c.warp_instructions, c.global_sectors) for c in ran.launch.lines] == [(50, 8, 16), (51, 8, 16)]


def test_lanes_that_reach_two_buffers_count_for_both(bench: Bench) -> None:
    body = f"""{INDEX}{pointer(0)}{pointer(1)}{pointer(2)} and.b32 %r10, %r0, 1; setp.eq.u32 %p1, %r10, 0;
    selp.b64 %rd3, %rd0, %rd1, %p1; ld.global.u32 %r11, [%rd3]; st.global.u32 [%rd2], %r11; ret;"""
    even, odd = np.arange(32, dtype=np.uint32), np.arange(100, 132, dtype=np.uint32)
    ran = profiled(bench, body, even, odd, np.zeros(32, np.uint32))
    assert ran.buffers[2].tolist() == [odd[i] if i % 2 else even[i] for i in range(32)]
    assert ran["global_load_sectors"] == ran["l2_read_sectors"] == 8
    assert ran["dram_read_bytes"] == 256
    # and each is checked
    assert bench.run(body, even, Blank(128), np.zeros(32, np.uint32)).kinds == ["uninitialized"]
