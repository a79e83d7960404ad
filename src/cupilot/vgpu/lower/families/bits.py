"""Bits and bytes inside a register (PTX ISA: popc, clz, bfind, fns, brev, bfe, bfi, bmsk, szext, prmt, lop3, shf)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.lanes import INT, Lanes, lanes_of
from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import Imm, Instruction, Operand, Pair, Reg

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter


def _kind(e: Emitter, i: Instruction) -> str:
    name = i.mods[-1] if i.mods else ""
    if INT.get(name) not in ("i32", "i64"):
        raise e.unsupported(f"the type .{name}")
    return INT[name]


def _leading_zeros(o: Lanes, value: str, kind: str) -> str:
    full = o.full(kind)
    name = f"llvm.ctlz.{'v32' if o.vector else ''}{kind}"
    return o.e.call(full, name, f"{full} {value}, i1 false", f"{full}, i1 immarg")


def _count(e: Emitter, i: Instruction) -> None:
    """popc and clz; the result has 32 bits for every operand type."""
    o, kind = lanes_of(e, i), _kind(e, i)
    a = o.fetch(i.operands[1], kind)
    result = o.call("ctpop", kind, a) if i.opcode == "popc" else _leading_zeros(o, a, kind)
    o.put(i.operands[0], o.bits(result, kind, "i32"), "i32")


def _reverse(e: Emitter, i: Instruction) -> None:
    o, kind = lanes_of(e, i), _kind(e, i)
    o.put(i.operands[0], o.call("bitreverse", kind, o.fetch(i.operands[1], kind)), kind)


def _bfind(e: Emitter, i: Instruction) -> None:
    """The highest bit that is not a copy of the sign, from the right or (shiftamt) from the left; -1 if none."""
    o, kind = lanes_of(e, i), _kind(e, i)
    a = o.fetch(i.operands[1], kind)
    if i.mods[-1].startswith("s"):
        sign = o.op("ashr", kind, a, o.const(int(kind[1:]) - 1, kind))
        a = o.op("xor", kind, a, sign)
    zeros = _leading_zeros(o, a, kind)
    top = o.const(int(kind[1:]) - 1, kind)
    found = zeros if i.has("shiftamt") else o.op("sub", kind, top, zeros)
    none = o.icmp("eq", kind, a, o.const(0, kind))
    o.put(i.operands[0], o.bits(o.select(none, kind, o.const(-1, kind), found), kind, "i32"), "i32")


def _fns(e: Emitter, i: Instruction) -> None:
    o = lanes_of(e, i)
    values = [o.fetch(operand, "i32") for operand in i.operands[1:4]]
    o.put(i.operands[0], o.runtime("vg_fns", values, "i32", "i32"), "i32")


def _field(o: Lanes, operand: Operand, kind: str) -> str:
    """A position or length: the low byte of a 32-bit operand."""
    return o.bits(o.op("and", "i32", o.fetch(operand, "i32"), o.const(0xFF, "i32")), "i32", kind)


def _bfe(e: Emitter, i: Instruction) -> None:
    """A field, sign- or zero-extended; bits beyond the top are copies of the sign, or zero."""
    o, kind = lanes_of(e, i), _kind(e, i)
    bits, signed = int(kind[1:]), i.mods[-1].startswith("s")
    a = o.fetch(i.operands[1], kind)
    start, length = (_field(o, operand, kind) for operand in i.operands[2:4])
    zero, width = o.const(0, kind), o.const(bits, kind)
    shift = "ashr" if signed else "lshr"
    moved = o.op(shift, kind, a, o.call("umin", kind, start, o.const(bits - 1, kind)))
    if not signed:
        moved = o.select(o.icmp("ult", kind, start, width), kind, moved, zero)
    rest = o.op("sub", kind, width, o.call("umin", kind, length, width))
    empty = o.icmp("eq", kind, length, zero)
    rest = o.select(empty, kind, zero, rest)
    field = o.op(shift, kind, o.op("shl", kind, moved, rest), rest)
    o.put(i.operands[0], o.select(empty, kind, zero, field), kind)


def _ones(o: Lanes, kind: str, count: str) -> str:
    """A mask of the ``count`` lowest bits, at most all."""
    bits = int(kind[1:])
    inside = o.icmp("ult", kind, count, o.const(bits, kind))
    mask = o.op("sub", kind, o.op("shl", kind, o.const(1, kind), count), o.const(1, kind))
    return o.select(inside, kind, mask, o.const(-1, kind))


def _shifted(o: Lanes, kind: str, value: str, amount: str) -> str:
    """Shifted left; a shift beyond the width gives zero."""
    inside = o.icmp("ult", kind, amount, o.const(int(kind[1:]), kind))
    return o.select(inside, kind, o.op("shl", kind, value, amount), o.const(0, kind))


def _bfi(e: Emitter, i: Instruction) -> None:
    o, kind = lanes_of(e, i), _kind(e, i)
    a, b = (o.fetch(operand, kind) for operand in i.operands[1:3])
    start, length = (_field(o, operand, kind) for operand in i.operands[3:5])
    mask = _shifted(o, kind, _ones(o, kind, length), start)
    inserted = o.op("and", kind, _shifted(o, kind, a, start), mask)
    kept = o.op("and", kind, b, o.op("xor", kind, mask, o.const(-1, kind)))
    o.put(i.operands[0], o.op("or", kind, kept, inserted), kind)


def _bounded(o: Lanes, i: Instruction, value: str) -> str:
    """A position: its low five bits (wrap), or as it is (clamp)."""
    return o.op("and", "i32", value, o.const(31, "i32")) if i.has("wrap") else value


def _bmsk(e: Emitter, i: Instruction) -> None:
    """A mask with a start position and a width."""
    o = lanes_of(e, i)
    start, width = (_bounded(o, i, o.fetch(operand, "i32")) for operand in i.operands[1:3])
    o.put(i.operands[0], _shifted(o, "i32", _ones(o, "i32", width), start), "i32")


def _szext(e: Emitter, i: Instruction) -> None:
    """The given number of low bits, sign- or zero-extended."""
    o = lanes_of(e, i)
    a = o.fetch(i.operands[1], "i32")
    count = _bounded(o, i, o.fetch(i.operands[2], "i32"))
    thirty_two = o.const(32, "i32")
    rest = o.op("sub", "i32", thirty_two, o.call("umin", "i32", count, thirty_two))
    empty = o.icmp("eq", "i32", count, o.const(0, "i32"))
    rest = o.select(empty, "i32", o.const(0, "i32"), rest)
    shift = "ashr" if i.mods[-1].startswith("s") else "lshr"
    field = o.op(shift, "i32", o.op("shl", "i32", a, rest), rest)
    o.put(i.operands[0], o.select(empty, "i32", o.const(0, "i32"), field), "i32")


# for each value of the selector's low two bits, which of eight bytes each of the four result bytes is
PERMUTATIONS: dict[str, tuple[tuple[int, ...], ...]] = {
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}


def _prmt(e: Emitter, i: Instruction) -> None:
    """Select bytes of two registers; a selector of eight or more replicates the byte's sign."""
    o = lanes_of(e, i)
    a, b = (o.fetch(operand, "i32") for operand in i.operands[1:3])
    table = next((PERMUTATIONS[m] for m in i.mods if m in PERMUTATIONS), None)
    selector = i.operands[3]
    if isinstance(selector, Imm):
        named = table[selector.value & 3] if table is not None else None
        chosen = named or tuple(selector.value >> 4 * n & 15 for n in range(4))
        if max(chosen) < 8:
            o.put(i.operands[0], _shuffled(o, a, b, chosen), "i32")
            return
    c = o.fetch(selector, "i32")
    if table is not None:
        c = _looked_up(o, c, table)
    high = o.op("shl", "i64", o.bits(b, "i32", "i64"), o.const(32, "i64"))
    both = o.op("or", "i64", o.bits(a, "i32", "i64"), high)
    result = o.const(0, "i32")
    for n in range(4):
        which = o.op("lshr", "i32", c, o.const(4 * n, "i32"))
        start = o.op("shl", "i32", o.op("and", "i32", which, o.const(7, "i32")), o.const(3, "i32"))
        moved = o.op("lshr", "i64", both, o.bits(start, "i32", "i64"))
        byte = o.op("and", "i32", o.bits(moved, "i64", "i32"), o.const(0xFF, "i32"))
        sign = o.icmp("ugt", "i32", byte, o.const(0x7F, "i32"))
        replicated = o.select(sign, "i32", o.const(0xFF, "i32"), o.const(0, "i32"))
        wants_sign = o.icmp("ne", "i32", o.op("and", "i32", which, o.const(8, "i32")), o.const(0, "i32"))
        byte = o.select(wants_sign, "i32", replicated, byte)
        result = o.op("or", "i32", result, o.op("shl", "i32", byte, o.const(8 * n, "i32")))
    o.put(i.operands[0], result, "i32")


