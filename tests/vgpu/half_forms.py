"""f16 and bf16 forms, single and packed, with references over fractions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator

import exact
from exact import flushed, saturated
from forms import Form, decode, encode

Reference = Callable[..., float]


def _packed(
    function: Callable[..., object], kind: str, to: Callable[[object], int] | None = None
) -> Callable[..., int]:
    """A reference on 32-bit words from one on the elements."""
    code = to or (lambda value: encode(value, kind))

    def reference(*words: int) -> int:
        low = function(*(decode(w & 0xFFFF, kind) for w in words))
        high = function(*(decode(w >> 16, kind) for w in words))
        return code(low) | code(high) << 16

    return reference


def _both(name: str, kind: str, count: int, function: Reference) -> Iterator[Form]:
    yield Form(f"{name}.{kind}", kind, (kind,) * count, function)
    yield Form(f"{name}.{kind}x2", "b32", ("b32",) * count, _packed(function, kind))


def _adjusted(function: Reference, mods: str, kind: str) -> Reference:
    def reference(*values: float) -> float:
        if ".ftz" in mods:
            values = tuple(flushed(v, kind) for v in values)
        result = function(*values)
        if ".sat" in mods:
            result = saturated(result)
        if ".relu" in mods and not math.isnan(result):
            result = result if result > 0 else 0.0
        return flushed(result, kind) if ".ftz" in mods else result

    return reference


def _arithmetic() -> Iterator[Form]:
    for kind in ("f16", "bf16"):
        table: dict[str, tuple[int, Reference]] = {
            "add": (2, lambda a, b, k=kind: exact.add(a, b, k)),
            "sub": (2, lambda a, b, k=kind: exact.add(a, -b, k)),
            "mul": (2, lambda a, b, k=kind: exact.mul(a, b, k)),
            "fma.rn": (3, lambda a, b, c, k=kind: exact.fma(a, b, c, k)),
        }
        for name, (count, function) in table.items():
            yield from _both(name, kind, count, function)
            mods = [".ftz", ".sat", ".ftz.sat"] if kind == "f16" else []
            if name == "fma.rn":
                mods += [".relu"] + ([".ftz.relu"] if kind == "f16" else [])
            for mod in mods:
                yield from _both(name + mod, kind, count, _adjusted(function, mod, kind))
    yield Form("add.rn.bf16", "bf16", ("bf16",) * 2, lambda a, b: exact.add(a, b, "bf16"))


# a * b is a tie of the smaller format that c, far below, decides; then products of subnormal size
TIES = (1 + 2.0**-4, 1 - 2.0**-4, 2.0**-100, -(2.0**-100), 2.0**-67 * 1.5, 2.0**-66 * (1 + 2.0**-7), 2.0**-133)


def _hard_cases() -> Iterator[Form]:
    yield Form("fma.rn.bf16 {d}, {a}, {b}, {c}; mov.b16 {d}, {d}", "bf16", ("bf16",) * 3,
               lambda a, b, c: exact.fma(a, b, c, "bf16"), edges=TIES)  # fmt: skip
    yield Form("mul.bf16 {d}, {a}, {b}; mov.b16 {d}, {d}", "bf16", ("bf16",) * 2,
               lambda a, b: exact.mul(a, b, "bf16"), edges=TIES)  # fmt: skip
    near = (1 + 2.0**-10, 1 - 2.0**-11, 2.0**-24, -(2.0**-24), 2.0**-12 * (1 + 2.0**-10), 2049.0 - 1, 2.0**-14)
    yield Form("fma.rn.f16 {d}, {a}, {b}, {c}; mov.b16 {d}, {d}", "f16", ("f16",) * 3,
               lambda a, b, c: exact.fma(a, b, c, "f16"), edges=near)  # fmt: skip


def _selection() -> Iterator[Form]:
    for kind in ("f16", "bf16"):
        for name, function in (("min", exact.smaller), ("max", exact.larger)):
            signs = lambda a, b, f=function: exact.with_product_sign(f(abs(a), abs(b)), a, b)  # noqa: E731
            yield from _both(name, kind, 2, function)
            yield from _both(f"{name}.NaN", kind, 2, lambda a, b, f=function: f(a, b, nan_wins=True))
            yield from _both(f"{name}.xorsign.abs", kind, 2, signs)
        yield Form(f"neg.{kind}", "b16", ("b16",), lambda a: a ^ 0x8000)
        yield Form(f"abs.{kind}", "b16", ("b16",), lambda a: a & 0x7FFF)
        yield Form(f"neg.{kind}x2", "b32", ("b32",), lambda a: a ^ 0x80008000)
        yield Form(f"abs.{kind}x2", "b32", ("b32",), lambda a: a & 0x7FFF7FFF)
    yield from _both("min.ftz", "f16", 2, _adjusted(exact.smaller, ".ftz", "f16"))


def _unordered(a: float, b: float) -> bool:
    return math.isnan(a) or math.isnan(b)


COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "eq": operator.eq, "lt": operator.lt, "ge": operator.ge, "nan": _unordered,
    "ne": lambda a, b: not _unordered(a, b) and a != b, "num": lambda a, b: not _unordered(a, b),
    "neu": lambda a, b: _unordered(a, b) or a != b, "gtu": lambda a, b: _unordered(a, b) or a > b,
}  # fmt: skip


def _comparison() -> Iterator[Form]:
    for kind in ("f16", "bf16"):
        one = encode(1.0, kind)
        for name, function in COMPARISONS.items():
            yield Form(f"setp.{name}.{kind}", "pred", (kind, kind), function)
        for name in ("lt", "neu"):
            function = COMPARISONS[name]
            yield Form(f"set.{name}.{kind}.{kind}", kind, (kind, kind), lambda a, b, f=function: float(f(a, b)))
            yield Form(f"set.{name}.u32.{kind}", "u32", (kind, kind), lambda a, b, f=function: -f(a, b))
            yield Form(f"set.{name}.u16.{kind}", "u16", (kind, kind), lambda a, b, f=function: -f(a, b))
            yield Form(
                f"set.{name}.{kind}x2.{kind}x2", "b32", ("b32",) * 2, _packed(function, kind, lambda v, o=one: o * v)
            )
            yield Form(f"set.{name}.u32.{kind}x2", "b32", ("b32",) * 2, _packed(function, kind, lambda v: 0xFFFF * v))
            yield Form(
                f"setp.{name}.{kind}x2 {{d}}|{{e}}, {{a}}, {{b}}", "pred", ("b32",) * 2,
                lambda a, b, f=function, k=kind: tuple(
                    f(decode(a >> s & 0xFFFF, k), decode(b >> s & 0xFFFF, k)) for s in (0, 16)
                ),
                second_out="pred",
            )  # fmt: skip
    yield Form(
        "setp.eq.and.f16x2 {d}|{e}, {a}, {b}, {c}", "pred", ("b32", "b32", "pred"),
        lambda a, b, c: tuple(
            decode(a >> s & 0xFFFF, "f16") == decode(b >> s & 0xFFFF, "f16") and c for s in (0, 16)
        ),
        second_out="pred",
    )  # fmt: skip
    yield Form("setp.gt.ftz.f16", "pred", ("f16",) * 2, lambda a, b: flushed(a, "f16") > flushed(b, "f16"))


def _near(relative: float = 0.0, absolute: float = 2.0**-25) -> Callable[..., bool]:
    """Off by the documented error; a subnormal result by half a step of the format."""

    def matches(got: float, wanted: float, *_: float) -> bool:
        if math.isnan(wanted) or math.isinf(wanted):
            return math.isnan(got) if math.isnan(wanted) else got == wanted
        return abs(got - wanted) <= max(relative * abs(wanted), absolute)

    return matches


EXPONENTS = (0.0, -0.0, 1.0, -1.0, 0.5, 3.25, -7.5, 10.0, 15.5, 15.9921875, 17.0, -14.5, -24.0, -30.0, math.inf,
             -math.inf, math.nan)  # fmt: skip


def _power(x: float, kind: str) -> float:
    if math.isnan(x) or x <= -200:
        return x if math.isnan(x) else 0.0
    value = 2.0 ** min(x, 300.0)
    return math.inf if math.isinf(exact.rounded(value, kind)) else value


def _approximate() -> Iterator[Form]:
    for kind, power, tangent in (("f16", 2.0**-9.9, 2.0**-10.987), ("bf16", 2.0**-7, 2.0**-8)):
        ex2 = "ex2.approx.f16" if kind == "f16" else "ex2.approx.ftz.bf16"
        yield Form(ex2, kind, (kind,), lambda x, k=kind: _power(x, k), _near(power), edges=EXPONENTS)
        yield Form(f"tanh.approx.{kind}", kind, (kind,), math.tanh, _near(absolute=tangent))
        for text in (f"{ex2}x2", f"tanh.approx.{kind}x2"):
            # both elements of the packed form are those of the single one
            single = text.removesuffix("x2")
            yield Form(
                f"{text} %r90, {{a}}; mov.b32 {{{{%rs60, %rs61}}}}, {{a}}; {single} %rs62, %rs60; "
                f"{single} %rs63, %rs61; mov.b32 %r91, {{{{%rs62, %rs63}}}}; xor.b32 {{d}}, %r90, %r91",
                "b32", ("b32",), lambda a: 0,
            )  # fmt: skip


FORMS = (*_arithmetic(), *_hard_cases(), *_selection(), *_comparison(), *_approximate())
