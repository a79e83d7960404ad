"""Products of matrices against numpy over the documented fragments, and what must be reported."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from ptxkit import Bench, module
from tensor_code import encode_float, move_registers, vector
from tensor_layouts import (
    BITS,
    Fragment,
    a_fragment,
    b_fragment,
    c_fragment,
    decode,
    quad_pair_lanes,
    quad_pair_place,
    sizes,
)

from cupilot.vgpu.lower.table import entry_of
from cupilot.vgpu.ptx.parse import parse_module


@dataclass(frozen=True)
class Mma:
    """One form; ``text`` is the whole opcode."""

    shape: str
    d: str
    a: str
    b: str
    c: str
    suffix: str = ""
    clamp: bool = False

    @property
    def text(self) -> str:
        clamp = ".satfinite" if self.clamp else ""
        return f"mma.sync.aligned.{self.shape}.row.col{clamp}.{self.d}.{self.a}.{self.b}.{self.c}{self.suffix}"

    def __str__(self) -> str:
        return self.text

    @property
    def fragments(self) -> tuple[Fragment, Fragment, Fragment, Fragment]:
        s = self.shape
        return c_fragment(self.d, s), a_fragment(self.a, s), b_fragment(self.b, s), c_fragment(self.c, s)


FLOATS = [
    *(Mma(s, acc, "f16", "f16", acc) for s in ("m16n8k8", "m16n8k16") for acc in ("f16", "f32")),
    *(Mma(s, "f32", "bf16", "bf16", "f32") for s in ("m16n8k8", "m16n8k16")),
    *(Mma(s, "f32", "tf32", "tf32", "f32") for s in ("m16n8k4", "m16n8k8")),
    *(Mma("m16n8k32", "f32", a, b, "f32") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    Mma("m16n8k32", "f16", "e4m3", "e4m3", "f16"),
    Mma("m16n8k16", "f32", "e5m2", "e4m3", "f32"),
]
DOUBLES = [Mma(s, "f64", "f64", "f64", "f64") for s in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")]
INTEGERS = [
    *(Mma(s, "s32", a, b, "s32") for s in ("m8n8k16", "m16n8k16", "m16n8k32") for a in ("s8", "u8")
      for b in ("s8", "u8")),
    *(Mma(s, "s32", a, b, "s32") for s in ("m8n8k32", "m16n8k32", "m16n8k64") for a in ("s4", "u4")
      for b in ("s4", "u4")),
    Mma("m16n8k32", "s32", "s8", "u8", "s32", clamp=True),
    Mma("m8n8k32", "s32", "s4", "s4", "s32", clamp=True),
]  # fmt: skip
BIT_FORMS = [
    Mma(s, "s32", "b1", "b1", "s32", f".{op}.popc")
    for s in ("m8n8k128", "m16n8k128", "m16n8k256")
    for op in ("xor", "and")
]


def run_mma(bench: Bench, form: Mma, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Bit patterns of three matrices to those of the result."""
    fd, fa, fb, fc = form.fragments
    # accumulators and operands may be of one register class: keep them apart
    places = ((fd, form.d, 10), (fa, form.a, 30), (fb, form.b, 40), (fc, form.c, 50))
    names = [vector(kind, first, fragment.registers) for fragment, kind, first in places]
    body = [" mov.u32 %r0, %laneid;"]
    for number, (fragment, kind, first) in enumerate(places[1:]):
        body.append(move_registers("ld", number, kind, first, fragment.registers))
    body.append(f" {form.text} {', '.join(names)};")
    body.append(move_registers("st", 3, form.d, 10, fd.registers) + " ret;")
    out = np.zeros((fd.registers, 32), np.uint64 if form.d == "f64" else np.uint32)
    buffers = bench.clean("\n".join(body), fa.pack(a), fb.pack(b), fc.pack(c), out)
    return fd.unpack(buffers[3])


