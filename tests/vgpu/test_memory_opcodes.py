"""Loads and stores: widths, extension, vectors, spaces, qualifiers."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from ptxkit import INDEX, Address, Bench, pointer

RNG = np.random.default_rng(7)
BYTES = RNG.integers(0, 256, 4096, dtype=np.uint8)
N = 64  # two warps: the second one has another alignment


@pytest.mark.parametrize("kind", ["u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "b32", "u64", "s64"])
@pytest.mark.parametrize("register", [16, 32, 64])
def test_a_wider_register_is_extended(bench: Bench, kind: str, register: int) -> None:
    size = int(kind[1:]) // 8
    if 8 * size > register:
        return
    name = {16: "%rs1", 32: "%r10", 64: "%rd10"}[register]
    body = f"""{INDEX}{pointer(0, size=size)}{pointer(1, size=register // 8)}
    ld.global.{kind} {name}, [%rd0]; st.global.b{register} [%rd1], {name}; ret;"""
    data = BYTES[: N * size].view(f"{'i' if kind[0] == 's' else 'u'}{size}")
    _, out = bench.clean(body, data, np.zeros(N, f"i{register // 8}"), threads=N)
    assert out.tolist() == data.astype(f"i{register // 8}").tolist()


VECTORS = [
    (kind, count)
    for kind in ("u8", "b16", "f32", "u32", "f64", "b64")
    for count in (2, 4)
    if int(kind[1:]) * count <= 128
]


@pytest.mark.parametrize(("kind", "count"), VECTORS)
@pytest.mark.parametrize("order", ["ascending", "strided", "all the same"])
def test_vectors(bench: Bench, kind: str, count: int, order: str) -> None:
    size = int(kind[1:]) // 8
    register = {1: "%rs", 2: "%rs", 4: "%f" if kind == "f32" else "%r", 8: "%fd" if kind == "f64" else "%rd"}[size]
    names = ", ".join(f"{register}{20 + i}" for i in range(count))
    position = {"ascending": "%r0", "strided": "%r5", "all the same": "%r6"}[order]
    body = f"""{INDEX} mul.lo.u32 %r5, %r0, 3; mov.u32 %r6, 2; {pointer(0, position, size * count)}
    {pointer(1, "%r0", size * count)}
    ld.global.v{count}.{kind} {{{names}}}, [%rd0]; st.global.v{count}.{kind} [%rd1], {{{names}}}; ret;"""
    data = np.resize(BYTES, (3 * N, size * count))
    _, out = bench.clean(body, data, np.zeros((N, size * count), np.uint8), threads=N)
    rows = {"ascending": np.arange(N), "strided": 3 * np.arange(N), "all the same": np.full(N, 2)}[order]
    assert out.tolist() == data[rows].tolist()


def test_part_of_a_vector_may_be_dropped_or_literal(bench: Bench) -> None:
    body = f"""{INDEX}{pointer(0, size=16)} ld.global.v4.u32 {{_, %r10, _, %r11}}, [%rd0];
    st.global.v4.u32 [%rd0], {{%r11, 7, %r10, 0}}; ret;"""
    data = np.arange(32 * 4, dtype=np.uint32).reshape(32, 4)
    (out,) = bench.clean(body, data)
    assert out.tolist() == [[row[3], 7, row[1], 0] for row in data.tolist()]


def test_only_lanes_of_the_guard_move(bench: Bench) -> None:
    body = f"""{INDEX}{pointer(0)}{pointer(1)} setp.lt.u32 %p1, %r0, 11; mov.u32 %r10, 99;
    @%p1 ld.global.u32 %r10, [%rd0]; st.global.u32 [%rd1], %r10; @!%p1 st.global.u32 [%rd0+-4], %r0; ret;"""
    data = np.arange(100, 132, dtype=np.uint32)
    changed, out = bench.clean(body, data, np.zeros(32, np.uint32))
    assert out.tolist() == [100 + i if i < 11 else 99 for i in range(32)]
    assert changed.tolist() == [*range(100, 110), *range(11, 32), 131]


@pytest.mark.parametrize(
    "load", ["ld.global.nc", "ld.global.ca", "ld.volatile.global", "ld.relaxed.gpu.global", "ldu.global", "ld"]
)
def test_qualifiers_change_nothing(bench: Bench, load: str) -> None:
    body = f"""{INDEX}{pointer(0)}{pointer(1)} prefetch.global.L2 [%rd0]; prefetchu.L1 [%rd0]; membar.gl;
    fence.acq_rel.gpu;
    {load}.u32 %r10, [%rd0]; st.global.wb.u32 [%rd1], %r10; ret;"""
    data = np.arange(32, dtype=np.uint32)
    assert bench.clean(body, data, np.zeros_like(data))[1].tolist() == data.tolist()


@pytest.mark.parametrize("generic", [False, True])
def test_shared_memory_passes_values_between_warps(bench: Bench, generic: bool) -> None:
    space = "" if generic else ".shared"
    if generic:
        place = (
            "mov.u64 %rd4, tile; cvta.shared.u64 %rd4, %rd4; mad.wide.u32 %rd5, %r0, 4, %rd4; "
            "mad.wide.u32 %rd6, %r11, 4, %rd4;"
        )
        mine, other = "%rd5", "%rd6"
    else:
        place = "mov.u32 %r4, tile; mad.lo.u32 %r5, %r0, 4, %r4; mad.lo.u32 %r6, %r11, 4, %r4;"
        mine, other = "%r5", "%r6"
    body = f""".shared .align 4 .b8 tile[{4 * N}]; {INDEX}{pointer(0)}{pointer(1)} mov.u32 %r12, {N - 1};
    sub.u32 %r11, %r12, %r0;
    {place} ld.global.u32 %r10, [%rd0]; st{space}.u32 [{mine}], %r10; bar.sync 0; ld{space}.u32 %r10, [{other}];
    st.global.u32 [%rd1], %r10; ret;"""
    data = np.arange(N, dtype=np.uint32) * 3
    assert bench.clean(body, data, np.zeros_like(data), threads=N)[1].tolist() == data[::-1].tolist()


def test_one_generic_load_may_reach_two_spaces(bench: Bench) -> None:
    body = f""".shared .align 4 .b8 tile[128]; {INDEX}{pointer(0)} mov.u64 %rd4, tile; cvta.shared.u64 %rd4, %rd4;
    mad.wide.u32 %rd4, %r0, 4, %rd4; add.u32 %r10, %r0, 500; st.u32 [%rd4], %r10; setp.lt.u32 %p1, %r0, 9;
    selp.b64 %rd5, %rd0, %rd4, %p1; ld.u32 %r11, [%rd5]; st.global.u32 [%rd0], %r11; ret;"""
    data = np.arange(32, dtype=np.uint32)
    assert bench.clean(body, data)[0].tolist() == [i if i < 9 else 500 + i for i in range(32)]


def test_static_and_dynamic_shared_memory_lie_apart(bench: Bench) -> None:
    body = f""".shared .align 4 .b8 first[20]; .shared .align 8 .b8 second[16]; {INDEX}{pointer(0)} mov.u32 %r10, first;
    mov.u32 %r11, second; mov.u32 %r12, more; mov.u32 %r13, %dynamic_smem_size; st.shared.u32 [more+60], 5;
    ld.shared.u32 %r14, [%r12+60]; mad.lo.u32 %r15, %r14, 1000, %r13; setp.eq.u32 %p1, %r0, 0;
    @%p1 st.global.v4.u32 [%rd0], {{%r10, %r11, %r12, %r15}}; ret;"""
    (out,) = bench.clean(
        body, np.zeros(4, np.uint32), before=".extern .shared .align 16 .b8 more[];", dynamic_shared=64
    )  # fmt: skip
    assert out.tolist() == [0, 24, 48, 5064]


def test_module_variables_start_with_their_values_and_keep_them(bench: Bench) -> None:
    before = """.visible .const .align 4 .f32 table[4] = {0f3F800000, 0f40000000, 0f40400000};
    .visible .global .u32 calls = 41;"""
    body = f"""{INDEX}{pointer(0)} and.b32 %r10, %r0, 3; mov.u64 %rd4, table; mad.wide.u32 %rd4, %r10, 4, %rd4;
    ld.const.f32 %f1, [%rd4]; ld.const.f32 %f2, [table+4]; ld.global.u32 %r11, [calls]; cvt.rn.f32.u32 %f3, %r11;
    setp.eq.u32 %p1, %r0, 0; add.u32 %r11, %r11, 1; @%p1 st.global.u32 [calls], %r11;
    mul.f32 %f1, %f1, 0f42C80000; add.f32 %f1, %f1, %f2; mul.f32 %f3, %f3, 0f461C4000; add.f32 %f1, %f1, %f3;
    st.global.f32 [%rd0], %f1; ret;"""
    for calls in (41, 42):
        ran = bench.run(body, np.zeros(32, np.float32), before=before)
        assert ran.buffers[0].tolist() == [(1, 2, 3, 0)[i % 4] * 100 + 2 + 10000 * calls for i in range(32)]
        # the second call reads what the first one left, which a candidate must not
        assert [finding.kind for finding in ran.findings] == ["left-over"] * (calls - 41)


def test_parameters_of_all_sizes(bench: Bench) -> None:
    body = """ ld.param.u64 %rd1, [p0]; ld.param.s8 %r1, [p1]; ld.param.u16 %rs1, [p2];
    ld.param.v2.u32 {%r2, %r3}, [p3];
    ld.param.f64 %fd1, [p3+8]; cvt.u32.u16 %r4, %rs1; cvt.rzi.s32.f64 %r5, %fd1; mov.u32 %r6, %tid.x;
    mad.wide.u32 %rd1, %r6, 20, %rd1;
    st.global.u32 [%rd1], %r1; st.global.u32 [%rd1+4], %r2; st.global.u32 [%rd1+8], %r3; st.global.u32 [%rd1+12], %r4;
    st.global.u32 [%rd1+16], %r5; ret;"""
    # a struct passed by value is a run of bytes with an alignment
    (out,) = bench.clean(
        body, np.zeros((32, 5), np.int32), np.int8(-3), np.uint16(65535), struct.pack("<IId", 7, 9, -12.5),
    )  # fmt: skip
    assert out.tolist() == [[-3, 7, 9, 65535, -12]] * 32


@pytest.mark.parametrize(
    "store",
    ["st.const.u32 [%rd0], %r0;", "ld.global.v4.u64 {%rd1,%rd2,%rd3,%rd4}, [%rd0];"],
)
def test_accesses_that_are_not_there_are_refused(bench: Bench, store: str) -> None:
    ran = bench.run(f"{INDEX}{pointer(0)} {store} ret;", np.zeros(64, np.uint64))
    assert ran.kinds == ["unsupported"]
    assert store.split(maxsplit=1)[0] in ran.findings[0].text


@pytest.mark.parametrize("item", [1, 2, 4, 8])
def test_the_machine_knows_which_elements_were_stored(bench: Bench, item: int) -> None:
    rng, machine = np.random.default_rng(item), bench.machine
    name = {1: "%rs1", 2: "%rs1", 4: "%r10", 8: "%rd10"}[item]
    body = f"""{INDEX}{pointer(0)} ld.global.u32 %r5, [%rd0]; {pointer(1, "%r5", item)}
    st.global.b{8 * item} [%rd1], {name}; ret;"""
    for count in (7, 200, 1000):
        start = int(rng.integers(0, count))
        chosen = np.unique([*rng.integers(0, count, 24), *np.arange(start, min(start + 96, count))]).astype(np.uint32)
        out = machine.allocate(count * item)
        assert not machine.stored(out)
        bench.clean(body, chosen, Address(out), threads=len(chosen))
        found = machine.stored_elements(out, count, item)
        assert machine.stored(out)
        assert (np.arange(count) if found is None else found).tolist() == chosen.tolist()
        machine.free(out)
