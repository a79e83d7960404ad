"""Atomic updates against a simulation of the lanes one after the other: atom, red."""

from __future__ import annotations

import random

import numpy as np
import pytest
from atomic_forms import BITS, SLOTS, Atomic, array, body_of, is_nan, operation_of
from forms import ENGINE, edges_of
from hypothesis import given
from hypothesis import strategies as st
from ptxkit import INDEX, Address, Bench, Blank, pointer

HALVES = ("f16", "bf16", "f16x2", "bf16x2")
FORMS = [
    *(Atomic(name, kind) for name in ("and", "or", "xor", "exch", "cas") for kind in ("b32", "b64")),
    Atomic("cas", "b16"),
    Atomic("inc", "u32"),
    Atomic("dec", "u32"),
    *(Atomic("add", kind) for kind in ("u32", "s32", "u64", "f32", "f64", *HALVES)),
    *(Atomic(name, kind) for name in ("min", "max") for kind in ("u32", "s32", "u64", "s64")),
]
REDUCTIONS = [Atomic(f.name, f.kind, "red") for f in FORMS if f.name not in ("exch", "cas")]
HALF_EDGES = {
    "f16": (0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0x3C01, 0xBC00, 0x7BFF, 0xFBFF, 0x6800, 0x7C00, 0xFC00, 0x7E01),
    "bf16": (0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x3F80, 0x3F81, 0xBF80, 0x7F7F, 0xFF7F, 0x4300, 0x7F80, 0xFF80, 0x7FC1),
}


def edges(kind: str) -> list[int]:
    base = kind.removesuffix("x2")
    if base not in HALF_EDGES:
        return edges_of(kind if kind in ("f32", "f64") else f"u{BITS[kind]}")
    shorts = HALF_EDGES[base]
    return list(shorts) if base == kind else [low | high << 16 for low, high in zip(shorts, shorts[::-1], strict=True)]


def lanes_of(form: Atomic, rng: random.Random) -> tuple[list[int], list[tuple[int, int, int]]]:
    """A small memory and (slot, b, c) for each lane; edges often, and often what the memory already holds."""
    known = edges(form.kind)

    def value() -> int:
        return rng.choice(known) if rng.random() < 0.7 else rng.getrandbits(form.bits)

    memory = [value() for _ in range(SLOTS)]
    slots = rng.choice((1, 2, SLOTS))  # all lanes at one place, or spread
    lanes = []
    for _ in range(32):
        slot = rng.randrange(slots)
        lanes.append((slot, memory[slot] if rng.random() < 0.2 else value(), value()))
    return memory, lanes


def same(have: int, want: int, kind: str) -> bool:
    """Equal bits; a NaN may be any NaN."""
    base = kind.removesuffix("x2")
    if base != kind:
        return all(same(have >> s & 0xFFFF, want >> s & 0xFFFF, base) for s in (0, 16))
    return have == want or (base in ("f16", "bf16", "f32", "f64") and is_nan(have, base) and is_nan(want, base))


def check(bench: Bench, form: Atomic, memory: list[int], lanes: list[tuple[int, int, int]]) -> None:
    slots, b, c = (list(part) for part in zip(*lanes, strict=True))
    buffers = bench.clean(
        body_of(form), array(slots, 32), array(b, form.bits), array(c, form.bits), array(memory * 4, form.bits),
        np.zeros(128, f"u{form.bits // 8}"),
    )  # fmt: skip
    for number, where in enumerate(("global", "generic", "shared", "generic shared")):
        wanted = list(memory)
        found = form.run(wanted, lanes, shared=number >= 2)
        after = buffers[3][number * SLOTS : (number + 1) * SLOTS].tolist()
        assert all(map(same, after, wanted, [form.kind] * SLOTS)), (where, memory, lanes, after, wanted)
        if form.opcode == "atom":
            got = buffers[4][number * 32 : number * 32 + 32].tolist()
            assert all(map(same, got, found, [form.kind] * 32)), (where, memory, lanes, got, found)


