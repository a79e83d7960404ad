"""Rounding, flushing and clamping of floating-point values.

The directed modes (``rz``, ``rm``, ``rp``) are exact: fp32 sums and products use an error-free transformation in
double precision, everything else the processor's rounding modes or integer arithmetic in the runtime.
"""

from __future__ import annotations

from cupilot.vgpu.lower.lanes import ONE, Lanes
from cupilot.vgpu.ptx.syntax import Instruction

DIRECTED = ("rz", "rm", "rp")
# numbers that the runtime's vg_directed and vg_convert expect
MODES = {"rn": 0, "rz": 1, "rm": 2, "rp": 3, "rna": 4}
OPERATIONS = {"add": 0, "mul": 1, "fma": 2, "div": 3, "sqrt": 4}
FORMATS = {
    **{f"s{bits}": number for number, bits in enumerate((8, 16, 32, 64))},
    **{f"u{bits}": 4 + number for number, bits in enumerate((8, 16, 32, 64))},
    "f16": 8, "bf16": 9, "tf32": 10, "f32": 11, "f64": 12, "e4m3": 13, "e5m2": 14,
}  # fmt: skip
RELU, SATFINITE, SAT = 1, 2, 4
SMALLEST_NORMAL = 0x00800000


def mode_of(i: Instruction) -> str:
    """The directed rounding mode of an instruction; empty for rounding to nearest."""
    return next((m for m in i.mods if m in DIRECTED), "")


def flush(o: Lanes, value: str, kind: str) -> str:
    """Subnormals become zero of the same sign; fp64 has no such mode."""
    if kind != "float":
        return value
    size = o.call("fabs", kind, value)
    small = o.fcmp("olt", kind, size, o.const(SMALLEST_NORMAL, kind))
    return o.select(small, kind, o.call("copysign", kind, o.const(0, kind), value), value)


def saturate(o: Lanes, value: str, kind: str) -> str:
    """Clamp to [0, 1]; NaN becomes zero."""
    positive = o.fcmp("ogt", kind, value, o.const(0, kind))
    low = o.select(positive, kind, value, o.const(0, kind))
    return o.select(o.fcmp("olt", kind, low, o.const(ONE[kind], kind)), kind, low, o.const(ONE[kind], kind))


def rounded(o: Lanes, operation: str, mode: str, kind: str, *values: str) -> str:
    """Add, mul, fma, div or sqrt with a directed mode."""
    if kind == "float":
        one = o.const(ONE[kind], kind)
        if operation == "add":
            return directed(o, mode, values[0], one, values[1])
        if operation == "mul":
            # adding this zero keeps the sign of a zero product: +0 when rounding down, else -0
            return directed(o, mode, values[0], values[1], o.const(0 if mode == "rm" else 1 << 31, kind))
        if operation == "fma":
            return directed(o, mode, values[0], values[1], values[2])
    numbers = (OPERATIONS[operation], MODES[mode], 32 if kind == "float" else 64)
    return o.runtime("vg_directed", values, kind, kind, numbers)


def directed(o: Lanes, mode: str, a: str, b: str, c: str) -> str:
    """a * b + c in fp32 rounded down (rm), up (rp) or to zero (rz), exactly.

    The product of two floats is exact in double.  The two-sum transformation gives the exact error of adding the
    third, so that the result rounded to nearest can be corrected by one step.  A sum that is exactly zero is -0 when
    rounding down, which adding the negated operands gives.
    """
    x, y, z = (o.convert("fpext", v, "float", "double") for v in (a, b, c))
    p = o.op("fmul", "double", x, y)
    if mode == "rm":
        minus = [o.op("fneg", "double", v) for v in (p, z)]
        s = o.op("fneg", "double", o.op("fadd", "double", *minus))
    else:
        s = o.op("fadd", "double", p, z)
    error = sum_error(o, p, z, s)
    nearest = o.convert("fptrunc", s, "double", "float")
    wide = o.convert("fpext", nearest, "float", "double")
    zero = o.const(0, "double")

    def beyond(compare: str, sign: str) -> str:
        direct = o.fcmp(compare, "double", wide, s)
        equal = o.fcmp("oeq", "double", wide, s)
        return o.either(direct, o.both(equal, o.fcmp(sign, "double", error, zero)))

    too_high, too_low = beyond("ogt", "olt"), beyond("olt", "ogt")
    if mode == "rz":
        high = o.both(too_high, o.fcmp("ogt", "double", s, zero))
        low = o.both(too_low, o.fcmp("olt", "double", s, zero))
        return _step(o, _step(o, nearest, high, up=False), low, up=True)
    return _step(o, nearest, too_high if mode == "rm" else too_low, up=mode == "rp")