def random_bits(rng: np.random.Generator, kind: str, rows: int, columns: int, whole: bool) -> np.ndarray:
    """Small whole numbers, or numbers that use all mantissa bits."""
    if whole:
        return encode_float(rng.integers(-3, 4, (rows, columns)).astype(np.float64), kind)
    return encode_float(rng.standard_normal((rows, columns)) * 2.0 ** rng.integers(-3, 4, (rows, columns)), kind)


@pytest.mark.parametrize("form", [*FLOATS, *DOUBLES], ids=str)
def test_whole_numbers_are_exact(bench: Bench, form: Mma) -> None:
    rng = np.random.default_rng(1)
    m, n, k = sizes(form.shape)
    shapes = ((form.a, m, k), (form.b, k, n), (form.c, m, n))
    a, b, c = (random_bits(rng, kind, rows, columns, whole=True) for kind, rows, columns in shapes)
    wanted = decode(a, form.a) @ decode(b, form.b) + decode(c, form.c)
    assert np.array_equal(decode(run_mma(bench, form, a, b, c), form.d), wanted)


@pytest.mark.parametrize("form", [*FLOATS, *DOUBLES], ids=str)
def test_error_is_that_of_one_sum_in_order(bench: Bench, form: Mma) -> None:
    rng = np.random.default_rng(2)
    m, n, k = sizes(form.shape)
    shapes = ((form.a, m, k), (form.b, k, n), (form.c, m, n))
    a, b, c = (random_bits(rng, kind, rows, columns, whole=False) for kind, rows, columns in shapes)
    x, y, z = decode(a, form.a), decode(b, form.b), decode(c, form.c)
    wanted = x @ y + z
    unit = 2.0**-52 if form.d == "f64" else 2.0**-24
    bound = (k + 1) * unit * (np.abs(x) @ np.abs(y) + np.abs(z))
    if form.d == "f16":
        bound += np.abs(wanted) * 2.0**-11 + 2.0**-25
    got = decode(run_mma(bench, form, a, b, c), form.d)
    assert (np.abs(got - wanted) <= bound).all()
    assert np.abs(wanted).min() > 0


@pytest.mark.parametrize("form", [
    Mma("m16n8k16", "f32", "f16", "f16", "f32"), Mma("m16n8k8", "f16", "f16", "f16", "f16"),
    Mma("m16n8k16", "f32", "bf16", "bf16", "f32"), Mma("m16n8k8", "f32", "tf32", "tf32", "f32"),
    Mma("m16n8k32", "f32", "e5m2", "e5m2", "f32"),
], ids=str)  # fmt: skip
def test_special_values(bench: Bench, form: Mma) -> None:
    """Infinities and NaN propagate; the smallest numbers are kept."""
    m, n, k = sizes(form.shape)
    x, y, z = np.zeros((m, k)), np.zeros((k, n)), np.zeros((m, n))
    tiny = {"f16": 2.0**-24, "bf16": 2.0**-133, "tf32": 2.0**-136, "e5m2": 2.0**-16}[form.a]
    x[0, 0], x[1, 1], x[2, 2], x[3, 3] = np.inf, np.nan, tiny, -3 * tiny
    y[0, 0], y[2, 2], y[3, 3] = -2.0, 1.0, 1.0
    y[0, 1:] = 1.0
    z[4, 4] = np.inf
    a, b, c = ((encode_float(v, t)) for v, t in ((x, form.a), (y, form.b), (z, form.c)))
    if form.a == "e5m2":
        a[0, 0], a[1, 1] = 0x7C, 0x7F
    got = decode(run_mma(bench, form, a, b, c), form.d)
    assert got[0, 0] == -np.inf
    assert (got[0, 1:] == np.inf).all()
    assert np.isnan(got[1]).all()
    assert (got[2, 2], got[3, 3], got[4, 4]) == (tiny, -3 * tiny, np.inf)
    assert (got[5:] == 0).all()