def _looked_up(o: Lanes, c: str, table: tuple[tuple[int, ...], ...]) -> str:
    """The selector of the default mode that is equivalent to a named mode."""
    low = o.op("and", "i32", c, o.const(3, "i32"))
    result = o.const(0, "i32")
    for number, row in enumerate(table):
        packed = sum(byte << 4 * n for n, byte in enumerate(row))
        here = o.icmp("eq", "i32", low, o.const(number, "i32"))
        result = o.select(here, "i32", o.const(packed, "i32"), result)
    return result


def _shuffled(o: Lanes, a: str, b: str, chosen: tuple[int, ...]) -> str:
    lanes = 32 if o.vector else 1
    full, word = f"<{4 * lanes} x i8>", o.full("i32")
    x, y = (o.e.op(f"bitcast {word} {v} to {full}") for v in (a, b))
    order = [4 * lane + (c if c < 4 else 4 * lanes + c - 4) for lane in range(lanes) for c in chosen]
    places = ", ".join(f"i32 {n}" for n in order)
    moved = o.e.op(f"shufflevector {full} {x}, {full} {y}, <{4 * lanes} x i32> <{places}>")
    return o.e.op(f"bitcast {full} {moved} to {word}")


def _lop3(e: Emitter, i: Instruction) -> None:
    """Any function of three bits; the second result says whether the first is not zero, combined with a predicate."""
    target = i.operands[0]
    places = (target.first, target.second) if isinstance(target, Pair) else (target,)
    table = i.operands[4]
    if not isinstance(table, Imm):
        raise e.unsupported("a table that is not a constant")
    combine = next((m for m in i.mods if m in ("and", "or", "xor")), "")
    results = []
    for number, place in enumerate(places):
        if not isinstance(place, Reg) or place.name == "_":
            continue
        o = Lanes(e, e.is_vector(place.name))
        a, b, c = (o.fetch(operand, "i32") for operand in i.operands[1:4])
        value, kind = _three_bits(o, table.value & 0xFF, a, b, c), "i32"
        if number == 1:
            value, kind = o.icmp("ne", "i32", value, o.const(0, "i32")), "i1"
            if combine:
                value = o.op(combine, "i1", value, o.fetch(i.operands[5], "i1"))
        results.append((o, place, value, kind))
    for o, place, value, kind in results:  # an operand may also be a result, so results are written last
        o.put(place, value, kind)