def sum_error(o: Lanes, p: str, z: str, s: str) -> str:
    """The exact rounding error of s = p + z, in doubles."""
    t = o.op("fsub", "double", s, p)
    left = o.op("fsub", "double", p, o.op("fsub", "double", s, t))
    return o.op("fadd", "double", left, o.op("fsub", "double", z, t))


def _step(o: Lanes, value: str, where: str, *, up: bool) -> str:
    """The next float up or down in the lanes of ``where``; other lanes keep their value."""
    raw = o.bits(value, "float", "i32")
    zero = o.fcmp("oeq", "float", value, o.const(0, "float"))
    negative = o.icmp("slt", "i32", raw, o.const(0, "i32"))
    plus, minus = o.const(1, "i32"), o.const(-1, "i32")
    away, toward = (minus, plus) if not up else (plus, minus)
    moved = o.op("add", "i32", raw, o.select(negative, "i32", toward, away))
    moved = o.select(zero, "i32", o.const(0x00000001 if up else 0x80000001, "i32"), moved)
    return o.bits(o.select(where, "i32", moved, raw), "i32", "float")


def odd_sum(o: Lanes, p: str, z: str) -> str:
    """p + z in double, rounded to odd: the last bit records an inexact result, so that rounding again is correct."""
    s = o.op("fadd", "double", p, z)
    error = sum_error(o, p, z, s)
    raw = o.bits(s, "double", "i64")
    lost = o.fcmp("one", "double", error, o.const(0, "double"))
    even = o.icmp("eq", "i64", o.op("and", "i64", raw, o.const(1, "i64")), o.const(0, "i64"))
    differ = o.op("xor", "i64", raw, o.bits(error, "double", "i64"))
    inward = o.icmp("slt", "i64", differ, o.const(0, "i64"))
    step = o.select(inward, "i64", o.const(-1, "i64"), o.const(1, "i64"))
    moved = o.op("add", "i64", raw, step)
    return o.bits(o.select(o.both(lost, even), "i64", moved, raw), "i64", "double")


def odd_float(o: Lanes, value: str) -> str:
    """A double as a float rounded to odd (see `odd_sum`)."""
    near = o.convert("fptrunc", value, "double", "float")
    back = o.convert("fpext", near, "float", "double")
    raw = o.bits(near, "float", "i32")
    above = o.fcmp("ogt", "double", o.call("fabs", "double", back), o.call("fabs", "double", value))
    raw = o.select(above, "i32", o.op("sub", "i32", raw, o.const(1, "i32")), raw)
    lost = o.fcmp("one", "double", back, value)
    raw = o.select(lost, "i32", o.op("or", "i32", raw, o.const(1, "i32")), raw)
    return o.bits(raw, "i32", "float")


def converted(o: Lanes, value: str, source: str, to: str, mode: str, flags: int = 0) -> str:
    """Convert an integer or float to a float format, rounded once; value and result are bits in an i64."""
    return o.runtime("vg_convert", [value], "i64", "i64", (FORMATS[source], FORMATS[to], MODES[mode], flags))
