"""Integer, logic and comparison forms, with references over Python's integers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator

from forms import BITS, Form, Value

WIDER = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}
ALL = ("s16", "u16", "s32", "u32", "s64", "u64")


def quotient(a: int, b: int, kind: str) -> int:
    """Towards zero; a zero divisor gives all ones, as hardware does (PTX leaves it open)."""
    if b == 0:
        return -1
    size = abs(a) // abs(b)
    return size if (a < 0) == (b < 0) else -size


def remainder(a: int, b: int, kind: str) -> int:
    return a - quotient(a, b, kind) * b


def shifted_left(a: int, n: int, kind: str) -> int:
    return a << n if n < BITS[kind] else 0


def shifted_right(a: int, n: int, kind: str) -> int:
    return a >> min(n, BITS[kind])


def leading_zeros(a: int, kind: str) -> int:
    return BITS[kind] - a.bit_length()


def reversed_bits(a: int, kind: str) -> int:
    return int(f"{a:0{BITS[kind]}b}"[::-1], 2)


def _arithmetic() -> Iterator[Form]:
    simple: dict[str, Callable[..., int]] = {
        "add": lambda a, b, k: a + b, "sub": lambda a, b, k: a - b, "mul.lo": lambda a, b, k: a * b,
        "mul.hi": lambda a, b, k: a * b >> BITS[k], "div": quotient, "rem": remainder,
        "min": lambda a, b, k: min(a, b), "max": lambda a, b, k: max(a, b),
    }  # fmt: skip
    for kind in ALL:
        for name, reference in simple.items():
            yield Form(f"{name}.{kind}", kind, (kind, kind), _bound(reference, kind))
        yield Form(f"mad.lo.{kind}", kind, (kind,) * 3, lambda a, b, c: a * b + c)
        yield Form(f"mad.hi.{kind}", kind, (kind,) * 3, _bound(lambda a, b, c, k: (a * b >> BITS[k]) + c, kind))
        if wide := WIDER.get(kind):
            yield Form(f"mul.wide.{kind}", wide, (kind, kind), lambda a, b: a * b)
            yield Form(f"mad.wide.{kind}", wide, (kind, kind, wide), lambda a, b, c: a * b + c)
        if kind[0] == "s":
            yield Form(f"neg.{kind}", kind, (kind,), lambda a: -a)
            yield Form(f"abs.{kind}", kind, (kind,), abs)
    # literals: negative, hexadecimal, and one that is a shift for the compiler
    yield Form("add.s32 {d}, {a}, -5", "s32", ("s32",), lambda a: a - 5)
    yield Form("mul.lo.u32 {d}, {a}, 0x10", "u32", ("u32",), lambda a: 16 * a)
    yield Form("div.u32 {d}, {a}, 7", "u32", ("u32",), lambda a: a // 7)
    yield Form("rem.s32 {d}, {a}, -3", "s32", ("s32",), lambda a: remainder(a, -3, "s32"))


def _logic() -> Iterator[Form]:
    for kind in ("b16", "b32", "b64", "pred"):
        for name, reference in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
            yield Form(f"{name}.{kind}", kind, (kind, kind), reference)
        yield Form(f"not.{kind}", kind, (kind,), operator.not_ if kind == "pred" else operator.invert)
        if kind == "pred":
            yield Form("mov.pred", kind, (kind,), bool)
            continue
        yield Form(f"shl.{kind}", kind, (kind, "u32"), _bound(shifted_left, kind))
        for shown in (kind, kind.replace("b", "u"), kind.replace("b", "s")):
            yield Form(f"shr.{shown}", shown, (shown, "u32"), _bound(shifted_right, kind))
        if kind != "b16":
            yield Form(f"popc.{kind}", "u32", (kind,), int.bit_count)
            yield Form(f"clz.{kind}", "u32", (kind,), _bound(leading_zeros, kind))
            yield Form(f"brev.{kind}", kind, (kind,), _bound(reversed_bits, kind))
    yield Form("shl.b32 {d}, {a}, 5", "b32", ("b32",), lambda a: a << 5)
    yield Form("shr.s32 {d}, {a}, 40", "s32", ("s32",), lambda a: -1 if a < 0 else 0)


COMPARISONS: dict[str, Callable[[Value, Value], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
UNSIGNED = {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}


def _comparison() -> Iterator[Form]:
    for kind in ALL:
        for name, reference in (COMPARISONS | (UNSIGNED if kind[0] == "u" else {})).items():
            yield Form(f"setp.{name}.{kind}", "pred", (kind, kind), reference)
    for kind in ("b16", "b32", "b64"):
        yield Form(f"setp.eq.{kind}", "pred", (kind, kind), operator.eq)
        yield Form(f"setp.ne.{kind}", "pred", (kind, kind), operator.ne)
    for name, combine in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
        yield Form(
            f"setp.lt.{name}.s32 {{d}}|{{e}}, {{a}}, {{b}}, {{c}}", "pred", ("s32", "s32", "pred"),
            _bound(lambda a, b, c, f: (f(a < b, c), f(a >= b, c)), combine), second_out="pred",
        )  # fmt: skip
    yield Form("setp.le.s32 {d}|{e}, {a}, {b}", "pred", ("s32", "s32"), lambda a, b: (a <= b, a > b), second_out="pred")
    yield Form("setp.lt.s32 {d}|_, {a}, {b}", "pred", ("s32", "s32"), operator.lt)
    yield Form("setp.lt.s32 _|{d}, {a}, {b}", "pred", ("s32", "s32"), operator.ge)
    yield Form("setp.hi.u32 {d}, {a}, 0x80000000", "pred", ("u32",), lambda a: a > 1 << 31)
    for kind in ("b16", "b32", "b64", "s32", "u64", "f32", "f64"):
        yield Form(f"selp.{kind}", kind, (kind, kind, "pred"), lambda a, b, c: a if c else b)


def _bound(function: Callable[..., object], last: object) -> Callable[..., object]:
    return lambda *arguments: function(*arguments, last)


FORMS = (*_arithmetic(), *_logic(), *_comparison())
