"""Moves and addresses (PTX ISA, "Data Movement and Conversion Instructions": mov, cvta, isspacep)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu import layout
from cupilot.vgpu.lower.lanes import FLOATS, INT, Lanes, lanes_of
from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import Instruction, Operand, Reg, Vector

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

MOVED = {
    **INT, **FLOATS, "pred": "i1", "b8": "i8", "u8": "i8", "s8": "i8", "b128": "i128", "f16": "i16", "bf16": "i16",
    "f16x2": "i32", "bf16x2": "i32",
}  # fmt: skip
WINDOWS = {"shared": layout.SHARED_WINDOW, "local": layout.LOCAL_WINDOW}
SPACES = ("global", "const", "param", "shared", "local")


def _mov(e: Emitter, i: Instruction) -> None:
    target, source = i.operands
    kind = MOVED.get(i.mods[-1])
    if kind is None:
        raise e.unsupported(f"the type .{i.mods[-1]}")
    if isinstance(target, Vector):
        _unpack(e, target.items, source, kind)
    elif isinstance(source, Vector):
        _pack(lanes_of(e, i), target, source.items, kind)
    else:
        o = lanes_of(e, i)
        o.put(target, o.fetch(source, kind), kind)


def _part(kind: str, items: tuple[Operand, ...]) -> str:
    return f"i{int(kind[1:]) // len(items)}"


def _pack(o: Lanes, target: Operand, items: tuple[Operand, ...], kind: str) -> None:
    part = _part(kind, items)
    result = ""
    for number, item in enumerate(items):
        value = o.convert("zext", o.fetch(item, part), part, kind)
        if number:
            value = o.op("shl", kind, value, _number(o, number * int(part[1:]), kind))
            result = o.op("or", kind, result, value)
        else:
            result = value
    o.put(target, result, kind)


def _unpack(e: Emitter, items: tuple[Operand, ...], source: Operand, kind: str) -> None:
    part = _part(kind, items)
    results = []
    for number, item in enumerate(items):
        if not isinstance(item, Reg) or item.name == "_":
            continue
        # one result may live longer than the other, so only one of them may need a value per lane
        o = Lanes(e, e.is_vector(item.name))
        value = o.fetch(source, kind)
        if number:
            value = o.op("lshr", kind, value, _number(o, number * int(part[1:]), kind))
        results.append((o, item, o.convert("trunc", value, kind, part)))
    for o, item, value in results:
        o.put(item, value, part)


def _number(o: Lanes, value: int, kind: str) -> str:
    """A constant of any integer type, including i128."""
    return f"splat ({kind} {value})" if o.vector else str(value)


def _space(e: Emitter, i: Instruction) -> str:
    """The state space that the instruction names, without its ``::cta`` or ``::cluster``."""
    named = [m.split("::")[0] for m in i.mods if m.split("::")[0] in SPACES]
    if len(named) != 1:
        raise e.unsupported("this state space")
    return named[0]


def _cvta(e: Emitter, i: Instruction) -> None:
    """Global addresses are generic addresses; shared and local memory have windows in the generic space."""
    o = lanes_of(e, i)
    if i.mods[-1] != "u64":
        raise e.unsupported(f"addresses of type .{i.mods[-1]}")
    value = o.fetch(i.operands[1], "i64")
    if window := WINDOWS.get(_space(e, i)):
        value = o.op("sub" if i.has("to") else "add", "i64", value, o.const(window, "i64"))
    o.put(i.operands[0], value, "i64")


def _isspacep(e: Emitter, i: Instruction) -> None:
    """Whether a generic address is in a window; constants and parameters are in global memory here."""
    o, space = lanes_of(e, i), _space(e, i)
    window = o.op("lshr", "i64", o.fetch(i.operands[1], "i64"), o.const(56, "i64"))
    if space in WINDOWS:
        result = o.icmp("eq", "i64", window, o.const(WINDOWS[space] >> 56, "i64"))
    elif space == "global":
        result = o.icmp("eq", "i64", window, o.const(0, "i64"))
    else:
        raise e.unsupported(f"addresses of the space .{space}, which look like global ones")
    o.put(i.operands[0], result, "i1")


ORDER = 90
OPCODES = {
    "mov": Opcode(
        _mov,
        kind="move",
        forms=(
            "mov.{b16,b32,b64,u16,s16,u32,s32,u64,s64,f32,f64}",
            "mov.pred %p1, %p2",
            "mov.b32 %r1, {%rs1, %rs2}",
            "mov.b64 %rd1, {%r1, %r2}",
            "mov.b64 %rd1, {%rs1, %rs2, %rs3, %rs4}",
            "mov.b128 %q1, {%rd1, %rd2}",
            "mov.b32 {%rs1, %rs2}, %r1",
            "mov.b64 {%r1, _}, %rd1",
            "mov.b128 {%rd1, %rd2}, %q1",
            "mov.u64 %rd1, variable",
            "mov.u32 %r1, tile+16",
            "mov.u32 %r1, {%tid,%ntid,%ctaid,%nctaid}.{x,y,z}",
            "mov.u32 %r1, {%laneid,%warpid,%nwarpid,%smid,%nsmid,%clock,%clock_hi,"
            "%lanemask_eq,%lanemask_lt,%lanemask_le,%lanemask_gt,%lanemask_ge,"
            "%dynamic_smem_size,%total_smem_size,%envreg1,%envreg2,WARP_SZ}",
            "mov.u64 %rd1, {%clock64,%globaltimer,%gridid}",
        ),
        operands="%rd1, %rd2",
    ),
    "cvta": Opcode(
        _cvta,
        pipe="control",
        kind="convert",
        forms=("cvta{,.to}.{global,shared,local,const,param}.u64",),
        operands="%rd1, %rd2",
        missing=("cvta.global.u32",),
    ),
    "isspacep": Opcode(
        _isspacep,
        kind="convert",
        forms=("isspacep.{global,shared,shared::cta,local}",),
        operands="%p1, %rd1",
        missing=("isspacep.{const,param}",),
    ),
}
