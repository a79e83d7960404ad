"""Moves and conversions, with references over Python's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache

import exact
from exact import flushed, saturated
from forms import Form, decode, encode

INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
ROUND: dict[str, Callable[[float], int]] = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def integer_from(x: float, to: str, source: str, mode: str) -> int:
    """Out of range clamps; NaN is zero, or the top bit alone where 64 bits are involved (PTX ISA, cvt)."""
    bits, signed = int(to[1:]), to[0] == "s"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if math.isnan(x):
        return (low if signed else 1 << (bits - 1)) if source == "f64" or bits == 64 else 0
    if math.isinf(x):
        return high if x > 0 else low
    return min(max(ROUND[mode](x), low), high)


def integral(x: float, mode: str) -> float:
    return math.copysign(float(ROUND[mode](x)), x) if math.isfinite(x) else x


def float_from(x: int, to: str, mode: str = "rn") -> float:
    return exact.to_float(Fraction(x), to, mode) if x else 0.0


def narrowed(x: float) -> float:
    return exact.to_float(Fraction(x), "f32") if math.isfinite(x) and x else x


def _to_integer() -> Iterator[Form]:
    for source in ("f32", "f64"):
        for to in INTEGERS:
            yield Form(f"cvt.rzi.{to}.{source}", to, (source,), lambda x, t=to, s=source: integer_from(x, t, s, "rzi"))
        for mode in ("rni", "rmi", "rpi"):
            for to in ("s32", "u32", "s64"):
                yield Form(
                    f"cvt.{mode}.{to}.{source}", to, (source,),
                    lambda x, t=to, s=source, m=mode: integer_from(x, t, s, m),
                )  # fmt: skip
    yield Form("cvt.rpi.ftz.s32.f32", "s32", ("f32",), lambda x: integer_from(flushed(x), "s32", "f32", "rpi"))


def _to_float() -> Iterator[Form]:
    for source in INTEGERS:
        for to in ("f32", "f64"):
            yield Form(f"cvt.rn.{to}.{source}", to, (source,), lambda x, t=to: float_from(x, t))
    for mode in ("rz", "rm", "rp"):
        for source in ("s32", "u32", "s16", "s64", "u64"):
            yield Form(f"cvt.{mode}.f32.{source}", "f32", (source,), lambda x, m=mode: float_from(x, "f32", m))
        for source in ("s64", "u64", "s32"):
            yield Form(f"cvt.{mode}.f64.{source}", "f64", (source,), lambda x, m=mode: float_from(x, "f64", m))
        yield Form(f"cvt.{mode}.f32.f64", "f32", ("f64",), lambda x, m=mode: exact.rounded(x, "f32", m))
        yield Form(f"cvt.{mode}.ftz.f32.f64", "f32", ("f64",), lambda x, m=mode: flushed(exact.rounded(x, "f32", m)))
    yield Form("cvt.rn.sat.f32.s32", "f32", ("s32",), lambda x: saturated(float(x)))
    yield Form("cvt.f64.f32", "f64", ("f32",), lambda x: x)
    yield Form("cvt.ftz.f64.f32", "f64", ("f32",), flushed)
    yield Form("cvt.rn.f32.f64", "f32", ("f64",), narrowed)
    yield Form("cvt.rn.ftz.f32.f64", "f32", ("f64",), lambda x: flushed(narrowed(x)))
    yield Form("cvt.rn.sat.f32.f64", "f32", ("f64",), lambda x: saturated(narrowed(x)))
    yield Form("cvt.sat.f32.f32", "f32", ("f32",), saturated)
    yield Form("cvt.ftz.sat.f32.f32", "f32", ("f32",), lambda x: saturated(flushed(x)))
    for mode in ROUND:
        yield Form(f"cvt.{mode}.f32.f32", "f32", ("f32",), lambda x, m=mode: integral(x, m))
        yield Form(f"cvt.{mode}.f64.f64", "f64", ("f64",), lambda x, m=mode: integral(x, m))
    yield Form("cvt.rpi.ftz.f32.f32", "f32", ("f32",), lambda x: integral(flushed(x), "rpi"))


HALVES = ("f16", "bf16")
# fp32 values whose f16 or bf16 neighbours are ties, or that overflow
TIES = (
    1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-23, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-23,
    65504.0, 65519.0, 65520.0, -65520.0, 2.0**-25, 2.0**-25 * 1.5, 2.0**-24, -(2.0**-26), 3.39e38, 3.4e38, -1.0, 0.0,
    -0.0, 2.0**-134, 2.0**-149, 0.1, math.inf, -math.inf, math.nan,
)  # fmt: skip


def _clamped(x: float, kind: str) -> float:
    """``.satfinite``"""
    largest = 448.0 if kind == "e4m3" else exact.FORMATS[kind].largest
    return x if math.isnan(x) else math.copysign(min(abs(x), largest), x)


def _relu(x: float) -> float:
    return x if math.isnan(x) or x > 0 else 0.0


def _halves() -> Iterator[Form]:
    for half in HALVES:
        for mode in ("rn", "rz", "rm", "rp"):
            form = lambda source, k=half, m=mode: Form(  # noqa: E731
                f"cvt.{m}.{k}.{source}", k, (source,), lambda x: exact.rounded(x, k, m),
                edges=TIES if source == "f32" else (),
            )  # fmt: skip
            yield form("f32")
            yield form("f64")
            for source in INTEGERS:
                if mode in ("rn", "rz") or source in ("s64", "u32"):
                    yield Form(
                        f"cvt.{mode}.{half}.{source}", half, (source,), lambda x, k=half, m=mode: float_from(x, k, m)
                    )
        for to in ("f32", "f64"):
            yield Form(f"cvt.{to}.{half}", to, (half,), lambda x: x)
        for to in INTEGERS:
            yield Form(f"cvt.rzi.{to}.{half}", to, (half,), lambda x, t=to, s=half: integer_from(x, t, s, "rzi"))
        for mode in ROUND:
            yield Form(f"cvt.{mode}.{half}.{half}", half, (half,), lambda x, m=mode: integral(x, m))
        yield Form(f"cvt.rni.s32.{half}", "s32", (half,), lambda x, s=half: integer_from(x, "s32", s, "rni"))
        yield Form(f"cvt.rn.relu.{half}.f32", half, ("f32",), lambda x, k=half: _relu(exact.rounded(x, k)), edges=TIES)
        yield Form(
            f"cvt.rz.relu.{half}.f32", half, ("f32",), lambda x, k=half: _relu(exact.rounded(x, k, "rz")), edges=TIES
        )
        yield Form(
            f"cvt.rn.satfinite.{half}.f32", half, ("f32",), lambda x, k=half: _clamped(exact.rounded(x, k), k),
            edges=TIES,
        )  # fmt: skip
    yield Form("cvt.rn.sat.f16.f32", "f16", ("f32",), lambda x: saturated(exact.rounded(x, "f16")))
    yield Form("cvt.rz.sat.f16.f64", "f16", ("f64",), lambda x: saturated(exact.rounded(x, "f16", "rz")))
    yield Form("cvt.sat.f16.f16", "f16", ("f16",), saturated)
    yield Form("cvt.rn.bf16.f16", "bf16", ("f16",), lambda x: exact.rounded(x, "bf16"))
    yield Form("cvt.rn.f16.bf16", "f16", ("bf16",), lambda x: exact.rounded(x, "f16"))


def _packed(kind: str, mods: str) -> Callable[[float, float], int]:
    """The first operand is the upper element."""
    mode = "rz" if ".rz" in mods else "rn"

    def one(x: float) -> int:
        x = exact.rounded(x, kind, mode)
        x = _clamped(x, kind) if ".satfinite" in mods else x
        x = _relu(x) if ".relu" in mods else x
        return byte_of(x, kind) if kind.startswith("e") else encode(x, kind)

    return lambda a, b: one(a) << (8 if kind.startswith("e") else 16) | one(b)


def byte_of(x: float, kind: str) -> int:
    """An fp8 number's pattern, found among all of them."""
    return 0x7F if math.isnan(x) else _bytes(kind)[encode(x, "f32")]