def test_tf32_drops_bits_instead_of_rounding(bench: Bench) -> None:
    form = Mma("m16n8k8", "f32", "tf32", "tf32", "f32")
    a = np.full((16, 8), np.float32(1 + 2.0**-11 + 2.0**-12).view(np.uint32), np.uint64)  # would round up to 1 + 2^-10
    b = np.full((8, 8), np.float32(1).view(np.uint32), np.uint64)
    got = decode(run_mma(bench, form, a, b, np.zeros((16, 8), np.uint64)), "f32")
    assert (got == 8).all()


def test_half_sums_are_rounded_once(bench: Bench) -> None:
    """2048 + sixteen times 0.25 would stay 2048 if every step were rounded to half precision."""
    form = Mma("m16n8k16", "f16", "f16", "f16", "f16")
    a, b, c = (encode_float(np.full(s, v), "f16") for s, v in (((16, 16), 0.25), ((16, 8), 1.0), ((16, 8), 2048.0)))
    assert (decode(run_mma(bench, form, a, b, c), "f16") == 2052).all()


@pytest.mark.parametrize("form", INTEGERS, ids=str)
def test_integers(bench: Bench, form: Mma) -> None:
    rng = np.random.default_rng(3)
    m, n, k = sizes(form.shape)
    a, b = (rng.integers(0, 1 << BITS[form.a], s).astype(np.uint64) for s in ((m, k), (k, n)))
    c = rng.integers(0, 1 << 32, (m, n)).astype(np.uint64)
    c[:, :3], c[:, 3:6] = 0x7FFFFFFF, 0x80000000  # sums that leave the range
    a[0], a[1] = 0, (1 << BITS[form.a]) - 1
    wanted = decode(a, form.a) @ decode(b, form.b) + decode(c, "s32")
    if form.clamp:
        assert wanted.max() > 2**31 - 1
        assert wanted.min() < -(2**31)
        wanted = np.clip(wanted, -(2**31), 2**31 - 1)
    assert np.array_equal(run_mma(bench, form, a, b, c), wanted.astype(np.uint64) & np.uint64(0xFFFFFFFF))


@pytest.mark.parametrize("form", BIT_FORMS, ids=str)
def test_bits(bench: Bench, form: Mma) -> None:
    rng = np.random.default_rng(4)
    m, n, k = sizes(form.shape)
    a, b = (rng.integers(0, 2, s).astype(np.uint64) for s in ((m, k), (k, n)))
    c = rng.integers(0, 1 << 32, (m, n)).astype(np.uint64)
    pairs = a[:, :, None] ^ b[None] if "xor" in form.suffix else a[:, :, None] & b[None]
    wanted = (pairs.sum(1) + c) & np.uint64(0xFFFFFFFF)
    assert np.array_equal(run_mma(bench, form, a, b, c), wanted)


@pytest.mark.parametrize("layouts", ["row.col", "row.row", "col.col", "col.row"])
@pytest.mark.parametrize(("d", "c"), [("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32")])
def test_quad_pairs(bench: Bench, layouts: str, d: str, c: str) -> None:
    """`mma.m8n8k4` on halves: four products with a layout of their own."""
    rng = np.random.default_rng(5)
    a_layout, b_layout = layouts.split(".")
    left, right, add = (rng.integers(-4, 5, (4, *s)).astype(np.float64) for s in ((8, 4), (4, 8), (8, 8)))

    def registers(matrices: np.ndarray, matrix: str, layout: str, kind: str, count: int) -> np.ndarray:
        elements = np.zeros((count, 32), np.uint64)
        for number in range(4):
            for lane in quad_pair_lanes(number):
                for i in range(count):
                    value = np.array(matrices[number][quad_pair_place(matrix, layout, lane, i)])
                    elements[i, lane] = encode_float(value, kind)
        if kind == "f32":
            return elements.astype(np.uint32)
        return (elements[::2] | elements[1::2] << np.uint64(16)).astype(np.uint32)

    count = {"f32": 8, "f16": 4}
    text = f"mma.sync.aligned.m8n8k4.{layouts}.{d}.f16.f16.{c}"
    body = [" mov.u32 %r0, %laneid;", move_registers("ld", 0, "f16", 30, 2), move_registers("ld", 1, "f16", 40, 2),
            move_registers("ld", 2, c, 50, count[c]),
            f" {text} {vector(d, 10, count[d])}, {vector('f16', 30, 2)}, {vector('f16', 40, 2)}, "
            f"{vector(c, 50, count[c])};", move_registers("st", 3, d, 10, count[d]), " ret;"]  # fmt: skip
    got = bench.clean(
        "\n".join(body), registers(left, "a", a_layout, "f16", 4), registers(right, "b", b_layout, "f16", 4),
        registers(add, "c", c, c, 8), np.zeros((count[d], 32), np.uint32),
    )[3]  # fmt: skip
    assert np.array_equal(got, registers(left @ right + add, "c", d, d, 8))


