"""Floating-point arithmetic from fractions: what the engine's results are compared with.

Nothing here uses the machine's own rounding; NaN and infinities are treated by their rules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """A binary format: bits of precision, exponent of the smallest subnormal, exponent that overflows."""

    precision: int
    lowest: int
    limit: int

    @property
    def smallest_normal(self) -> float:
        return math.ldexp(1.0, self.lowest + self.precision - 1)

    @property
    def largest(self) -> float:
        return math.ldexp(2**self.precision - 1, self.limit - self.precision)


FORMATS = {
    "f64": Format(53, -1074, 1024), "f32": Format(24, -149, 128), "tf32": Format(11, -136, 128),
    "f16": Format(11, -24, 16), "bf16": Format(8, -133, 128), "e5m2": Format(3, -16, 16), "e4m3": Format(4, -9, 9),
}  # fmt: skip


def negative(x: float) -> bool:
    return math.copysign(1.0, x) < 0


def zero(minus: bool) -> float:
    return -0.0 if minus else 0.0


def to_float(x: Fraction, kind: str, mode: str = "rn") -> float:
    """A number that is not zero, rounded to nearest even (rn) or away (rna), down (rm), up (rp) or to zero (rz)."""
    form, minus, size = FORMATS[kind], x < 0, abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    step = max(exponent - form.precision + 1, form.lowest)
    whole, rest = divmod(size / Fraction(2) ** step, 1)
    away = {"rz": False, "rm": minus, "rp": not minus}.get(mode)
    if away is None:
        whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and (mode == "rna" or whole % 2 == 1))
    else:
        whole += away and rest > 0
    if whole * Fraction(2) ** step >= Fraction(2) ** form.limit:
        result = math.inf if away is not False else form.largest
    else:
        result = math.ldexp(whole, step)
    return -result if minus else result


def fma(a: float, b: float, c: float, kind: str, mode: str = "rn") -> float:
    """a * b + c, rounded once."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    product, addend = Fraction(a) * Fraction(b), Fraction(c)
    if product + addend:
        return to_float(product + addend, kind, mode)
    product_minus = negative(a) != negative(b)
    if product == 0 and product_minus == negative(c):
        return zero(product_minus)
    return zero(mode == "rm")


def add(a: float, b: float, kind: str, mode: str = "rn") -> float:
    return fma(a, 1.0, b, kind, mode)


def mul(a: float, b: float, kind: str, mode: str = "rn") -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b
    exact = Fraction(a) * Fraction(b)
    return to_float(exact, kind, mode) if exact else zero(negative(a) != negative(b))


def rounded(x: float, kind: str, mode: str = "rn") -> float:
    """Any float in another format."""
    return to_float(Fraction(x), kind, mode) if math.isfinite(x) and x else x


def div(a: float, b: float, kind: str, mode: str = "rn") -> float:
    minus = negative(a) != negative(b)
    if math.isnan(a) or math.isnan(b) or (a == 0 and b == 0) or (math.isinf(a) and math.isinf(b)):
        return math.nan
    if math.isinf(a) or b == 0:
        return -math.inf if minus else math.inf
    if math.isinf(b) or a == 0:
        return zero(minus)
    return to_float(Fraction(a) / Fraction(b), kind, mode)


def sqrt(a: float, kind: str, mode: str = "rn") -> float:
    if a == 0 or math.isnan(a) or a == math.inf:
        return a
    if a < 0:
        return math.nan
    scaled = Fraction(a) * 4**1200
    root = math.isqrt(int(scaled))
    # what is below the last bit matters only for being there
    return to_float(Fraction(2 * root + (root * root != scaled), 2**1201), kind, mode)


def flushed(x: float, kind: str = "f32") -> float:
    """Subnormal numbers become zero; fp64 has no such mode."""
    return math.copysign(0.0, x) if kind != "f64" and abs(x) < FORMATS[kind].smallest_normal else x


def saturated(x: float) -> float:
    return 0.0 if math.isnan(x) else min(max(x, 0.0), 1.0) + 0.0


def smaller(a: float, b: float, *, nan_wins: bool = False) -> float:
    """min with -0 below +0; a number wins over NaN unless asked otherwise."""
    if math.isnan(a) or math.isnan(b):
        return math.nan if nan_wins else b if math.isnan(a) else a
    return a if (a, not negative(a)) < (b, not negative(b)) else b


def with_product_sign(size: float, a: float, b: float) -> float:
    """``.xorsign``: the result gets the sign of the product."""
    return size if math.isnan(size) else math.copysign(size, math.copysign(1, a) * math.copysign(1, b))


def larger(a: float, b: float, *, nan_wins: bool = False) -> float:
    return -smaller(-a, -b, nan_wins=nan_wins)
