"""Comparison and selection (PTX ISA, "Comparison and Selection Instructions": set, setp, selp, slct)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.half import flush_half, join, split, widen
from cupilot.vgpu.lower.lanes import FLOATS, HALVES, INT, Lanes, lanes_of
from cupilot.vgpu.lower.rounding import flush
from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import Instruction, Pair, Reg

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

UNSIGNED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}
INTEGERS = ("eq", "ne", "lt", "le", "gt", "ge")
FLOAT_RELATIONS = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "num": "ord", "nan": "uno",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge",
}  # fmt: skip
SELECTED = {**INT, **FLOATS, "f16": "i16", "bf16": "i16", "f16x2": "i32", "bf16x2": "i32", "b8": "i8"}


def _compared(o: Lanes, i: Instruction, element: int = 0) -> str:
    """The comparison of setp and set as i1 values; packed types have two elements."""
    name, relation = i.mods[-1], i.mods[0]
    if name in HALVES:
        single = name.removesuffix("x2")
        values = []
        for operand in i.operands[1:3]:
            raw = o.fetch(operand, "i16") if single == name else split(o, o.fetch(operand, "i32"))[element]
            values.append(widen(o, flush_half(o, raw, single) if i.has("ftz") else raw, single))
        kind = "float"
    elif name in (*INT, *FLOATS):
        kind = {**INT, **FLOATS}[name]
        values = [o.fetch(operand, kind) for operand in i.operands[1:3]]
        if i.has("ftz"):
            values = [flush(o, v, kind) for v in values]
    else:
        raise o.e.unsupported(f"the type .{name}")
    if kind in FLOATS.values():
        if relation not in FLOAT_RELATIONS:
            raise o.e.unsupported(f"the comparison .{relation}")
        return o.fcmp(FLOAT_RELATIONS[relation], kind, *values)
    if relation in UNSIGNED:
        verb = UNSIGNED[relation]
    elif relation in INTEGERS:
        verb = relation if relation in ("eq", "ne") else ("s" if name.startswith("s") else "u") + relation
    else:
        raise o.e.unsupported(f"the comparison .{relation}")
    return o.icmp(verb, kind, *values)


def _combined(o: Lanes, i: Instruction, result: str) -> str:
    """Combined with the predicate of a form such as ``setp.lt.and``."""
    combine = next((m for m in i.mods[1:] if m in ("and", "or", "xor")), "")
    return o.op(combine, "i1", result, o.fetch(i.operands[3], "i1")) if combine else result


def _setp(e: Emitter, i: Instruction) -> None:
    """The second result is that of the opposite comparison or, for packed types, of the upper element."""
    target = i.operands[0]
    targets = (target.first, target.second) if isinstance(target, Pair) else (target,)
    results = []
    for number, place in enumerate(targets):
        if not isinstance(place, Reg) or place.name == "_":
            continue
        # one result may live longer than the other, so only one of them may need a value per lane
        o = Lanes(e, e.is_vector(place.name))
        if i.mods[-1].endswith("x2"):
            value = _compared(o, i, number)
        else:
            value = _compared(o, i)
            if number == 1:
                value = o.op("xor", "i1", value, o.const(1, "i1"))
        results.append((o, place, _combined(o, i, value)))
    for o, place, value in results:  # an operand may also be a result, so results are written last
        o.put(place, value, "i1")


# the result type and the value that stands for true
TRUE = {
    "u32": ("i32", -1), "s32": ("i32", -1), "u16": ("i16", -1), "s16": ("i16", -1), "u64": ("i64", -1),
    "s64": ("i64", -1), "f32": ("i32", 0x3F800000), "f16": ("i16", 0x3C00), "bf16": ("i16", 0x3F80),
    "f16x2": ("i16", 0x3C00), "bf16x2": ("i16", 0x3F80),
}  # fmt: skip


def _set(e: Emitter, i: Instruction) -> None:
    """Ones or 1.0 where true; packed operands give two 16-bit results."""
    to = i.mods[-2] if len(i.mods) > 2 else ""
    if to not in TRUE:
        raise e.unsupported(f"the result type .{to}")
    o = lanes_of(e, i)
    kind, true = TRUE[to]
    packed = i.mods[-1].endswith("x2")
    if packed:
        kind = "i16"
    values = []
    for element in (0, 1) if packed else (0,):
        result = _combined(o, i, _compared(o, i, element))
        values.append(o.select(result, kind, o.const(true, kind), o.const(0, kind)))
    if packed:
        o.put(i.operands[0], join(o, *values), "i32")
    else:
        o.put(i.operands[0], values[0], kind)


def _selp(e: Emitter, i: Instruction) -> None:
    name = i.mods[-1] if i.mods else ""
    if name not in SELECTED and name != "pred":
        raise e.unsupported(f"the type .{name}")
    o, kind = lanes_of(e, i), SELECTED.get(name, "i1")
    a, b = (o.fetch(operand, kind) for operand in i.operands[1:3])
    o.put(i.operands[0], o.select(o.fetch(i.operands[3], "i1"), kind, a, b), kind)


def _slct(e: Emitter, i: Instruction) -> None:
    """Select by the sign of the third operand; -0 counts as positive, NaN as negative."""
    name, by = i.mods[-2:]
    if name not in SELECTED or by not in ("s32", "f32"):
        raise e.unsupported(f"the types .{name}.{by}")
    o, kind = lanes_of(e, i), SELECTED[name]
    a, b = (o.fetch(operand, kind) for operand in i.operands[1:3])
    if by == "s32":
        chosen = o.icmp("sge", "i32", o.fetch(i.operands[3], "i32"), o.const(0, "i32"))
    else:
        c = o.fetch(i.operands[3], "float")
        chosen = o.fcmp("oge", "float", flush(o, c, "float") if i.has("ftz") else c, o.const(0, "float"))
    o.put(i.operands[0], o.select(chosen, kind, a, b), kind)


ORDER = 60
OPCODES = {
    "setp": Opcode(
        _setp,
        kind="compare",
        forms=(
            "setp.{eq,ne}.{b16,b32,b64}",
            "setp.{eq,ne,lt,le,gt,ge}.{u16,s16,u32,s32,u64,s64}",
            "setp.{lo,ls,hi,hs}.{u16,u32,u64}",
            "setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.ftz}.{f32,f16,f16x2}",
            "setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.{f64,bf16,bf16x2}",
            "setp.lt.{and,or,xor}.s32 %p1|%p2, %r1, %r2, !%p3",
        ),
        operands="%p1|%p2, %rd1, %rd2",
    ),
    "set": Opcode(
        _set,
        kind="compare",
        forms=(
            "set.{eq,ne,lt,le,gt,ge}.{u32,s32,f32}.{u16,s16,u32,s32,u64,s64}",
            "set.{lt,geu,num,nan}{,.ftz}.{u32,s32,f32}.f32",
            "set.{lt,geu}.{u32,s32,f32}.f64",
            "set.lt.{f16,bf16,u16,s16}.f16",
            "set.lt.{f16x2}.f16x2",
            "set.lt.bf16x2.bf16x2",
            "set.lt.{and,or,xor}.u32.s32 %r1, %r2, %r3, %p1",
        ),
        operands="%rd1, %rd2, %rd3",
    ),
    "selp": Opcode(
        _selp,
        kind="compare",
        forms=("selp.{b16,b32,b64,u16,s16,u32,s32,u64,s64,f32,f64}",),
        operands="%rd1, %rd2, %rd3, %p1",
    ),
    "slct": Opcode(
        _slct,
        kind="compare",
        forms=(
            "slct.{b16,b32,b64,u16,s16,u32,s32,u64,s64,f32,f64}.s32",
            "slct{,.ftz}.{b16,b32,b64,u16,s16,u32,s32,u64,s64,f32,f64}.f32 %rd1, %rd2, %rd3, %f1",
        ),
        operands="%rd1, %rd2, %rd3, %r4",
    ),
}