@cache
def _bytes(kind: str) -> dict[int, int]:
    return {encode(number_of(n, kind), "f32"): n for n in range(256)}


def number_of(byte: int, kind: str) -> float:
    fraction, bias = (3, 7) if kind == "e4m3" else (2, 15)
    field, low = byte >> fraction & (15 if kind == "e4m3" else 31), byte & (1 << fraction) - 1
    if kind == "e4m3" and byte & 0x7F == 0x7F:
        return math.nan
    if kind == "e5m2" and field == 31:
        size = math.nan if low else math.inf
    else:
        size = math.ldexp(low + (1 << fraction if field else 0), max(field, 1) - bias - fraction)
    return -size if byte & 0x80 else size


EIGHT_BIT_TIES = (
    0.0, -0.0, 1.0, 448.0, 463.9, 464.0, 500.0, -1e9, 57344.0, 61440.0, 65536.0, 2.0**-9, 2.0**-10, 3 * 2.0**-10,
    2.0**-16, 2.0**-17, 2.0**-18, -0.3, 1.0625, 1.1875, 1.125, 1.375, math.inf, -math.inf, math.nan,
)  # fmt: skip
TENSOR_TIES = (
    1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-23, 1 + 2.0**-12, -1.7, 2.0**-140, 3.4e38, -3.4e38, 0.1,
    math.inf, math.nan,
)  # fmt: skip