@pytest.mark.parametrize("form", [*FORMS, *REDUCTIONS], ids=str)
def test_operations(bench: Bench, form: Atomic) -> None:
    rng = random.Random(str(form))
    for _ in range(12 if form.opcode == "atom" else 4):
        check(bench, form, *lanes_of(form, rng))


@given(form=st.sampled_from(FORMS), data=st.data())
@ENGINE
def test_drawn_operations(bench: Bench, form: Atomic, data: st.DataObject) -> None:
    value = st.integers(0, (1 << form.bits) - 1)
    memory = data.draw(st.lists(value, min_size=SLOTS, max_size=SLOTS))
    lane = st.tuples(st.integers(0, SLOTS - 1), value | st.sampled_from(memory), value)
    check(bench, form, memory, data.draw(st.lists(lane, min_size=32, max_size=32)))


def test_increments_wrap_around_at_the_operand(bench: Bench) -> None:
    body = INDEX + pointer(1) + " ld.param.u64 %rd0, [p0]; atom.global.inc.u32 %r5, [%rd0], 4; "
    body += "atom.global.dec.u32 %r6, [%rd0+4], 4; shl.b32 %r6, %r6, 8; or.b32 %r5, %r5, %r6;"
    body += " st.global.u32 [%rd1], %r5; ret;"
    memory, found = bench.clean(body, np.array([3, 1], np.uint32), np.zeros(32, np.uint32))
    assert found.tolist() == [(3 + i) % 5 | (1 - i) % 5 << 8 for i in range(32)]
    assert memory.tolist() == [35 % 5, (1 - 32) % 5]


def test_subnormal_sums(bench: Bench) -> None:
    """Addition in global memory has none (as operand or result), in shared memory it does."""
    form, smallest, half_more = Atomic("add", "f32"), 0x00800000, 0x80C00000
    cases = [(smallest, half_more), (half_more, smallest), (0x00400000, 0x00400000), (1, 0x3F800000), (0x80000001, 0)]
    for memory, value in cases:
        check(bench, form, [memory] * SLOTS, [(lane % SLOTS, value, 0) for lane in range(32)])


# --- how instructions are written -----------------------------------------------------------

