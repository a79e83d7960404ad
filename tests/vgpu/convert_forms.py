"""Moves and conversions, with references over Python's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import exact
from exact import flushed, saturated
from forms import Form, encode

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
        for source in ("s32", "u32", "s16"):
            yield Form(f"cvt.{mode}.f32.{source}", "f32", (source,), lambda x, m=mode: float_from(x, "f32", m))
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


def _between_integers() -> Iterator[Form]:
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


def _addresses() -> Iterator[Form]:
    """Global addresses are generic addresses; there and back again is the identity for the others."""
    for space in ("global", "const"):
        yield Form(f"cvta.{space}.u64", "u64", ("u64",), lambda x: x)
        yield Form(f"cvta.to.{space}.u64", "u64", ("u64",), lambda x: x)
    for space in ("shared", "local"):
        text = f"cvta.{space}.u64 %rd90, {{a}}; cvta.to.{space}.u64 {{d}}, %rd90"
        yield Form(text, "u64", ("u64",), lambda x: x)


FORMS = (*_to_integer(), *_to_float(), *_between_integers(), *_moves(), *_addresses())
