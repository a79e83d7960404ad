"""Half and bfloat16 arithmetic, single and packed (PTX ISA, "Half Precision Floating Point Instructions").

Values are 16-bit patterns.  Sums and f16 products are computed in fp32: rounding them twice gives the same as rounding
once.  fma and bf16 products are computed in double and rounded to odd, so that the final rounding is correct.  NaN
results are the canonical 0x7FFF.  Not covered: ``.oob``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cupilot.vgpu.lower.families.floating import select_float, special_function
from cupilot.vgpu.lower.lanes import Lanes, lanes_of, type_name
from cupilot.vgpu.lower.rounding import odd_float, odd_sum, saturate
from cupilot.vgpu.lower.table import Lowering
from cupilot.vgpu.ptx.syntax import Instruction

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

SMALLEST_NORMAL = {"f16": 0x0400, "bf16": 0x0080}
CANONICAL_NAN = 0x7FFF


def widen(o: Lanes, value: str, name: str) -> str:
    """A 16-bit pattern as fp32, exactly."""
    if name == "f16":
        return o.convert("fpext", o.bits(value, "i16", "half"), "half", "float")
    word = o.op("shl", "i32", o.convert("zext", value, "i16", "i32"), o.const(16, "i32"))
    return o.bits(word, "i32", "float")


def narrow(o: Lanes, value: str, name: str) -> str:
    """fp32 to a 16-bit pattern, to nearest even."""
    nan = o.fcmp("uno", "float", value, value)
    if name == "f16":
        result = o.bits(o.convert("fptrunc", value, "float", "half"), "half", "i16")
    else:
        raw = o.bits(value, "float", "i32")
        sixteen = o.const(16, "i32")
        last = o.op("and", "i32", o.op("lshr", "i32", raw, sixteen), o.const(1, "i32"))
        up = o.op("add", "i32", o.op("add", "i32", raw, o.const(0x7FFF, "i32")), last)
        result = o.convert("trunc", o.op("lshr", "i32", up, sixteen), "i32", "i16")
    return o.select(nan, "i16", o.const(CANONICAL_NAN, "i16"), result)


def flush_half(o: Lanes, value: str, name: str) -> str:
    """Subnormal 16-bit patterns become zero of the same sign."""
    size = o.op("and", "i16", value, o.const(0x7FFF, "i16"))
    small = o.icmp("ult", "i16", size, o.const(SMALLEST_NORMAL[name], "i16"))
    return o.select(small, "i16", o.op("and", "i16", value, o.const(0x8000, "i16")), value)


def split(o: Lanes, word: str) -> tuple[str, str]:
    """The lower and upper half of a 32-bit value."""
    high = o.op("lshr", "i32", word, o.const(16, "i32"))
    return o.convert("trunc", word, "i32", "i16"), o.convert("trunc", high, "i32", "i16")


def join(o: Lanes, low: str, high: str) -> str:
    """Two 16-bit values as a 32-bit one."""
    low, high = (o.convert("zext", v, "i16", "i32") for v in (low, high))
    return o.op("or", "i32", low, o.op("shl", "i32", high, o.const(16, "i32")))


Compute = Callable[[Lanes, Instruction, str, list[str]], str]


def _elements(compute: Compute) -> Lowering:
    """Apply a function of 16-bit patterns to the only element, or to both of a packed type."""

    def lower(e: Emitter, i: Instruction) -> None:
        if i.has("oob"):
            raise e.unsupported("the modifier .oob")
        o, name = lanes_of(e, i), type_name(e, i)
        single = name.removesuffix("x2")
        if name == single:
            values = [o.fetch(operand, "i16") for operand in i.operands[1:]]
            o.put(i.operands[0], _adjusted(compute, o, i, name, values), "i16")
            return
        pairs = [split(o, o.fetch(operand, "i32")) for operand in i.operands[1:]]
        low, high = (_adjusted(compute, o, i, single, [pair[n] for pair in pairs]) for n in (0, 1))
        o.put(i.operands[0], join(o, low, high), "i32")

    return lower


def _adjusted(compute: Compute, o: Lanes, i: Instruction, name: str, values: list[str]) -> str:
    if i.has("ftz"):
        values = [flush_half(o, v, name) for v in values]
    result = compute(o, i, name, values)
    if i.has("ftz"):
        result = flush_half(o, result, name)
    if i.has("relu"):  # the canonical NaN is positive and stays
        zero = o.const(0, "i16")
        result = o.select(o.icmp("slt", "i16", result, zero), "i16", zero, result)
    return result


def _sum(o: Lanes, i: Instruction, name: str, values: list[str]) -> str:
    a, b = (widen(o, v, name) for v in values)
    return _narrow_float(o, i, o.op(f"f{i.opcode}", "float", a, b), name)


def _narrow_float(o: Lanes, i: Instruction, value: str, name: str) -> str:
    return narrow(o, saturate(o, value, "float") if i.has("sat") else value, name)


def _doubles(o: Lanes, name: str, values: list[str]) -> list[str]:
    return [o.convert("fpext", widen(o, v, name), "float", "double") for v in values]


def _product(o: Lanes, i: Instruction, name: str, values: list[str]) -> str:
    if name == "f16":  # exact in fp32
        a, b = (widen(o, v, name) for v in values)
        return _narrow_float(o, i, o.op("fmul", "float", a, b), name)
    # a bf16 product may be subnormal in fp32, where rounding twice is not harmless
    return _narrow_float(o, i, odd_float(o, o.op("fmul", "double", *_doubles(o, name, values))), name)


def _fma(o: Lanes, i: Instruction, name: str, values: list[str]) -> str:
    a, b, c = _doubles(o, name, values)
    product = o.op("fmul", "double", a, b)
    # an f16 sum that double must round lies far from any tie; a bf16 one may not
    total = o.op("fadd", "double", product, c) if name == "f16" else odd_sum(o, product, c)
    return _narrow_float(o, i, odd_float(o, total), name)


def _minmax(o: Lanes, i: Instruction, name: str, values: list[str]) -> str:
    return narrow(o, select_float(o, i, [widen(o, v, name) for v in values], "float"), name)


def _special(o: Lanes, i: Instruction, name: str, values: list[str]) -> str:
    return narrow(o, special_function(o, f"{i.opcode}_{name}", widen(o, values[0], name)), name)


def _sign(o: Lanes, i: Instruction, name: str, values: list[str]) -> str:
    if i.opcode == "neg":
        return o.op("xor", "i16", values[0], o.const(0x8000, "i16"))
    return o.op("and", "i16", values[0], o.const(0x7FFF, "i16"))


add_half, mul_half, fma_half = _elements(_sum), _elements(_product), _elements(_fma)
minmax_half, special_half, sign_half = _elements(_minmax), _elements(_special), _elements(_sign)