SPELLINGS = [
    "atom.global.add.u32 %r12, [%rd0], 5;",
    "atom.relaxed.gpu.global.add.u32 %r12, [%rd0], 5;",
    "atom.add.acq_rel.sys.global.s32 %r12,[%rd0],5;",
    "atom.acquire.cluster.add.u32 %r12, [%rd0+0], 5;",
    "atom.add.release.gpu.s32 %r12,[%rd0],%r10;",
    "mov.u64 %rd9, 0; atom.global.add.L2::cache_hint.u32 %r12, [%rd0], 5, %rd9;",
    "atom.global.u32.add %r12, [%rd0], 5;",
    "atom.global.cta.add.u32 %r12, [%rd0], 5;",
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_orders_scopes_and_hints(bench: Bench, text: str) -> None:
    body = f"{INDEX} ld.param.u64 %rd0, [p0];{pointer(1)} mov.u32 %r10, 5; {text} st.global.u32 [%rd1], %r12; ret;"
    memory, found = bench.clean(body, np.array([7], np.uint32), np.zeros(32, np.uint32))
    assert memory[0] == 7 + 160
    assert found.tolist() == [7 + 5 * i for i in range(32)]


@pytest.mark.parametrize(
    "text",
    [
        "atom.global.add.u32 _, [%rd0], 5;",
        "atom.global.exch.b32 _, [%rd0], 167;",
        "red.release.gpu.global.add.u32 [%rd0], 5;",
        "red.add.L2::cache_hint.u32 [%rd0], 5, %rd0;",
    ],
)
def test_results_that_nobody_wants(bench: Bench, text: str) -> None:
    body = f"ld.param.u64 %rd0, [p0]; {text} ret;"
    assert bench.clean(body, np.array([7], np.uint32))[0][0] == 167


def test_a_guard_leaves_other_lanes_alone(bench: Bench) -> None:
    body = f"""{INDEX} ld.param.u64 %rd0, [p0];{pointer(1)} mov.u32 %r12, 99; and.b32 %r5, %r0, 1;
    setp.eq.u32 %p1, %r5, 0; @!%p1 atom.global.add.u32 %r12, [%rd0], 3; st.global.u32 [%rd1], %r12; ret;"""
    memory, found = bench.clean(body, np.zeros(1, np.uint32), np.zeros(32, np.uint32))
    assert memory[0] == 48
    assert found.tolist() == [3 * (i // 2) if i % 2 else 99 for i in range(32)]


def test_divergent_lanes_come_in_turn(bench: Bench) -> None:
    body = f"""{INDEX} ld.param.u64 %rd0, [p0];{pointer(1)} setp.lt.u32 %p1, %r0, 10; @%p1 bra A;
    atom.global.add.u32 %r12, [%rd0], 100; bra B; A: atom.global.add.u32 %r12, [%rd0], 1;
    B: st.global.u32 [%rd1], %r12; ret;"""
    memory, found = bench.clean(body, np.zeros(1, np.uint32), np.zeros(32, np.uint32))
    assert memory[0] == 2210
    assert len(set(found.tolist())) == 32


def test_an_offset_in_a_shared_variable(bench: Bench) -> None:
    body = f""" .shared .align 4 .b8 box[64];{INDEX}{pointer(0)} mov.u32 %r5, 0; st.shared.u32 [box+8], %r5; bar.sync 0;
    atom.shared::cta.add.u32 %r5, [box+8], 2; st.global.u32 [%rd0], %r5; ret;"""
    assert bench.clean(body, np.zeros(32, np.uint32))[0].tolist() == [2 * i for i in range(32)]


# --- vectors --------------------------------------------------------------------------------

VECTORS = [
    *((kind, 2, "add") for kind in ("f32", *HALVES)), ("f32", 4, "add"), ("f16", 4, "min"), ("bf16", 4, "max"),
    ("f16", 8, "add"), ("bf16", 8, "min"), ("f16x2", 4, "max"), ("bf16x2", 4, "add"),
]  # fmt: skip


@pytest.mark.parametrize("opcode", ["atom", "red"])
@pytest.mark.parametrize(("kind", "count", "name"), VECTORS)
def test_vectors(bench: Bench, opcode: str, kind: str, count: int, name: str) -> None:
    bits, rng = BITS[kind], random.Random(f"{kind}{count}{name}")
    r, size = {16: "%rs", 32: "%f" if kind == "f32" else "%r"}[bits], bits // 8
    operands = ", ".join(f"{r}{10 + n}" for n in range(count))
    results = ", ".join(f"{r}{20 + n}" for n in range(count))
    noftz = "" if kind == "f32" else ".noftz"
    body = INDEX + " ld.param.u64 %rd0, [p0];" + pointer(1, size=size * count) + pointer(2, size=size * count)
    body += "".join(f" ld.global.b{bits} {r}{10 + n}, [%rd1+{n * size}];" for n in range(count))
    target = f"{{{results}}}, " if opcode == "atom" else ""
    body += f" {opcode}.global.v{count}.{kind}.{name}{noftz} {target}[%rd0], {{{operands}}};"
    if opcode == "atom":
        body += "".join(f" st.global.b{bits} [%rd2+{n * size}], {r}{20 + n};" for n in range(count))
    known = edges(kind)
    memory = [rng.choice(known) for _ in range(count)]
    values = [[rng.choice(known) for _ in range(count)] for _ in range(32)]
    out = bench.clean(
        body + " ret;", array(memory, bits), np.array(values, f"u{size}"), np.zeros((32, count), f"u{size}")
    )  # fmt: skip
    apply = operation_of(name, kind, shared=False)
    for lane in range(32):
        if opcode == "atom":
            assert all(map(same, out[2][lane].tolist(), memory, [kind] * count)), (lane, out[2][lane], memory)
        memory = [apply(old, b, 0) for old, b in zip(memory, values[lane], strict=True)]
    assert all(map(same, out[0].tolist(), memory, [kind] * count))


@pytest.mark.parametrize("name", ["exch", "cas"])
def test_128_bits(bench: Bench, name: str) -> None:
    """Lanes exchange in order; of the comparisons, only the first that expects the content succeeds."""
    third = ", %q1" if name == "cas" else ""
    body = f""" .reg .b128 %q<4>;{INDEX} ld.param.u64 %rd0, [p0];{pointer(1, size=16)}
    cvt.u64.u32 %rd5, %r0; add.u64 %rd6, %rd5, 1000; mov.b128 %q0, {{%rd5, %rd6}}; add.u64 %rd5, %rd5, 1;
    add.u64 %rd6, %rd6, 1; mov.b128 %q1, {{%rd5, %rd6}};
    atom.global.{name}.b128 %q2, [%rd0], %q0{third}; mov.b128 {{%rd7, %rd8}}, %q2;
    st.global.v2.u64 [%rd1], {{%rd7, %rd8}}; ret;"""
    memory, found = bench.clean(body, np.array([3, 1003], np.uint64), np.zeros((32, 2), np.uint64))
    if name == "cas":  # lanes 3, 4, 5 ... find what they expect, one after the other
        assert found.tolist() == [[max(i, 3), 1000 + max(i, 3)] for i in range(32)]
        assert memory.tolist() == [32, 1032]
    else:
        assert found.tolist() == [[3, 1003], *([i, 1000 + i] for i in range(31))]
        assert memory.tolist() == [31, 1031]


# --- contention -----------------------------------------------------------------------------

CONTENDED = [
    ("add.u32 %r5, [%rd0], %r0", lambda n: n * (n - 1) // 2 % 2**32),
    ("max.u32 %r5, [%rd0], %r0", lambda n: n - 1),
    ("xor.b32 %r5, [%rd0], %r0", lambda n: int(np.bitwise_xor.reduce(np.arange(n)))),
    ("inc.u32 %r5, [%rd0], 1000", lambda n: n % 1001),
]


@pytest.mark.parametrize(("text", "total"), CONTENDED)
def test_blocks_on_several_host_threads(bench: Bench, text: str, total: object) -> None:
    body = f"{INDEX} ld.param.u64 %rd0, [p0]; " + f"atom.global.{text}; ret;"
    (out,) = bench.clean(body, np.zeros(1, np.uint32), threads=96, grid=200, workers=2)
    assert int(out[0]) == total(96 * 200)  # type: ignore[operator]


def test_every_ticket_is_given_once(bench: Bench) -> None:
    """Spread addresses, so that single lanes update on their own."""
    body = f"""{INDEX} ld.param.u64 %rd0, [p0];{pointer(1)} and.b32 %r5, %r0, 3; mad.wide.u32 %rd0, %r5, 4, %rd0;
    atom.global.add.u32 %r6, [%rd0], 4; add.u32 %r6, %r6, %r5; st.global.u32 [%rd1], %r6; ret;"""
    count = 64 * 300
    counters, tickets = bench.clean(
        body, np.zeros(4, np.uint32), np.zeros(count, np.uint32), threads=64, grid=300, workers=2
    )
    assert counters.tolist() == [count] * 4
    assert sorted(tickets.tolist()) == list(range(count))


def test_floats_and_halves_from_several_host_threads(bench: Bench) -> None:
    """Many updates of one place each, so that host threads get in each other's way."""
    update = """ atom.global.add.f32 %f2, [%rd0], 0f3F800000; red.global.add.noftz.f16x2 [%rd0+4], %r5;
    red.global.add.f64 [%rd0+8], 0d3FF0000000000000; red.global.max.s64 [%rd0+16], %rd5;"""
    body = f""" ld.param.u64 %rd0, [p0]; mov.u32 %r6, %ctaid.x; mov.u32 %r5, 0x00010000; cvt.u64.u32 %rd5, %r6;
    {update * 20} ret;"""
    (out,) = bench.clean(body, np.zeros(24, np.uint8), threads=32, grid=1000, workers=2)
    count = 32 * 20 * 1000
    assert out[:4].view(np.float32)[0] == count
    assert out[6:8].view(np.float16)[0] == 2048 * 2.0**-24  # one step more is half a digit, rounded to even
    assert out[8:16].view(np.float64)[0] == count
    assert out[16:].view(np.int64)[0] == 999


def test_a_compare_and_swap_loop_loses_no_update(bench: Bench) -> None:
    """How CUDA code makes an atomic multiplication, or any other it lacks."""
    body = """ ld.param.u64 %rd0, [p0]; ld.global.u32 %r5, [%rd0];
    L: add.u32 %r6, %r5, 3; atom.global.cas.b32 %r7, [%rd0], %r5, %r6; setp.ne.u32 %p1, %r7, %r5; mov.u32 %r5, %r7;
    @%p1 bra L; ret;"""
    (out,) = bench.clean(body, np.zeros(1, np.uint32), threads=64, grid=100, workers=2)
    assert out[0] == 3 * 64 * 100


def test_a_histogram_in_shared_memory(bench: Bench) -> None:
    values = np.random.default_rng(3).integers(0, 16, 1024).astype(np.uint32)
    body = f""" .shared .align 4 .b8 bins[64];{INDEX}{pointer(0)} mov.u32 %r20, %tid.x; setp.lt.u32 %p1, %r20, 16;
    mov.u32 %r5, bins; mad.lo.u32 %r6, %r20, 4, %r5; mov.u32 %r7, 0; @%p1 st.shared.u32 [%r6], %r7; bar.sync 0;
    ld.global.u32 %r8, [%rd0]; mad.lo.u32 %r8, %r8, 4, %r5; atom.shared.add.u32 %r9, [%r8], 1; bar.sync 0;
    @!%p1 bra END; ld.shared.u32 %r9, [%r6];{pointer(1, index="%r20")} red.global.add.u32 [%rd1], %r9; END: ret;"""
    _, bins = bench.clean(body, values, np.zeros(16, np.uint32), threads=256, grid=4, workers=2)
    assert bins.tolist() == np.bincount(values, minlength=16).tolist()


@pytest.mark.parametrize(("order", "kinds"), [("acq_rel", set()), ("release", set()), ("relaxed", {"global-race"})])
def test_a_release_makes_the_writes_of_a_block_visible(bench: Bench, order: str, kinds: set[str]) -> None:
    """The last block to take a ticket reads what the others wrote."""
    body = f""" mov.u32 %r0, %ctaid.x;{pointer(0)} st.global.u32 [%rd0], %r0; ld.param.u64 %rd1, [p1];
    mov.u32 %r4, %tid.x; setp.ne.u32 %p1, %r4, 0; @%p1 bra END; atom.{order}.gpu.global.add.u32 %r5, [%rd1], 1;
    setp.ne.u32 %p2, %r5, 3; @%p2 bra END; ld.param.u64 %rd0, [p0]; ld.global.v4.u32 {{%r6, %r7, %r8, %r9}}, [%rd0];
    add.u32 %r6, %r6, %r7; add.u32 %r6, %r6, %r8; add.u32 %r6, %r6, %r9; st.global.u32 [%rd1+4], %r6; END: ret;"""
    ran = bench.run(body, np.zeros(4, np.uint32), np.zeros(2, np.uint32), grid=4)
    assert set(ran.kinds) == kinds
    assert ran.buffers[1].tolist() == [4, 6]


# --- findings -------------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", ["atom.global.add.u32 %r5,", "red.add.u32"])
def test_out_of_bounds(bench: Bench, opcode: str) -> None:
    """Lanes that are fine act, the others get zero, and the finding names the first of them."""
    body = f"{INDEX} mov.u32 %r5, 7;{pointer(0)}{pointer(1)} {opcode} [%rd0], 1; st.global.u32 [%rd1], %r5; ret;"
    ran = bench.run(body, np.full(28, 5, np.uint32), np.zeros(32, np.uint32))
    assert set(ran.kinds) == {"out-of-bounds"}
    (found,) = ran.findings
    assert (found.block, found.thread, found.threads) == ((0, 0, 0), (28, 0, 0), 4)
    assert found.access is not None
    assert found.access.kind == "atomic"
    assert ran.buffers[0].tolist() == [6] * 28
    if opcode.startswith("atom"):
        assert ran.buffers[1].tolist() == [5] * 28 + [0] * 4


def test_out_of_bounds_in_shared_memory(bench: Bench) -> None:
    body = f""" .shared .align 4 .b8 box[64];{INDEX}{pointer(0)} mov.u32 %r5, box; mad.lo.u32 %r5, %r0, 4, %r5;
    setp.lt.u32 %p1, %r0, 16; @%p1 st.shared.u32 [%r5], %r0; bar.sync 0; atom.shared.add.u32 %r6, [%r5], 1;
    st.global.u32 [%rd0], %r6; ret;"""
    ran = bench.run(body, np.zeros(32, np.uint32))
    assert set(ran.kinds) == {"out-of-bounds"}
    assert ran.buffers[0].tolist() == [*range(16), *[0] * 16]


@pytest.mark.parametrize(("text", "offset"), [("add.u32 [%rd0], 1", 2), ("add.f64 [%rd0], 0d3FF0000000000000", 4),
                                               ("add.v4.f32 [%rd0], {%f1, %f1, %f1, %f1}", 8)])  # fmt: skip
def test_misaligned(bench: Bench, text: str, offset: int) -> None:
    body = f"ld.param.u64 %rd0, [p0]; add.u64 %rd0, %rd0, {offset}; mov.f32 %f1, 0f3F800000; red.global.{text}; ret;"
    ran = bench.run(body, np.zeros(64, np.uint8))
    assert set(ran.kinds) == {"misaligned"}
    assert not ran.buffers[0].any()


def test_memory_that_nothing_was_written_to(bench: Bench) -> None:
    ran = bench.run("ld.param.u64 %rd0, [p0]; red.global.add.u32 [%rd0], 1; ret;", Blank(4))
    assert ran.kinds[0] == "uninitialized"


def test_a_wild_address(bench: Bench) -> None:
    body = "ld.param.u64 %rd0, [p0]; atom.add.u32 %r5, [%rd0], 1; ret;"
    assert set(bench.run(body, Address(0x1234)).kinds) == {"out-of-bounds"}


def test_lanes_that_update_different_buffers(bench: Bench) -> None:
    body = f"""{INDEX} ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; and.b32 %r5, %r0, 1; setp.eq.u32 %p1, %r5, 0;
    selp.b64 %rd2, %rd0, %rd1, %p1; red.global.add.u32 [%rd2], 1; ret;"""
    first, second = bench.clean(body, np.zeros(1, np.uint32), np.zeros(1 << 20, np.uint32))
    assert (first[0], second[0]) == (16, 16)


@pytest.mark.parametrize(
    "text",
    [
        "red.async.relaxed.cluster.global.add.u32 [%rd0], 1;",
        "atom.global.min.f32 %f1, [%rd0], %f2;",
        "red.global.exch.b32 [%rd0], 1;",
        "atom.shared::cluster.add.u32 %r5, [%r6], 1;",
        "atom.global.add.v2.u32 {%r5, %r6}, [%rd0], {%r5, %r6};",
    ],
)
def test_forms_that_do_not_exist_or_are_not_supported(bench: Bench, text: str) -> None:
    ran = bench.run(f"ld.param.u64 %rd0, [p0]; {text} ret;", np.zeros(4, np.uint32))
    assert ran.status != 0
    assert any(text.split(maxsplit=1)[0] in finding.text for finding in ran.findings), ran.findings


def test_requests_are_counted(bench: Bench) -> None:
    ran = bench.run(f"{INDEX}{pointer(0)} red.global.add.u32 [%rd0], 1; ret;", np.zeros(128, np.uint32), threads=128,
                    profile=True)  # fmt: skip
    assert ran["instructions_lsu"] == 4
    assert ran["global_atomic_requests"] == 4
