"""Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.floating import (
    FLOATS,
    add_float,
    div_float,
    float_minmax,
    fma_float,
    mul_float,
    neg_abs_float,
    sub_float,
)
from cupilot.vgpu.lower.table import Lowering, Opcode
from cupilot.vgpu.ptx.syntax import Instruction, Reg

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

INT = {f"{sign}{bits}": f"i{bits}" for sign in "usb" for bits in (16, 32, 64)}
WIDER = {"i16": "i32", "i32": "i64", "i64": "i128"}


def kind_of(e: Emitter, i: Instruction) -> str:
    kind = i.mods[-1] if i.mods else ""
    if kind not in INT:
        raise e.unsupported(f"the type .{kind}")
    return INT[kind]


def vector_of(e: Emitter, i: Instruction) -> bool:
    return e.is_vector(*(o.name for o in i.operands[:1] if isinstance(o, Reg)))


def _binary(verb: str) -> Lowering:
    def lower(e: Emitter, i: Instruction) -> None:
        if i.has("sat") or i.has("cc"):
            raise e.unsupported("saturation or carry")
        kind, vector = kind_of(e, i), vector_of(e, i)
        a, b = (e.fetch(o, kind, vector) for o in i.operands[1:3])
        e.put(i.operands[0], e.op(f"{verb} {e.shaped(kind, vector)} {a}, {b}"), kind, vector)

    return lower


def _by_type(floating: Lowering, integer: Lowering) -> Lowering:
    return lambda e, i: floating(e, i) if i.mods[-1] in FLOATS else integer(e, i)


def _product(e: Emitter, i: Instruction) -> None:
    """mul and mad, in their lo, hi and wide forms."""
    kind, vector = kind_of(e, i), vector_of(e, i)
    signed = i.mods[-1].startswith("s")
    extend = "sext" if signed else "zext"
    a, b = (e.fetch(o, kind, vector) for o in i.operands[1:3])
    if i.has("lo"):
        result, out = e.op(f"mul {e.shaped(kind, vector)} {a}, {b}"), kind
    else:
        out = WIDER[kind]
        full = e.shaped(out, vector)
        a, b = (e.op(f"{extend} {e.shaped(kind, vector)} {v} to {full}") for v in (a, b))
        result = e.op(f"mul {full} {a}, {b}")
        if i.has("hi"):
            bits = int(kind[1:])
            shift = f"splat ({out} {bits})" if vector else str(bits)
            high = e.op(f"lshr {full} {result}, {shift}")
            result, out = e.op(f"trunc {full} {high} to {e.shaped(kind, vector)}"), kind
    if i.opcode == "mad":
        if i.has("cc") or i.has("sat"):
            raise e.unsupported("saturation or carry")
        c = e.fetch(i.operands[3], out, vector)
        result = e.op(f"add {e.shaped(out, vector)} {result}, {c}")
    e.put(i.operands[0], result, out, vector)


def _divide(e: Emitter, i: Instruction) -> None:
    """div and rem; a zero divisor gives all ones, as the hardware's sequence does.

    32-bit operands are divided in double precision, which is exact for them and has no traps.
    """
    kind, vector = kind_of(e, i), vector_of(e, i)
    full, signed = e.shaped(kind, vector), i.mods[-1].startswith("s")
    a, b = (e.fetch(o, kind, vector) for o in i.operands[1:3])
    zero, one = e.constant(0, kind, vector), e.constant(1, kind, vector)
    bad = e.op(f"icmp eq {full} {b}, {zero}")
    bits = e.shaped("i1", vector)
    if signed:  # the smallest number by -1 overflows: negate instead
        minus = e.op(f"icmp eq {full} {b}, {e.constant(-1, kind, vector)}")
        avoid = e.op(f"or {bits} {bad}, {minus}")
    else:
        avoid = bad
    safe = e.op(f"select {bits} {avoid}, {full} {one}, {full} {b}")
    quotient = _exact_quotient(e, kind, vector, signed, a, safe)
    if signed:
        negated = e.op(f"sub {full} {zero}, {a}")
        quotient = e.op(f"select {bits} {minus}, {full} {negated}, {full} {quotient}")
    quotient = e.op(f"select {bits} {bad}, {full} {e.constant(-1, kind, vector)}, {full} {quotient}")
    if i.opcode == "div":
        e.put(i.operands[0], quotient, kind, vector)
        return
    back = e.op(f"mul {full} {quotient}, {b}")
    e.put(i.operands[0], e.op(f"sub {full} {a}, {back}"), kind, vector)


def _exact_quotient(e: Emitter, kind: str, vector: bool, signed: bool, a: str, b: str) -> str:
    full = e.shaped(kind, vector)
    if kind == "i64":
        return e.op(f"{'sdiv' if signed else 'udiv'} {full} {a}, {b}")
    there, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    double = e.shaped("double", vector)
    x, y = (e.op(f"{there} {full} {v} to {double}") for v in (a, b))
    return e.op(f"{back} {double} {e.op(f'fdiv {double} {x}, {y}')} to {full}")


def _minmax(e: Emitter, i: Instruction) -> None:
    if i.has("relu"):
        raise e.unsupported("relu")
    kind, vector = kind_of(e, i), vector_of(e, i)
    sign = "s" if i.mods[-1].startswith("s") else "u"
    a, b = (e.fetch(o, kind, vector) for o in i.operands[1:3])
    e.put(i.operands[0], e.intrinsic(sign + i.opcode, kind, vector, a, b), kind, vector)


def _negate(e: Emitter, i: Instruction) -> None:
    kind, vector = kind_of(e, i), vector_of(e, i)
    full, a = e.shaped(kind, vector), e.fetch(i.operands[1], kind, vector)
    negative = e.op(f"sub {full} {e.constant(0, kind, vector)}, {a}")
    if i.opcode == "abs":
        below = e.op(f"icmp slt {full} {a}, {e.constant(0, kind, vector)}")
        negative = e.op(f"select {e.shaped('i1', vector)} {below}, {full} {negative}, {full} {a}")
    e.put(i.operands[0], negative, kind, vector)


OPCODES = {
    "add": Opcode(_by_type(add_float, _binary("add")), "add"),
    "sub": Opcode(_by_type(sub_float, _binary("sub")), "sub"),
    "mul": Opcode(_by_type(mul_float, _product), "mul"),
    "mad": Opcode(_by_type(fma_float, _product), "mad"),
    "div": Opcode(_by_type(div_float, _divide), "div"),
    "rem": Opcode(_divide, "rem"),
    "min": Opcode(_by_type(float_minmax, _minmax), "min"),
    "max": Opcode(_by_type(float_minmax, _minmax), "max"),
    "neg": Opcode(_by_type(neg_abs_float, _negate), "neg"),
    "abs": Opcode(_by_type(neg_abs_float, _negate), "abs"),
}
