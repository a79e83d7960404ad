"""Comparison, selection, logic and shifts (PTX ISA, "Comparison and Selection", "Logic and Shift")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.floating import flush
from cupilot.vgpu.lower.integer import INT, vector_of
from cupilot.vgpu.lower.table import Lowering, Opcode
from cupilot.vgpu.ptx.syntax import Instruction, Pair, Reg

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

TYPES = {**INT, "f32": "float", "f64": "double", "pred": "i1"}
UNSIGNED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}
FLOAT_ORDERED = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "num": "ord", "nan": "uno",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge",
}  # fmt: skip


def type_of(e: Emitter, i: Instruction) -> str:
    kind = i.mods[-1] if i.mods else ""
    if kind not in TYPES:
        raise e.unsupported(f"the type .{kind}")
    return TYPES[kind]


def compare(e: Emitter, i: Instruction, vector: bool) -> str:
    """The comparison of setp and set, as i1 values."""
    kind, full = type_of(e, i), e.shaped(type_of(e, i), vector)
    relation = i.mods[0]
    a, b = (e.fetch(o, kind, vector) for o in i.operands[1:3])
    if kind in ("float", "double"):
        if i.has("ftz"):
            a, b = (flush(e, v, kind, vector) for v in (a, b))
        return e.op(f"fcmp {FLOAT_ORDERED[relation]} {full} {a}, {b}")
    if relation in UNSIGNED:
        verb = UNSIGNED[relation]
    elif relation in ("eq", "ne"):
        verb = relation
    else:
        verb = ("s" if i.mods[-1].startswith("s") else "u") + relation
    return e.op(f"icmp {verb} {full} {a}, {b}")


def _setp(e: Emitter, i: Instruction) -> None:
    target = i.operands[0]
    targets = (target.first, target.second) if isinstance(target, Pair) else (target,)
    results = []
    for number, place in enumerate(targets):
        if isinstance(place, Reg) and place.name != "_":
            # one result may live longer than the other, and so be kept for each lane
            vector = e.is_vector(place.name)
            results.append((place, _predicate(e, i, vector, opposite=number == 1), vector))
    for place, value, vector in results:  # an operand may be a result too, so set them last
        e.put(place, value, "i1", vector)


def _predicate(e: Emitter, i: Instruction, vector: bool, *, opposite: bool) -> str:
    """One result of setp; the second of a pair is that of the opposite comparison."""
    bits = e.shaped("i1", vector)
    result = compare(e, i, vector)
    if opposite:
        result = e.op(f"xor {bits} {result}, {e.constant(1, 'i1', vector)}")
    combine = next((m for m in i.mods[1:] if m in ("and", "or", "xor")), "")
    return e.op(f"{combine} {bits} {result}, {e.fetch(i.operands[3], 'i1', vector)}") if combine else result


def _selp(e: Emitter, i: Instruction) -> None:
    kind, vector = type_of(e, i), vector_of(e, i)
    full = e.shaped(kind, vector)
    a, b = (e.fetch(o, kind, vector) for o in i.operands[1:3])
    condition = e.fetch(i.operands[3], "i1", vector)
    e.put(i.operands[0], e.op(f"select {e.shaped('i1', vector)} {condition}, {full} {a}, {full} {b}"), kind, vector)


def _bitwise(e: Emitter, i: Instruction) -> None:
    kind, vector = type_of(e, i), vector_of(e, i)
    a, b = (e.fetch(o, kind, vector) for o in i.operands[1:3])
    e.put(i.operands[0], e.op(f"{i.opcode} {e.shaped(kind, vector)} {a}, {b}"), kind, vector)


def _not(e: Emitter, i: Instruction) -> None:
    kind, vector = type_of(e, i), vector_of(e, i)
    a = e.fetch(i.operands[1], kind, vector)
    e.put(i.operands[0], e.op(f"xor {e.shaped(kind, vector)} {a}, {e.constant(-1, kind, vector)}"), kind, vector)


def _shift(e: Emitter, i: Instruction) -> None:
    """Amounts are unsigned 32-bit and clamp at the width: zero, or copies of the sign."""
    kind, vector = type_of(e, i), vector_of(e, i)
    full, width = e.shaped(kind, vector), int(kind[1:])
    a = e.fetch(i.operands[1], kind, vector)
    amount = e.fetch(i.operands[2], "i32", vector)
    arithmetic = i.opcode == "shr" and i.mods[-1].startswith("s")
    limit = e.constant(width - 1, "i32", vector)
    clamped = e.intrinsic("umin", "i32", vector, amount, limit)
    verb = {"shl": "shl", "shr": "ashr" if arithmetic else "lshr"}[i.opcode]
    result = e.op(f"{verb} {full} {a}, {e.cast(clamped, 'i32', kind, vector)}")
    if not arithmetic:
        over = e.op(f"icmp ugt {e.shaped('i32', vector)} {amount}, {limit}")
        result = e.op(f"select {e.shaped('i1', vector)} {over}, {full} {e.constant(0, kind, vector)}, {full} {result}")
    e.put(i.operands[0], result, kind, vector)


def _count(intrinsic: str) -> Lowering:
    """popc, clz and brev; counts are 32-bit whatever the operand."""

    def lower(e: Emitter, i: Instruction) -> None:
        kind, vector = type_of(e, i), vector_of(e, i)
        a = e.fetch(i.operands[1], kind, vector)
        full = e.shaped(kind, vector)
        if intrinsic == "ctlz":
            name = f"llvm.ctlz.{'v32' if vector else ''}{kind}"
            result = e.call(full, name, f"{full} {a}, i1 false", f"{full}, i1")
        else:
            result = e.intrinsic(intrinsic, kind, vector, a)
        if intrinsic != "bitreverse" and kind == "i64":
            result, kind = e.cast(result, "i64", "i32", vector), "i32"
        e.put(i.operands[0], result, kind, vector)

    return lower


OPCODES = {
    "setp": Opcode(_setp, "setp"),
    "selp": Opcode(_selp, "selp"),
    "and": Opcode(_bitwise, "and"),
    "or": Opcode(_bitwise, "or"),
    "xor": Opcode(_bitwise, "xor"),
    "not": Opcode(_not, "not"),
    "shl": Opcode(_shift, "shl"),
    "shr": Opcode(_shift, "shr"),
    "popc": Opcode(_count("ctpop"), "popc"),
    "clz": Opcode(_count("ctlz"), "clz"),
    "brev": Opcode(_count("bitreverse"), "brev"),
}