# --- what must be reported --------------------------------------------------------------------

PRODUCT = (
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r1, %r2}, {%r3}, {%f0, %f1, %f2, %f3};"
)


def test_lanes_missing(bench: Bench) -> None:
    body = f" mov.u32 %r0, %laneid; setp.lt.u32 %p1, %r0, 20; @%p1 {PRODUCT} ret;"
    ran = bench.run(body)
    assert ran.kinds == ["divergent-mma"]
    assert "20 of 32 lanes" in ran.findings[0].text
    assert ran.findings[0].threads == 20
    assert bench.run(f" {PRODUCT} ret;", threads=48).kinds == ["divergent-mma"]


def test_whole_warps_may_stay_away(bench: Bench) -> None:
    body = f" mov.u32 %r0, %tid.x; setp.lt.u32 %p1, %r0, 32; @%p1 {PRODUCT} ret;"
    bench.clean(body, threads=64)


def test_a_guard_that_is_false_leaves_the_registers(bench: Bench) -> None:
    body = f""" mov.u32 %r0, %laneid; ld.param.u32 %r9, [p1]; setp.ne.u32 %p1, %r9, 0;
 mov.f32 %f0, 0f40400000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; mov.b32 %r1, 0x3c003c00;
 mov.b32 %r2, %r1; mov.b32 %r3, %r1; @%p1 {PRODUCT} {move_registers("st", 0, "f32", 0, 4)} ret;"""
    for flag, value in ((0, 3.0), (1, 11.0)):
        assert (bench.clean(body, np.zeros((4, 32), np.float32), np.uint32(flag))[0] == value).all()


@pytest.mark.parametrize(("instruction", "what"), [
    ("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r1, %r2}, {%r3, %r4}, "
     "{%f0, %f1, %f2, %f3}, %r5, 0x0;", "mma.sp"),
    ("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32 {%f0, %f1, %f2, %f3}, {%r1, %r2, %r3, %r4}, "
     "{%r5, %r6}, {%f0, %f1, %f2, %f3};", "kind::f8f6f4"),
    ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r2}, [%r3];", "m8n8"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f0, %f1};",
     "registers"),
])  # fmt: skip
def test_what_is_not_covered_says_so(bench: Bench, instruction: str, what: str) -> None:
    ran = bench.run(f" {instruction} ret;")
    assert ran.status != 0
    assert "unsupported on the virtual GPU" in ran.findings[0].text
    assert what in ran.findings[0].text


@pytest.mark.parametrize(("text", "wanted"), [
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", ("fp16", 4096)),
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", ("fp16", 2048)),
    ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", ("int8", 8192)),
    ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", ("fp64", 512)),
    ("wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32", ("tf32", 4096)),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", ("fp16", 8192)),
    ("wmma.load.a.sync.aligned.row.m16n16k16.global.f16", None),
    ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", None),
])  # fmt: skip
def test_operations_of_a_product(text: str, wanted: tuple[str, int] | None) -> None:
    code = module(f" {text} %r1, %r2; ret;", "k", ())
    instruction = parse_module(code).functions["k"].body[0]
    assert not isinstance(instruction, str)
    assert entry_of(instruction).tensor_flop(instruction) == wanted
