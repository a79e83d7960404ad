"""Extended-precision integers (PTX ISA, "Extended-Precision Integer Arithmetic Instructions").

The carry flag is a value inside a basic block; a flag that another block set cannot be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.lanes import INT, Lanes, lanes_of, type_name
from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.lower.wide import product
from cupilot.vgpu.ptx.syntax import Instruction

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

FLAG = "CC.CF"


def with_carry(e: Emitter, i: Instruction) -> None:
    """add, sub and mad that set the flag; addc, subc and madc, which read it and may set it."""
    o, name = lanes_of(e, i), type_name(e, i)
    if name not in INT or INT[name] == "i16":
        raise e.unsupported(f"the type .{name}")
    kind = INT[name]
    a, b = (o.fetch(operand, kind) for operand in i.operands[1:3])
    if i.opcode.startswith("mad"):
        a = product(o, a, b, kind, signed=name.startswith("s"), high=i.has("hi"))
        b = o.fetch(i.operands[3], kind)
    carry_in = o.convert("zext", _flag(o), "i1", kind) if i.opcode.endswith("c") else ""
    result, carry = (_difference if i.opcode.startswith("sub") else _sum)(o, kind, a, b, carry_in)
    if i.has("cc"):
        _set_flag(o, carry)
    o.put(i.operands[0], result, kind)


def _sum(o: Lanes, kind: str, a: str, b: str, carry_in: str) -> tuple[str, str]:
    total = o.op("add", kind, a, b)
    carry = o.icmp("ult", kind, total, a)
    if not carry_in:
        return total, carry
    result = o.op("add", kind, total, carry_in)
    return result, o.either(carry, o.icmp("ult", kind, result, total))


def _difference(o: Lanes, kind: str, a: str, b: str, borrow_in: str) -> tuple[str, str]:
    rest = o.op("sub", kind, a, b)
    borrow = o.icmp("ult", kind, a, b)
    if not borrow_in:
        return rest, borrow
    return o.op("sub", kind, rest, borrow_in), o.either(borrow, o.icmp("ult", kind, rest, borrow_in))


def _flag(o: Lanes) -> str:
    held = o.e.held.get(FLAG)
    if held is None:
        raise o.e.unsupported("a carry from another basic block")
    if o.vector and not held.vector:
        return o.e.splat(held.value, "i1")
    if held.vector and not o.vector:
        raise AssertionError("the carry differs between lanes where one value is needed")
    return held.value


def _set_flag(o: Lanes, value: str) -> None:
    from cupilot.vgpu.emit.operands import Held

    guard = o.e.instruction.guard if o.e.instruction is not None else ""
    if guard:  # the other lanes keep the old flag
        wide = Lanes(o.e, True)
        if not o.vector:
            value = o.e.splat(value, "i1")
        old = _flag(wide) if FLAG in o.e.held else wide.const(0, "i1")
        o.e.held[FLAG] = Held(wide.select(o.e.guard(True), "i1", value, old), "i1", True)
    else:
        o.e.held[FLAG] = Held(value, "i1", o.vector)


ORDER = 30
# the flag is not an operand, so results may differ between lanes although the operands do not
OPCODES = {
    "addc": Opcode(
        with_carry,
        varies=True,
        forms=("addc{,.cc}.{u32,s32,u64,s64}",),
        operands="%rd1, %rd2, %rd3",
        before="add.cc.u32 %r9, %r8, %r7;",
        notes="the flag does not outlive a basic block",
    ),
    "subc": Opcode(
        with_carry,
        varies=True,
        forms=("subc{,.cc}.{u32,s32,u64,s64}",),
        operands="%rd1, %rd2, %rd3",
        before="sub.cc.u32 %r9, %r8, %r7;",
        notes="the flag does not outlive a basic block",
    ),
    "madc": Opcode(
        with_carry,
        varies=True,
        forms=("madc.{lo,hi}{,.cc}.{u32,s32,u64,s64}",),
        operands="%rd1, %rd2, %rd3, %rd4",
        before="add.cc.u32 %r9, %r8, %r7;",
        notes="the flag does not outlive a basic block",
    ),
}
