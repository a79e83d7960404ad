"""Counters against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from ptxkit import INDEX, Bench, Blank, Ran, pointer

from cupilot.vgpu.counters import BufferTraffic, dram_bytes, overflow, stretch

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
    sums = ({c.name: c.value for c in ran.launch.counters if "sampled" not in c.name} for ran in (part, whole))
    assert next(sums) == pytest.approx(next(sums))
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


# --- instructions -------------------------------------------------------------------------------


def test_every_instruction_has_a_pipe_and_a_class(bench: Bench) -> None:
    body = f"""{INDEX}{pointer(0)} ld.global.u32 %r10, [%rd0]; cvt.rn.f32.u32 %f1, %r10; sqrt.rn.f32 %f1, %f1;
    fma.rn.f32 %f1, %f1, %f1, %f1; and.b32 %r11, %r10, 7; shfl.sync.idx.b32 %r12, %r11, 0, 31, -1; membar.cta;
    setp.gt.f32 %p1, %f1, 0f00000000; selp.b32 %r13, %r11, %r12, %p1; atom.global.add.u32 %r14, [%rd0], %r13;
    bar.sync 0; st.global.u32 [%rd0], %r13; ret;"""
    ran = profiled(bench, body, DATA)
    assert ran.launch is not None
    counted = {c.name: c.value for c in ran.launch.counters}
    assert {name.removeprefix("opcodes_"): n for name, n in counted.items() if name.startswith("opcodes_")} == {
        "move": 3, "integer": 2, "parameter": 1, "load": 1, "convert": 1, "special": 1, "float": 1, "logic": 1,
        "warp": 1, "fence": 1, "compare": 2, "atomic": 1, "barrier": 1, "store": 1, "branch": 1,
    }  # fmt: skip
    pipes = {name.removeprefix("instructions_"): n for name, n in counted.items() if name.startswith("instructions_")}
    assert pipes == {"control": 7, "int": 6, "lsu": 4, "sfu": 1, "fp32": 1}
    assert sum(pipes.values()) == counted["warp_instructions"] == 19


def test_operations_by_precision(bench: Bench) -> None:
    """Of 20 active lanes; packed types do two at a time."""
    body = """ mov.b32 %r10, 0; mov.f32 %f1, 0f3F800000; fma.rn.f32 %f1, %f1, %f1, %f1; mul.f32 %f1, %f1, %f1;
    fma.rn.f16x2 %r10, %r10, %r10, %r10; add.f16x2 %r10, %r10, %r10; fma.rn.bf16x2 %r11, %r10, %r10, %r10;
    cvt.f64.f32 %fd1, %f1; add.f64 %fd1, %fd1, %fd1; max.f32 %f1, %f1, %f1; ret;"""
    ran = profiled(bench, body, threads=20)
    got = [ran[f"flop_{name}"] for name in ("fp32", "fp16", "bf16", "fp64")]
    assert got == [20 * 3, 20 * (4 + 2), 20 * 4, 20]


def test_matrix_products_are_those_of_the_warp(bench: Bench) -> None:
    zero = " ".join(f"mov.f32 %f{n}, 0f00000000; mov.b32 %r{20 + n}, 0;" for n in range(8))
    body = f"""{zero} mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f0, %f1, %f2, %f3}},
    {{%r20, %r21, %r22, %r23}}, {{%r24, %r25}}, {{%f4, %f5, %f6, %f7}}; ret;"""
    ran = profiled(bench, body, threads=64)
    tensor = {c.name: c.value for c in ran.launch.counters if "tensor" in c.name} if ran.launch else {}
    assert tensor == {"flop_tensor_fp16": 2 * 2 * 16 * 8 * 16, "instructions_tensor": 2}


def test_lanes_and_operations_of_a_line(bench: Bench) -> None:
    body = f"""{INDEX} mov.f32 %f1, 0f3F800000; setp.ge.u32 %p1, %r0, 8; @%p1 bra A;
    .loc 1 70 1
    add.f32 %f1, %f1, %f1; fma.rn.f32 %f1, %f1, %f1, %f1;
    A:
    .loc 1 71 1
    st.shared.f32 [tile], %f1; ret;"""
    ran = profiled(bench, body, before=".shared .align 4 .b8 tile[4];")
    assert ran.launch is not None
    lines = {cost.line: cost for cost in ran.launch.lines}
    assert (lines[70].active_lanes, lines[70].flop, lines[70].warp_instructions) == (8, 3 * 8, 2)
    assert (lines[71].active_lanes, lines[71].shared_requests, lines[71].shared_wavefronts) == (32, 1, 1)
    assert ran.launch.active_lanes == pytest.approx((7 * 32 + 2 * 8 + 2 * 32) / 11)


# --- memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "shift", "stride", "wavefronts", "conflicts"),
    [
        pytest.param("b32", 0, 128, 32, 31, id="one bank"),
        pytest.param("b32", 0, 8, 2, 1, id="every other bank"),
        pytest.param("v4.b32", 0, 16, 4, 0, id="quarter warps"),
        pytest.param("v4.b32", 0, 32, 8, 4, id="quarter warps over twice the banks"),
        pytest.param("v4.b32", 5, 16, 2, 0, id="all the same 16 bytes"),
        pytest.param("v4.b32", 1, 16, 2, 0, id="pairs of lanes share an address"),
        pytest.param("v2.b32", 5, 8, 1, 0, id="all the same 8 bytes"),
        pytest.param("v2.b32", 0, 8, 2, 0, id="half warps"),
    ],
)
def test_conflicts_are_what_exceeds_the_width(
    bench: Bench, kind: str, shift: int, stride: int, wavefronts: int, conflicts: int
) -> None:
    _, names = item(kind)
    body = f""".shared .align 16 .b8 tile[8192]; {INDEX} shl.b32 %r10, %r0, 4;
    L: setp.ge.u32 %p1, %r10, 8192; @%p1 bra D; st.shared.v4.b32 [%r10], {{%r0, %r0, %r0, %r0}};
    add.u32 %r10, %r10, 512; bra L;
    D: shr.u32 %r11, %r0, {shift}; mul.lo.u32 %r11, %r11, {stride}; ld.shared.{kind} {names}, [%r11]; ret;"""
    ran = profiled(bench, body)
    assert [ran[f"shared_load_{name}"] for name in ("wavefronts", "conflicts")] == [wavefronts, conflicts]


@pytest.mark.parametrize(
    ("address", "lanes", "steps", "sectors"),
    [
        pytest.param("mov.u32 %r10, 0;", 32, 32, 1, id="all at one"),
        pytest.param("shr.u32 %r10, %r0, 2;", 32, 4, 1, id="four each"),
        pytest.param("mov.u32 %r10, %r0;", 32, 1, 4, id="each its own"),
        pytest.param("mov.u32 %r10, %r0; setp.ge.u32 %p1, %r0, 6; @%p1 ret;", 6, 1, 1, id="six lanes"),
    ],
)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics(bench: Bench, address: str, lanes: int, steps: int, sectors: int, space: str) -> None:
    fill = "st.shared.u32 [%r11], %r0; add.u32 %r11, %r11, 128; st.shared.u32 [%r11], %r0;" if space == "shared" else ""
    place = "%rd1" if space == "global" else "%r12"
    body = f""".shared .align 16 .b8 tile[1024]; {INDEX} ld.param.u64 %rd0, [p0]; shl.b32 %r11, %r0, 2; {fill}
    {address} mad.wide.u32 %rd1, %r10, 4, %rd0; shl.b32 %r12, %r10, 2; red.{space}.add.u32 [{place}], 1; ret;"""
    ran = profiled(bench, body, DATA)
    got = [ran[f"{space}_atomic_{name}"] for name in ("requests", "lanes", "steps", "bytes")]
    assert got == [1, lanes, steps, 4 * lanes]
    assert ran["global_atomic_sectors"] == (sectors if space == "global" else 0)


def test_a_generic_load_is_split_by_what_it_reaches(bench: Bench) -> None:
    """First shared memory with a stride of two words, then global memory."""
    body = f""".shared .align 128 .b8 tile[4096]; {INDEX} ld.param.u64 %rd0, [p0]; mov.u64 %rd1, tile;
    cvta.shared.u64 %rd1, %rd1; mad.wide.u32 %rd2, %r0, 8, %rd1; st.u32 [%rd2], %r0;
    mov.u32 %r10, 0; L: setp.eq.u32 %p1, %r10, 1; selp.b64 %rd2, %rd0, %rd1, %p1; mad.wide.u32 %rd2, %r0, 8, %rd2;
    ld.u32 %r13, [%rd2]; add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 3; @%p2 bra L; ret;"""
    ran = profiled(bench, body, DATA)
    names = ("requests", "wavefronts", "bytes")
    assert [ran[f"shared_load_{name}"] for name in names] == [2, 4, 256]
    assert [ran[f"global_load_{name}"] for name in names] == [1, 2, 128]
    assert (ran["shared_load_conflicts"], ran["global_load_sectors"]) == (2, 8)
    assert (ran["shared_store_requests"], ran["global_store_requests"]) == (1, 0)


def test_local_memory(bench: Bench) -> None:
    """Words of a thread lie beside those of its neighbours: four sectors for each word."""
    body = f""".local .align 16 .b8 mine[64]; {INDEX} st.local.v4.u32 [mine], {{%r0, %r0, %r0, %r0}};
    ld.local.u32 %r10, [mine+8]; ld.local.u32 %r11, [mine+12]; ret;"""
    ran = profiled(bench, body, threads=64)
    got = [ran[f"local_{kind}_{name}"] for kind in ("store", "load") for name in ("requests", "sectors", "bytes")]
    assert got == [2, 2 * 16, 64 * 16, 4, 2 * 8, 2 * 64 * 4]
    assert ran["global_load_requests"] == 0


def test_asynchronous_copies(bench: Bench) -> None:
    """Each counts as a load and a store as well; their reads go out together."""
    body = f""".shared .align 16 .b8 tile[1024]; {INDEX}{pointer(0, size=16)} shl.b32 %r10, %r0, 4;
    cp.async.cg.shared.global [%r10], [%rd0], 16; cp.async.cg.shared.global [%r10+512], [%rd0+512], 16;
    cp.async.commit_group; cp.async.wait_group 0; ret;"""
    ran = profiled(bench, body, DATA)
    assert [ran[f"async_copy_{name}"] for name in ("requests", "bytes")] == [2, 2 * 512]
    assert [ran[f"global_load_{name}"] for name in ("requests", "sectors")] == [2, 32]
    assert [ran[f"shared_store_{name}"] for name in ("requests", "wavefronts", "conflicts")] == [2, 8, 0]
    assert (ran["independent_loads"], ran["critical_loads"], ran["opcodes_copy"]) == (2, 1, 4)


def test_hits_of_the_caches(bench: Bench) -> None:
    """A block reads 4 KiB twice: the second time they are in L1, and DRAM is asked once."""
    body = f"""{INDEX}{pointer(0, size=16)} ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd0];
    ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd0]; ret;"""
    ran = profiled(bench, body, DATA, threads=256)
    assert (ran["l1_hit_sectors"], ran["l2_read_sectors"], ran["l2_hit_sectors"]) == (128, 128, 0)


def test_every_counter_says_where_it_is_from(bench: Bench) -> None:
    ran = profiled(bench, COPY, DATA, DATA)
    assert ran.launch is not None
    sources = {c.name: c.source for c in ran.launch.counters}
    assert set(sources.values()) == {"PTX", "model"}
    assert sources["dram_read_bytes"] == "model"


# --- what L2 keeps ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "everywhere", "lost"),
    # one SM's data may fill it; what all SMs read is kept for each half of them
    [(0.4, True, 0.0), (0.84, True, 0.5), (1.2, True, 1.0), (3.0, True, 1.0), (1.0, False, 0.0), (1.225, False, 0.5),
     (1.5, False, 1.0)],
)  # fmt: skip
def test_l2_loses_what_does_not_fit(size: float, everywhere: bool, lost: float) -> None:
    assert overflow(size * 40e6, 40_000_000, everywhere) == pytest.approx(lost)


@pytest.mark.parametrize(("buffer", "dram"), [(8e6, 8e6), (33.6e6, 2.5 * 33.6e6), (80e6, 4 * 80e6)])
def test_four_waves_that_read_the_same_buffer(buffer: float, dram: float) -> None:
    """Within L2 once, far beyond it four times, around its size in between."""
    sectors = int(buffer) // 32
    traffic = BufferTraffic(int(buffer), 4 * sectors, 0, 4 * sectors, 0, 4 * sectors, 0, buffer)
    assert dram_bytes([traffic], 1.0, 4, 40_000_000)["dram_read_bytes"] == pytest.approx(dram, rel=1e-3)


def test_waves_that_move_along_a_buffer_read_it_about_once() -> None:
    """Each sector is asked for by four blocks, but they run at the same time."""
    size = 80_000_000
    traffic = BufferTraffic(size, 4 * size // 32, 0, 4 * size // 32, 0, 4 * size // 32, 0, size / 8)
    assert dram_bytes([traffic], 1.0, 10, 40_000_000)["dram_read_bytes"] == pytest.approx(1.25 * size)
    assert dram_bytes([traffic], 1.0, 4, 40_000_000)["dram_read_bytes"] == size  # it is read as a whole, whatever else


@pytest.mark.parametrize(
    ("extents", "expected"),
    [
        # four products of 100 lines each, ten blocks per product, all of which read the product's whole operand
        ([(b, b // 10 * 100, b // 10 * 100 + 99) for b in range(0, 40, 3)], (300 / 39 * 20 + 100) * 128),
        # columns of a matrix: every block's lines lie all over it
        ([(b, b % 7, 393 + b % 7) for b in range(40)], 400 * 128),
        # too few blocks to tell
        ([(0, 0, 99), (10, 100, 199), (20, 200, 299)], 400 * 128),
        # one stretch for all
        ([(b, 5, 14) for b in range(8)], 10 * 128),
    ],
)
def test_blocks_of_a_wave_read_within_a_stretch(extents: list[tuple[int, int, int]], expected: float) -> None:
    assert stretch(extents[::-1], 400 * 128, 20) == pytest.approx(expected)


def test_what_blocks_read_after_each_other_is_read_about_once(bench: Bench) -> None:
    """Four blocks in a row read the same 64 KiB of 32 MiB, which L2 cannot keep for all of the chip."""
    body = f"""{INDEX} shr.u32 %r10, %r1, 2; mov.u32 %r11, %tid.x; mad.lo.u32 %r10, %r10, 4096, %r11;
    {pointer(0, "%r10", 16)} ld.global.v4.u32 {{%r12, %r13, %r14, %r15}}, [%rd0];
    ld.global.v4.u32 {{%r12, %r13, %r14, %r15}}, [%rd0+16384];
    ld.global.v4.u32 {{%r12, %r13, %r14, %r15}}, [%rd0+32768];
    ld.global.v4.u32 {{%r12, %r13, %r14, %r15}}, [%rd0+49152]; ret;"""
    data = np.zeros(1 << 23, np.uint32)
    ran = profiled(bench, body, data, threads=1024, grid=2048, sample_budget=200_000)
    assert ran.launch is not None
    assert 4 <= ran.launch.blocks_run < 100
    assert ran["l2_read_sectors"] == pytest.approx(4 * data.nbytes // 32, rel=1e-5)
    assert data.nbytes <= ran["dram_read_bytes"] < 1.1 * data.nbytes


def test_the_block_with_most_to_do(bench: Bench) -> None:
    """Block number n goes round its loop n + 1 times, two instructions each and the head."""
    body = f"{INDEX} mov.u32 %r10, %ctaid.x; L: setp.gt.u32 %p1, %r10, 0; sub.u32 %r10, %r10, 1; @%p1 bra L; ret;"
    ran = profiled(bench, body, threads=32, grid=8)
    one = profiled(bench, body, threads=32, grid=1)
    assert one["heaviest_block"] == one["warp_instructions"]
    assert ran["heaviest_block"] == one["heaviest_block"] + 3 * 7
    assert ran["warp_instructions"] == 8 * one["heaviest_block"] + 3 * sum(range(8))