def _three_bits(o: Lanes, table: int, a: str, b: str, c: str) -> str:
    """Bit ``4a + 2b + c`` of the table, in every position."""
    with_c = sum((table >> (2 * n + 1) & 1) << n for n in range(4))
    without = sum((table >> (2 * n) & 1) << n for n in range(4))
    if with_c == without:
        return _two_bits(o, with_c, a, b)
    yes, no = _two_bits(o, with_c, a, b), _two_bits(o, without, a, b)
    if with_c == 15 - without:
        return o.op("xor", "i32", no, c)
    # c selects one of the two
    return o.op("xor", "i32", no, o.op("and", "i32", o.op("xor", "i32", yes, no), c))


def _two_bits(o: Lanes, table: int, a: str, b: str) -> str:
    """Bit ``2a + b`` of the table, in every position."""
    ones = o.const(-1, "i32")
    if table > 7 and table not in (8, 10, 12, 14, 15):
        return o.op("xor", "i32", _two_bits(o, 15 - table, a, b), ones)
    plain = {0: o.const(0, "i32"), 15: ones, 10: b, 12: a}
    if table in plain:
        return plain[table]
    verbs = {8: "and", 14: "or", 6: "xor"}
    if table in verbs:
        return o.op(verbs[table], "i32", a, b)
    if table in (2, 4):  # one and not the other
        keep, drop = (b, a) if table == 2 else (a, b)
        return o.op("and", "i32", keep, o.op("xor", "i32", drop, ones))
    return o.op("xor", "i32", _two_bits(o, 15 - table, a, b), ones)


