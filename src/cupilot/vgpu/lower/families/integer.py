"""Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions"), with the packed 16-bit forms.

Instructions that use the carry flag are in the family carry, those on single bits in bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.families.carry import with_carry
from cupilot.vgpu.lower.lanes import INT, PACKED_SHORTS, Lanes, lanes_of, type_name
from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.lower.wide import WIDER, product
from cupilot.vgpu.ptx.syntax import Instruction

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter


def kind_of(e: Emitter, i: Instruction) -> tuple[str, bool]:
    """The LLVM type, and whether it is signed."""
    name = type_name(e, i)
    if name not in INT:
        raise e.unsupported(f"the type .{name}")
    return INT[name], name.startswith("s")


def add_integer(e: Emitter, i: Instruction) -> None:
    """add and sub; ``.sat`` exists for .s32 only."""
    if i.has("cc"):
        return with_carry(e, i)
    if type_name(e, i) in PACKED_SHORTS:
        return _packed_shorts(e, i, i.opcode)
    o, (kind, signed) = lanes_of(e, i), kind_of(e, i)
    a, b = (o.fetch(operand, kind) for operand in i.operands[1:3])
    if i.has("sat"):
        result = o.call(f"{'s' if signed else 'u'}{i.opcode}.sat", kind, a, b)
    else:
        result = o.op(i.opcode, kind, a, b)
    return o.put(i.operands[0], result, kind)


def _packed_shorts(e: Emitter, i: Instruction, verb: str) -> None:
    """Two 16-bit results side by side; ``verb`` is an LLVM operation or intrinsic."""
    o = lanes_of(e, i)
    count = 64 if o.vector else 2
    full = f"<{count} x i16>"
    word = o.full("i32")
    a, b = (e.op(f"bitcast {word} {o.fetch(operand, 'i32')} to {full}") for operand in i.operands[1:3])
    if verb.startswith("llvm"):
        name = f"{verb}.v{count}i16"
        result = e.call(full, name, f"{full} {a}, {full} {b}", f"{full}, {full}")
        if i.has("relu"):
            name = f"llvm.smax.v{count}i16"
            result = e.call(full, name, f"{full} {result}, {full} zeroinitializer", f"{full}, {full}")
    else:
        result = e.op(f"{verb} {full} {a}, {b}")
    o.put(i.operands[0], e.op(f"bitcast {full} {result} to {word}"), "i32")


def multiply(e: Emitter, i: Instruction) -> None:
    """mul and mad, in their lo, hi and wide forms."""
    if i.has("cc"):
        return with_carry(e, i)
    o, (kind, signed) = lanes_of(e, i), kind_of(e, i)
    a, b = (o.fetch(operand, kind) for operand in i.operands[1:3])
    out = kind
    if i.has("wide"):
        out = WIDER[kind]
        result = o.op("mul", out, *(o.extend(v, kind, out, signed) for v in (a, b)))
    elif i.has("lo") or i.has("hi"):
        result = product(o, a, b, kind, signed=signed, high=i.has("hi"))
    else:
        raise e.unsupported("a product that is neither lo, hi nor wide")
    if i.opcode == "mad":
        c = o.fetch(i.operands[3], out)
        result = o.call("sadd.sat", out, result, c) if i.has("sat") else o.op("add", out, result, c)
    return o.put(i.operands[0], result, out)


def _multiply24(e: Emitter, i: Instruction) -> None:
    """mul24 and mad24: products of the low 24 bits; hi gives bits 16 to 47."""
    o, (kind, signed) = lanes_of(e, i), kind_of(e, i)
    if kind != "i32":
        raise e.unsupported(f"the type .{i.mods[-1]}")
    eight = o.const(8, "i32")
    values = []
    for operand in i.operands[1:3]:
        top = o.op("shl", "i32", o.fetch(operand, "i32"), eight)
        values.append(o.extend(o.op("ashr" if signed else "lshr", "i32", top, eight), "i32", "i64", signed))
    full = o.op("mul", "i64", *values)
    if i.has("hi"):
        full = o.op("lshr", "i64", full, o.const(16, "i64"))
    result = o.convert("trunc", full, "i64", "i32")
    if i.opcode == "mad24":
        c = o.fetch(i.operands[3], "i32")
        result = o.call("sadd.sat", "i32", result, c) if i.has("sat") else o.op("add", "i32", result, c)
    o.put(i.operands[0], result, "i32")


def _sad(e: Emitter, i: Instruction) -> None:
    """Add the absolute difference of two operands to a third."""
    o, (kind, signed) = lanes_of(e, i), kind_of(e, i)
    a, b, c = (o.fetch(operand, kind) for operand in i.operands[1:4])
    less = o.icmp("slt" if signed else "ult", kind, a, b)
    difference = o.select(less, kind, o.op("sub", kind, b, a), o.op("sub", kind, a, b))
    o.put(i.operands[0], o.op("add", kind, difference, c), kind)


def divide(e: Emitter, i: Instruction) -> None:
    """div and rem; a zero divisor gives all ones, as the hardware's sequence does.

    32-bit operands are divided in double precision, which is exact for them and has no traps.
    """
    o, (kind, signed) = lanes_of(e, i), kind_of(e, i)
    a, b = (o.fetch(operand, kind) for operand in i.operands[1:3])
    zero, one, ones = (o.const(n, kind) for n in (0, 1, -1))
    avoid = bad = o.icmp("eq", kind, b, zero)
    if signed:  # the smallest number divided by -1 overflows: negate instead
        minus = o.icmp("eq", kind, b, ones)
        avoid = o.either(bad, minus)
    quotient = _exact_quotient(o, kind, signed, a, o.select(avoid, kind, one, b))
    if signed:
        quotient = o.select(minus, kind, o.op("sub", kind, zero, a), quotient)
    quotient = o.select(bad, kind, ones, quotient)
    if i.opcode == "rem":
        quotient = o.op("sub", kind, a, o.op("mul", kind, quotient, b))
    o.put(i.operands[0], quotient, kind)


def _exact_quotient(o: Lanes, kind: str, signed: bool, a: str, b: str) -> str:
    if kind == "i64":
        return o.op("sdiv" if signed else "udiv", kind, a, b)
    there, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    x, y = (o.convert(there, v, kind, "double") for v in (a, b))
    return o.convert(back, o.op("fdiv", "double", x, y), "double", kind)


def minmax_integer(e: Emitter, i: Instruction) -> None:
    name = type_name(e, i)
    sign = "s" if name.startswith("s") else "u"
    if name in PACKED_SHORTS:
        return _packed_shorts(e, i, f"llvm.{sign}{i.opcode}")
    o, (kind, _) = lanes_of(e, i), kind_of(e, i)
    result = o.call(sign + i.opcode, kind, *(o.fetch(operand, kind) for operand in i.operands[1:3]))
    if i.has("relu"):
        result = o.call("smax", kind, result, o.const(0, kind))
    return o.put(i.operands[0], result, kind)


def sign_integer(e: Emitter, i: Instruction) -> None:
    """neg and abs."""
    o, (kind, _) = lanes_of(e, i), kind_of(e, i)
    a = o.fetch(i.operands[1], kind)
    result = o.op("sub", kind, o.const(0, kind), a)
    if i.opcode == "abs":
        result = o.call("smax", kind, a, result)
    o.put(i.operands[0], result, kind)


def _byte(o: Lanes, word: str, start: int, bits: int, signed: bool) -> str:
    """A field of a 32-bit value, sign- or zero-extended."""
    top = o.op("shl", "i32", word, o.const(32 - bits - start, "i32"))
    return o.op("ashr" if signed else "lshr", "i32", top, o.const(32 - bits, "i32"))


def _dot_product(e: Emitter, i: Instruction) -> None:
    """dp4a: four bytes by four bytes; dp2a: two shorts by the lower or upper two bytes."""
    o = lanes_of(e, i)
    a, b, result = (o.fetch(operand, "i32") for operand in i.operands[1:4])
    a_signed, b_signed = (m.startswith("s") for m in i.mods[-2:])
    wide = 8 if i.opcode == "dp4a" else 16
    first = 16 if i.has("hi") else 0
    for n in range(32 // wide):
        x = _byte(o, a, wide * n, wide, a_signed)
        y = _byte(o, b, first + 8 * n, 8, b_signed)
        result = o.op("add", "i32", result, o.op("mul", "i32", x, y))
    o.put(i.operands[0], result, "i32")


ORDER = 20
OPCODES = {
    "mul24": Opcode(_multiply24, forms=("mul24.{lo,hi}.{u32,s32}",), operands="%r1, %r2, %r3"),
    "mad24": Opcode(_multiply24, forms=("mad24.{lo,hi}.{u32,s32}", "mad24.hi.sat.s32"), operands="%r1, %r2, %r3, %r4"),
    "sad": Opcode(_sad, forms=("sad.{u16,s16,u32,s32,u64,s64}",), operands="%rd1, %rd2, %rd3, %rd4"),
    "rem": Opcode(divide, forms=("rem.{u16,s16,u32,s32,u64,s64}",), operands="%rd1, %rd2, %rd3"),
    "dp4a": Opcode(_dot_product, forms=("dp4a.{u32,s32}.{u32,s32}",), operands="%r1, %r2, %r3, %r4"),
    "dp2a": Opcode(_dot_product, forms=("dp2a.{lo,hi}.{u32,s32}.{u32,s32}",), operands="%r1, %r2, %r3, %r4"),
}