def _pairs() -> Iterator[Form]:
    for half in HALVES:
        for mods in (".rn", ".rz", ".rn.relu", ".rz.relu", ".rn.satfinite"):
            yield Form(f"cvt{mods}.{half}x2.f32", "b32", ("f32", "f32"), _packed(half, mods), edges=TIES)
    for eight in ("e4m3", "e5m2"):
        for mods in (".rn.satfinite", ".rn.satfinite.relu"):
            function = _packed(eight, mods)
            yield Form(f"cvt{mods}.{eight}x2.f32", "b16", ("f32", "f32"), function, edges=EIGHT_BIT_TIES)
            yield Form(
                f"cvt{mods}.{eight}x2.f16x2", "b16", ("b32",),
                lambda a, f=function: f(decode(a >> 16, "f16"), decode(a & 0xFFFF, "f16")),
            )  # fmt: skip
        yield Form(
            f"cvt.rn.f16x2.{eight}x2", "b32", ("b16",),
            lambda a, k=eight: encode(number_of(a >> 8, k), "f16") << 16 | encode(number_of(a & 0xFF, k), "f16"),
        )  # fmt: skip
    for mode in ("rna", "rn", "rz"):
        yield Form(
            f"cvt.{mode}.tf32.f32 {{d}}, {{a}}", "f32", ("f32",), lambda x, m=mode: exact.rounded(x, "tf32", m),
            edges=TENSOR_TIES,
        )  # fmt: skip
    yield Form("cvt.rn.relu.tf32.f32", "f32", ("f32",), lambda x: _relu(exact.rounded(x, "tf32")), edges=TENSOR_TIES)
    for small in ("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"):
        text, third = f"cvt.pack.sat.{small}.s32", () if small.endswith("16") else ("b32",)
        yield Form(
            text + ".b32" * len(third), "b32", ("s32", "s32", *third), lambda *v, k=small: _packed_integers(k, *v)
        )


