"""Packed conversions (PTX ISA, "cvt" with .f16x2, .bf16x2, .e4m3x2, .e5m2x2, and "cvt.pack").

The first operand is the upper element.  Not covered: stochastic rounding and the formats of sm_100.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.half import join, narrow, split
from cupilot.vgpu.lower.lanes import Lanes, lanes_of
from cupilot.vgpu.lower.rounding import RELU, SATFINITE, converted, flush, mode_of
from cupilot.vgpu.ptx.syntax import Instruction

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

PACKED = ("f16x2", "bf16x2", "e4m3x2", "e5m2x2")
BYTES = ("e4m3x2", "e5m2x2")


def convert_packed(e: Emitter, i: Instruction) -> None:
    """Two results from two fp32 values, or from the two elements of a packed operand."""
    to, source = i.mods[-2:]
    if to not in PACKED or source not in (*PACKED, "f32") or i.has("rs"):
        raise e.unsupported(f"the conversion .{to}.{source}")
    o = lanes_of(e, i)
    if source == "f32":
        high, low = (o.fetch(operand, "float") for operand in i.operands[1:3])
        if i.has("ftz"):
            high, low = (flush(o, v, "float") for v in (high, low))
        if to not in BYTES and not mode_of(i) and not i.has("satfinite"):
            o.put(i.operands[0], join(o, _half(o, i, low, to), _half(o, i, high, to)), "i32")
            return
        elements = [o.bits(v, "float", "i64") for v in (low, high)]
    elif source in BYTES:
        word = o.fetch(i.operands[1], "i16")
        shifted = o.op("lshr", "i16", word, o.const(8, "i16"))
        low_byte = o.op("and", "i16", word, o.const(0xFF, "i16"))
        elements = [o.bits(v, "i16", "i64") for v in (low_byte, shifted)]
    else:
        elements = [o.bits(v, "i16", "i64") for v in split(o, o.fetch(i.operands[1], "i32"))]
    flags = RELU * i.has("relu") + SATFINITE * i.has("satfinite")
    names = (source.removesuffix("x2"), to.removesuffix("x2"))
    results = [o.bits(converted(o, v, *names, mode_of(i) or "rn", flags), "i64", "i16") for v in elements]
    if to in BYTES:
        upper = o.op("shl", "i16", results[1], o.const(8, "i16"))
        o.put(i.operands[0], o.op("or", "i16", results[0], upper), "i16")
    else:
        o.put(i.operands[0], join(o, *results), "i32")


def _half(o: Lanes, i: Instruction, value: str, to: str) -> str:
    if i.has("relu"):
        below = o.fcmp("ole", "float", value, o.const(0, "float"))
        value = o.select(below, "float", o.const(0, "float"), value)
    return narrow(o, value, to.removesuffix("x2"))


def clamp(o: Lanes, value: str, kind: str, signed: bool, to: str) -> str:
    """An integer clamped to the range of another integer type."""
    bits, width = int(to[1:]), int(kind[1:])
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if to.startswith("s") else (0, (1 << bits) - 1)
    own_low, own_high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    sign = "s" if signed else "u"
    if low > own_low:
        value = o.call(f"{sign}max", kind, value, o.const(low, kind))
    if high < own_high:
        value = o.call(f"{sign}min", kind, value, o.const(high, kind))
    return value


def pack_integers(e: Emitter, i: Instruction) -> None:
    """cvt.pack: two 32-bit integers clamped to a small type; a third operand supplies the bits above them."""
    kinds = [m for m in i.mods if m not in ("pack", "sat")]
    to = kinds[0]
    if to[0] not in "us" or to[1:] not in ("2", "4", "8", "16") or kinds[1] != "s32" or not i.has("sat"):
        raise e.unsupported("these types")
    o, bits = lanes_of(e, i), int(to[1:])
    fields = []
    for operand in i.operands[1:3]:
        clamped = clamp(o, o.fetch(operand, "i32"), "i32", True, to)
        fields.append(o.op("and", "i32", clamped, o.const((1 << bits) - 1, "i32")))
    result = o.op("or", "i32", fields[1], o.op("shl", "i32", fields[0], o.const(bits, "i32")))
    if bits < 16:
        rest = o.op("shl", "i32", o.fetch(i.operands[3], "i32"), o.const(2 * bits, "i32"))
        result = o.op("or", "i32", result, rest)
    o.put(i.operands[0], result, "i32")
