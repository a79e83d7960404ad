"""Floating-point forms, with references over fractions, and the documented errors of the approximate ones."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterator

import exact
from exact import flushed, saturated
from forms import Form

F32, F64 = "f32", "f64"


def _adjusted(function: Callable[..., float], mods: str, kind: str) -> Callable[..., float]:
    """A reference with subnormals flushed before and after, and the result clamped, as the modifiers say."""

    def reference(*values: float) -> float:
        if ".ftz" in mods:
            values = tuple(flushed(v, kind) for v in values)
        result = function(*values)
        if ".sat" in mods:
            result = saturated(result)
        return flushed(result, kind) if ".ftz" in mods else result

    return reference


def _arithmetic() -> Iterator[Form]:
    for mode in ("", ".rn", ".rz", ".rm", ".rp"):
        for rest in ("", ".ftz", ".sat", ".ftz.sat"):
            m, mods = mode[1:] or "rn", mode + rest
            table: dict[str, tuple[int, Callable[..., float]]] = {
                "add": (2, lambda a, b, m=m: exact.add(a, b, F32, m)),
                "sub": (2, lambda a, b, m=m: exact.add(a, -b, F32, m)),
                "mul": (2, lambda a, b, m=m: exact.mul(a, b, F32, m)),
            }
            if mode:
                table["fma"] = (3, lambda a, b, c, m=m: exact.fma(a, b, c, F32, m))
            for name, (count, function) in table.items():
                if rest in ("", ".ftz") or mode in ("", ".rn", ".rm"):
                    yield Form(f"{name}{mods}.f32", F32, (F32,) * count, _adjusted(function, mods, F32))
    yield Form("mad.rn.f32", F32, (F32,) * 3, lambda a, b, c: exact.fma(a, b, c, F32))
    for name, count, function in (
        ("add", 2, exact.add), ("sub", 2, lambda a, b, k: exact.add(a, -b, k)), ("mul", 2, exact.mul),
        ("fma", 3, exact.fma), ("div", 2, exact.div), ("sqrt", 1, exact.sqrt),
        ("rcp", 1, lambda a, k: exact.div(1.0, a, k)),
    ):  # fmt: skip
        yield Form(f"{name}.rn.f64", F64, (F64,) * count, lambda *v, f=function: f(*v, F64))
        if name in ("div", "sqrt", "rcp"):
            for ftz in ("", ".ftz"):
                plain = lambda *v, f=function: f(*v, F32)  # noqa: E731
                yield Form(f"{name}.rn{ftz}.f32", F32, (F32,) * count, _adjusted(plain, ftz, F32))
    yield Form("add.f32 {d}, {a}, 0f3F800000", F32, (F32,), lambda a: exact.add(a, 1.0, F32))
    yield Form("mul.f64 {d}, {a}, 0d4008000000000000", F64, (F64,), lambda a: exact.mul(a, 3.0, F64))


def _directed() -> Iterator[Form]:
    """Modes other than to nearest: all of fp64, and fp32 division and roots."""
    for mode in ("rz", "rm", "rp"):
        table: dict[str, tuple[int, Callable[..., float]]] = {
            "add": (2, exact.add), "sub": (2, lambda a, b, k, m: exact.add(a, -b, k, m)), "mul": (2, exact.mul),
            "fma": (3, exact.fma), "div": (2, exact.div), "sqrt": (1, exact.sqrt),
            "rcp": (1, lambda a, k, m: exact.div(1.0, a, k, m)),
        }  # fmt: skip
        for name, (count, function) in table.items():
            yield Form(f"{name}.{mode}.f64", F64, (F64,) * count, lambda *v, f=function, m=mode: f(*v, F64, m))
            if name in ("div", "sqrt", "rcp"):
                plain = lambda *v, f=function, m=mode: f(*v, F32, m)  # noqa: E731
                for ftz in ("", ".ftz"):
                    yield Form(f"{name}.{mode}{ftz}.f32", F32, (F32,) * count, _adjusted(plain, ftz, F32))


PROPERTIES: dict[str, Callable[[float, str], bool]] = {
    "finite": lambda x, k: math.isfinite(x), "infinite": lambda x, k: math.isinf(x),
    "number": lambda x, k: not math.isnan(x), "notanumber": lambda x, k: math.isnan(x),
    "normal": lambda x, k: math.isfinite(x) and (x == 0 or abs(x) >= exact.FORMATS[k].smallest_normal),
    "subnormal": lambda x, k: x != 0 and abs(x) < exact.FORMATS[k].smallest_normal,
}  # fmt: skip


def _selection() -> Iterator[Form]:
    for kind in (F32, F64):
        for name, holds in PROPERTIES.items():
            yield Form(f"testp.{name}.{kind}", "pred", (kind,), lambda x, f=holds, k=kind: f(x, k))
    for name, function in (("min", exact.smaller), ("max", exact.larger)):
        signs = lambda a, b, f=function, **o: exact.with_product_sign(f(abs(a), abs(b), **o), a, b)  # noqa: E731
        yield Form(f"{name}.xorsign.abs.f32", F32, (F32, F32), signs)
        yield Form(f"{name}.NaN.xorsign.abs.f32", F32, (F32, F32), lambda a, b, f=signs: f(a, b, nan_wins=True))
        yield Form(f"{name}.f32 {{d}}, {{a}}, {{b}}, {{c}}", F32, (F32,) * 3, lambda a, b, c, f=function: f(f(a, b), c))
    for kind in (F32, F64):
        yield Form(f"neg.{kind}", kind, (kind,), operator.neg)
        yield Form(f"abs.{kind}", kind, (kind,), abs)
        yield Form(f"copysign.{kind}", kind, (kind, kind), lambda a, b: math.copysign(b, a))
        yield Form(f"min.{kind}", kind, (kind, kind), exact.smaller)
        yield Form(f"max.{kind}", kind, (kind, kind), exact.larger)
    for name, function in (("min", exact.smaller), ("max", exact.larger)):
        yield Form(f"{name}.NaN.f32", F32, (F32, F32), lambda a, b, f=function: f(a, b, nan_wins=True))
        yield Form(f"{name}.ftz.f32", F32, (F32, F32), _adjusted(function, ".ftz", F32))
    yield Form("neg.ftz.f32", F32, (F32,), _adjusted(operator.neg, ".ftz", F32))
    yield Form("abs.ftz.f32", F32, (F32,), _adjusted(abs, ".ftz", F32))


def _comparison() -> Iterator[Form]:
    ordered = {"eq": operator.eq, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
    table: dict[str, Callable[[float, float], bool]] = {
        **ordered,
        "ne": lambda a, b: not _unordered(a, b) and a != b,
        "num": lambda a, b: not _unordered(a, b),
        "nan": _unordered,
        "neu": lambda a, b: _unordered(a, b) or a != b,
        **{f"{name}u": lambda a, b, f=f: _unordered(a, b) or f(a, b) for name, f in ordered.items()},
    }
    for name in ("lt", "neu", "nan"):
        for kind in (F32, F64):
            yield Form(f"set.{name}.u32.{kind}", "u32", (kind, kind), lambda a, b, f=table[name]: -f(a, b))
            yield Form(f"set.{name}.f32.{kind}", F32, (kind, kind), lambda a, b, f=table[name]: float(f(a, b)))
    yield Form(
        "set.ge.or.ftz.s32.f32 {d}, {a}, {b}, {c}", "s32", (F32, F32, "pred"),
        lambda a, b, c: -(flushed(a) >= flushed(b) or c),
    )  # fmt: skip
    for name, reference in table.items():
        yield Form(f"setp.{name}.f32", "pred", (F32, F32), reference)
        yield Form(f"setp.{name}.f64", "pred", (F64, F64), reference)
    yield Form("setp.gt.ftz.f32", "pred", (F32, F32), lambda a, b: flushed(a) > flushed(b))
    yield Form("setp.neu.ftz.f32", "pred", (F32, F32), lambda a, b: _unordered(a, b) or flushed(a) != flushed(b))


def _unordered(a: float, b: float) -> bool:
    return math.isnan(a) or math.isnan(b)


# --- approximate functions: within the error that the PTX ISA documents -------------------------


def _within(relative: float = 0.0, absolute: float = 0.0, *, ftz: bool = False) -> Callable[..., bool]:
    """Off by no more than either; a subnormal result may be off by two steps or be flushed."""

    def matches(got: float, wanted: float, *_: float) -> bool:
        if math.isnan(wanted) or math.isinf(wanted) or wanted == 0:
            return math.isnan(got) if math.isnan(wanted) else got == wanted
        if abs(wanted) >= 3.4028235677973366e38:
            return math.isinf(got) and (got > 0) == (wanted > 0)
        if ftz and abs(wanted) < 2.0**-126:
            return abs(got) <= 2.0**-126
        return abs(got - wanted) <= max(relative * abs(wanted), absolute, 2 * 2.0**-149)

    return matches


def _power_of_two(x: float) -> float:
    return x if math.isnan(x) else 2.0 ** max(min(x, 200.0), -200.0) if x > -200 else 0.0


def _binary_logarithm(x: float) -> float:
    return -math.inf if x == 0 else math.nan if x < 0 else x if not math.isfinite(x) else math.log2(x)


def _inverse_root(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else math.nan if x < 0 else 1 / math.sqrt(x)


def _circular(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: function(x) if math.isfinite(x) else math.nan


ANGLES = (0.0, -0.0, 0.1, -0.5, 1.0, -1.5, 2.0, 3.0, -3.14159, 3.14159, 2.0**-20, math.inf, -math.inf, math.nan)
EXPONENTS = (0.0, 1.0, -1.0, 0.5, 10.3, -10.7, 126.9, 127.999, 128.0, 200.0, -125.5, -126.5, -149.0, -151.0, -300.0,
             2.0**-30, math.inf, -math.inf, math.nan)  # fmt: skip


def _approximate() -> Iterator[Form]:
    # (opcode, operands, function, matches, operands to try)
    for ftz in ("", ".ftz"):
        f = bool(ftz)
        rows: list[tuple[str, Callable[..., float], Callable[..., bool], tuple[float, ...]]] = [
            ("ex2.approx", _power_of_two, _within(2.0**-22, ftz=f), EXPONENTS),
            ("lg2.approx", _binary_logarithm, _within(2.0**-22, 2.0**-22), ()),
            ("sin.approx", _circular(math.sin), _reduced, ANGLES),
            ("cos.approx", _circular(math.cos), _reduced, ANGLES),
            ("rsqrt.approx", _inverse_root, _within(2.0**-22.9, ftz=f), ()),
            ("sqrt.approx", lambda a: exact.sqrt(a, F64), _within(2.0**-23, ftz=f), ()),
            ("rcp.approx", lambda a: exact.div(1.0, a, F64), _within(2.0**-23, ftz=f), ()),  # 1 ulp
        ]
        for name, function, matches, edges in rows:
            yield Form(f"{name}{ftz}.f32", F32, (F32,), _adjusted_in(function, ftz), matches, edges=edges)
        for name in ("div.full", "div.approx"):
            matches = _within(2.0**-22, ftz=f)  # 2 ulp
            yield Form(
                f"{name}{ftz}.f32",
                F32,
                (F32, F32),
                _adjusted_in(lambda a, b: exact.div(a, b, F64), ftz),
                _usual(matches),
            )
    yield Form("tanh.approx.f32", F32, (F32,), math.tanh, _within(2.0**-11, ftz=True))
    yield Form("rsqrt.approx.f64", F64, (F64,), _inverse_root, _near)
    wide = (1e-3, 1.0000001, 0.9999999, 1.5e300, -3e-300, 5e-324, 1e308, 0.0, -0.0, math.inf, -math.inf, math.nan)
    yield Form("rcp.approx.ftz.f64", F64, (F64,), lambda x: exact.div(1.0, _gross(x), F64), _gross_near, edges=wide)
    yield Form("rsqrt.approx.ftz.f64", F64, (F64,), lambda x: _inverse_root(_gross(x)), _gross_near, edges=wide)
    turns = (1e3, -1e4, 12345.678, 65535.0, 65537.0, 1e9)
    yield Form("sin.approx.f32 {d}, {a}; mov.f32 {d}, {d}", F32, (F32,), math.sin, _reduced, edges=turns)


def _reduced(got: float, wanted: float, angle: float) -> bool:
    """2**-14.7 up to 100 pi; nothing is documented beyond, where the error goes on growing."""
    if math.isnan(wanted) or angle == 0:
        return math.isnan(got) if math.isnan(wanted) else got == wanted
    turns = abs(angle) / (2 * math.pi)
    return abs(got) <= 1 and abs(got - wanted) <= max(1.0, turns) * 2.0**-20.5


def _gross(x: float) -> float:
    return math.copysign(0.0, x) if abs(x) < 2.0**-1022 else x


def _gross_near(got: float, wanted: float, *_: float) -> bool:
    """Only 20 bits of the operand and of the result count, and subnormal results are flushed."""
    if math.isnan(wanted):
        return math.isnan(got)
    if abs(wanted) < 2.0**-1022:
        return got == 0 and math.copysign(1, got) == math.copysign(1, wanted)
    low_word = int.from_bytes(struct.pack("<d", got), "little") & 0xFFFFFFFF
    return low_word == 0 and (got == wanted or abs(got - wanted) <= 2.0**-18 * abs(wanted))


def _near(got: float, wanted: float, *_: float) -> bool:
    """fp64, where the result can neither overflow nor be subnormal."""
    if math.isnan(wanted):
        return math.isnan(got)
    return got == wanted or abs(got - wanted) <= 2.0**-22 * abs(wanted)


def _adjusted_in(function: Callable[..., float], mods: str) -> Callable[..., float]:
    return lambda *values: function(*(flushed(v) for v in values)) if mods else function(*values)


def _usual(matches: Callable[..., bool]) -> Callable[..., bool]:
    """The bound holds for divisors from 2**-126 to 2**126; beyond, hardware may give zero."""
    return lambda got, wanted, a, b: not 2.0**-126 <= abs(b) <= 2.0**126 or matches(got, wanted)


FORMS = (*_arithmetic(), *_directed(), *_selection(), *_comparison(), *_approximate())