def _limits(kind: str) -> tuple[int, int]:
    bits = int(kind[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)


def _packed_integers(kind: str, a: int, b: int, rest: int = 0) -> int:
    bits, (low, high) = int(kind[1:]), _limits(kind)
    upper, lower = (min(max(v, low), high) & (1 << bits) - 1 for v in (a, b))
    return rest << 2 * bits | upper << bits | lower


def _between_integers() -> Iterator[Form]:
    for to, source in (("u8", "s32"), ("s8", "s32"), ("s8", "u32"), ("u16", "s16"), ("s32", "u32"), ("u32", "s64"),
                       ("s32", "s64"), ("s64", "u64"), ("u64", "s32"), ("s16", "u8"), ("s16", "u64")):  # fmt: skip
        low, high = _limits(to)
        yield Form(f"cvt.sat.{to}.{source}", to, (source,), lambda x, n=low, m=high: min(max(x, n), m))
    for source in INTEGERS:
        for to in INTEGERS:
            if to != source:
                yield Form(f"cvt.{to}.{source}", to, (source,), lambda x, t=to: _wrapped(x, t))


def _wrapped(x: int, to: str) -> int:
    bits = int(to[1:])
    x &= (1 << bits) - 1
    return x - (1 << bits) if to[0] == "s" and x >> (bits - 1) else x


def _moves() -> Iterator[Form]:
    for kind in ("b16", "u16", "b32", "s32", "u32", "b64", "u64", "s64", "f32", "f64"):
        yield Form(f"mov.{kind}", kind, (kind,), lambda x: x)
    yield Form("mov.b32 {d}, {{{a}, {b}}}", "b32", ("b16", "b16"), lambda a, b: a | b << 16)
    yield Form("mov.b64 {d}, {{{a}, {b}}}", "b64", ("b32", "b32"), lambda a, b: a | b << 32)
    yield Form("mov.b32 {{{d}, {e}}}, {a}", "b16", ("b32",), lambda a: (a & 0xFFFF, a >> 16), second_out="b16")
    yield Form("mov.b64 {{{d}, {e}}}, {a}", "b32", ("b64",), lambda a: (a & 0xFFFFFFFF, a >> 32), second_out="b32")
    yield Form("mov.b64 {{_, {d}}}, {a}", "b32", ("b64",), lambda a: a >> 32)
    yield Form(
        "mov.b64 {d}, {{{a}, {b}, {c}, {c}}}", "b64", ("b16",) * 3, lambda a, b, c: a | b << 16 | c << 32 | c << 48
    )
    yield Form("mov.b32 {d}, {a}", "b32", ("f32",), lambda x: encode(x, "f32"))
    yield Form("mov.f32 {d}, 0fBFC00000", "f32", (), lambda: -1.5)
    yield Form("mov.u32 {d}, WARP_SZ", "u32", (), lambda: 32)
    yield Form("mov.b32 {d}, {{{a}, 0x1234}}", "b32", ("b16",), lambda a: a | 0x12340000)
    yield Form("mov.b64 {{%f60, {d}}}, {a}", "b32", ("f64",), lambda a: encode(a, "f64") >> 32)


def _addresses() -> Iterator[Form]:
    """Global addresses are generic addresses; there and back again is the identity for the others."""
    for space in ("global", "const"):
        yield Form(f"cvta.{space}.u64", "u64", ("u64",), lambda x: x)
        yield Form(f"cvta.to.{space}.u64", "u64", ("u64",), lambda x: x)
    for space in ("shared", "local"):
        text = f"cvta.{space}.u64 %rd90, {{a}}; cvta.to.{space}.u64 {{d}}, %rd90"
        yield Form(text, "u64", ("u64",), lambda x: x)
    yield Form("cvta.shared::cta.u64 %rd90, {a}; cvta.to.shared.u64 {d}, %rd90", "u64", ("u64",), lambda x: x)
    for space in ("shared", "local", "global"):
        for asked in ("shared", "shared::cta", "local", "global"):
            text = f"and.b64 %rd90, {{a}}, 0xFFFFFF; cvta.{space}.u64 %rd90, %rd90; isspacep.{asked} {{d}}, %rd90"
            inside = asked.startswith(space)
            yield Form(text, "pred", ("u64",), lambda x, y=inside: y)


FORMS = (*_to_integer(), *_to_float(), *_halves(), *_pairs(), *_between_integers(), *_moves(), *_addresses())