def _funnel(e: Emitter, i: Instruction) -> None:
    """shf: shift the 64 bits b:a; the result is the upper word (left) or the lower word (right)."""
    o = lanes_of(e, i)
    a, b, amount = (o.fetch(operand, "i32") for operand in i.operands[1:4])
    left = i.has("l")
    result = o.call("fshl" if left else "fshr", "i32", b, a, amount)
    if i.has("clamp"):
        over = o.icmp("ugt", "i32", amount, o.const(31, "i32"))
        result = o.select(over, "i32", a if left else b, result)
    o.put(i.operands[0], result, "i32")


ORDER = 40
OPCODES = {
    "popc": Opcode(_count, kind="logic", forms=("popc.{b32,b64}",), operands="%r1, %rd2"),
    "clz": Opcode(_count, kind="logic", forms=("clz.{b32,b64}",), operands="%r1, %rd2"),
    "brev": Opcode(_reverse, kind="logic", forms=("brev.{b32,b64}",), operands="%rd1, %rd2"),
    "bfind": Opcode(_bfind, kind="logic", forms=("bfind{,.shiftamt}.{u32,s32,u64,s64}",), operands="%r1, %rd2"),
    "fns": Opcode(_fns, kind="logic", forms=("fns.b32",), operands="%r1, %r2, %r3, %r4"),
    "bfe": Opcode(_bfe, kind="logic", forms=("bfe.{u32,s32,u64,s64}",), operands="%rd1, %rd2, %r3, %r4"),
    "bfi": Opcode(_bfi, kind="logic", forms=("bfi.{b32,b64}",), operands="%rd1, %rd2, %rd3, %r4, %r5"),
    "bmsk": Opcode(_bmsk, kind="logic", forms=("bmsk.{clamp,wrap}.b32",), operands="%r1, %r2, %r3"),
    "szext": Opcode(_szext, kind="logic", forms=("szext.{clamp,wrap}.{u32,s32}",), operands="%r1, %r2, %r3"),
    "prmt": Opcode(
        _prmt, kind="logic", forms=("prmt.b32{,.f4e,.b4e,.rc8,.ecl,.ecr,.rc16}",), operands="%r1, %r2, %r3, %r4"
    ),
    "lop3": Opcode(
        _lop3,
        kind="logic",
        forms=("lop3.b32", "lop3.{and,or}.b32 %r1|%p1, %r2, %r3, %r4, 0x96, %p2"),
        operands="%r1, %r2, %r3, %r4, 0x3a",
    ),
    "shf": Opcode(_funnel, kind="logic", forms=("shf.{l,r}.{clamp,wrap}.b32",), operands="%r1, %r2, %r3, %r4"),
}
