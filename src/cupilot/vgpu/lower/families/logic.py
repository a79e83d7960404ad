"""Bitwise logic and shifts (PTX ISA, "Logic and Shift Instructions": and, or, xor, not, cnot, shl, shr)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.lanes import INT, Lanes, lanes_of
from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import Imm, Instruction

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter


def _kind(e: Emitter, i: Instruction) -> str:
    name = i.mods[-1] if i.mods else ""
    if name == "pred":
        return "i1"
    if name not in INT:
        raise e.unsupported(f"the type .{name}")
    return INT[name]


def _bitwise(e: Emitter, i: Instruction) -> None:
    o, kind = lanes_of(e, i), _kind(e, i)
    a, b = (o.fetch(operand, kind) for operand in i.operands[1:3])
    o.put(i.operands[0], o.op(i.opcode, kind, a, b), kind)


def _not(e: Emitter, i: Instruction) -> None:
    o, kind = lanes_of(e, i), _kind(e, i)
    o.put(i.operands[0], o.op("xor", kind, o.fetch(i.operands[1], kind), o.const(-1, kind)), kind)


def _cnot(e: Emitter, i: Instruction) -> None:
    """The logical not of C."""
    o, kind = lanes_of(e, i), _kind(e, i)
    zero = o.icmp("eq", kind, o.fetch(i.operands[1], kind), o.const(0, kind))
    o.put(i.operands[0], o.convert("zext", zero, "i1", kind), kind)


def _shift(e: Emitter, i: Instruction) -> None:
    """Amounts are unsigned 32-bit and clamp at the width: zero, or copies of the sign."""
    o, kind = lanes_of(e, i), _kind(e, i)
    a = o.fetch(i.operands[1], kind)
    verb = "shl" if i.opcode == "shl" else "ashr" if i.mods[-1].startswith("s") else "lshr"
    o.put(i.operands[0], _clamped(o, i, verb, kind, a), kind)


def _clamped(o: Lanes, i: Instruction, verb: str, kind: str, a: str) -> str:
    width, by = int(kind[1:]), i.operands[2]
    if isinstance(by, Imm):
        amount = by.value & 0xFFFFFFFF
        if amount >= width and verb != "ashr":
            return o.const(0, kind)
        return o.op(verb, kind, a, o.const(min(amount, width - 1), kind))
    given = o.fetch(by, "i32")
    if verb == "ashr":
        return o.op(verb, kind, a, o.bits(o.call("umin", "i32", given, o.const(width - 1, "i32")), "i32", kind))
    # a shift beyond the width is undefined in LLVM; the select discards its result
    inside = o.icmp("ult", "i32", given, o.const(width, "i32"))
    return o.select(inside, kind, o.op(verb, kind, a, o.bits(given, "i32", kind)), o.const(0, kind))


ORDER = 50
OPCODES = {
    **{
        name: Opcode(
            _bitwise,
            kind="logic",
            forms=(name + ".{b16,b32,b64}", name + ".pred %p1, %p2, !%p3"),
            operands="%rd1, %rd2, %rd3",
        )
        for name in ("and", "or", "xor")
    },
    "not": Opcode(_not, kind="logic", forms=("not.{b16,b32,b64}", "not.pred %p1, %p2"), operands="%rd1, %rd2"),
    "cnot": Opcode(_cnot, kind="logic", forms=("cnot.{b16,b32,b64}",), operands="%rd1, %rd2"),
    "shl": Opcode(_shift, kind="logic", forms=("shl.{b16,b32,b64}",), operands="%rd1, %rd2, %r3"),
    "shr": Opcode(
        _shift, kind="logic", forms=("shr.{b16,b32,b64,u16,s16,u32,s32,u64,s64}",), operands="%rd1, %rd2, %r3"
    ),
}
