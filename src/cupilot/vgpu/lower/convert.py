"""Moves and conversions (PTX ISA, "Data Movement and Conversion Instructions": mov, cvt, cvta)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu import layout
from cupilot.vgpu.lower.floating import directed, flush, saturate
from cupilot.vgpu.lower.integer import vector_of
from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import Instruction, Operand, Reg, Vector

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

INTEGERS = {f"{sign}{bits}": f"i{bits}" for sign in "subb" for bits in (8, 16, 32, 64)}
FLOATS = {"f32": "float", "f64": "double"}
ROUND_TO_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _mov(e: Emitter, i: Instruction) -> None:
    target, source = i.operands
    if isinstance(target, Vector):
        _unpack(e, target.items, source)
    elif isinstance(source, Vector):
        _pack(e, i, source.items)
    else:
        kind = {**INTEGERS, **FLOATS, "pred": "i1"}.get(i.mods[-1])
        if kind is None:
            raise e.unsupported(f"the type .{i.mods[-1]}")
        vector = vector_of(e, i)
        e.put(target, e.fetch(source, kind, vector), kind, vector)


def _pack(e: Emitter, i: Instruction, items: tuple[Operand, ...]) -> None:
    total = int(i.mods[-1][1:])
    part, vector = total // len(items), vector_of(e, i)
    full, result = e.shaped(f"i{total}", vector), e.constant(0, f"i{total}", vector)
    for number, item in enumerate(items):
        value = e.cast(e.fetch(item, f"i{part}", vector), f"i{part}", f"i{total}", vector)
        shifted = e.op(f"shl {full} {value}, {e.constant(part * number, f'i{total}', vector)}")
        result = e.op(f"or {full} {result}, {shifted}")
    e.put(i.operands[0], result, f"i{total}", vector)


def _unpack(e: Emitter, items: tuple[Operand, ...], source: Operand) -> None:
    assert e.instruction is not None
    total = int(e.instruction.mods[-1][1:])
    part = total // len(items)
    for number, item in enumerate(items):
        if not isinstance(item, Reg) or item.name == "_":
            continue
        # one result may live longer than the other, and so be kept for each lane
        vector = e.is_vector(item.name)
        full, value = e.shaped(f"i{total}", vector), e.fetch(source, f"i{total}", vector)
        shifted = e.op(f"lshr {full} {value}, {e.constant(part * number, f'i{total}', vector)}")
        e.put(item, e.cast(shifted, f"i{total}", f"i{part}", vector), f"i{part}", vector)


def _cvta(e: Emitter, i: Instruction) -> None:
    """Global addresses are generic as they are; shared and local ones live in windows."""
    vector = vector_of(e, i)
    value = e.fetch(i.operands[1], "i64", vector)
    window = {"shared": layout.SHARED_WINDOW, "local": layout.LOCAL_WINDOW}.get(i.mods[-2], 0)
    if window:
        verb = "sub" if i.has("to") else "add"
        value = e.op(f"{verb} {e.shaped('i64', vector)} {value}, {e.constant(window, 'i64', vector)}")
    e.put(i.operands[0], value, "i64", vector)


def _cvt(e: Emitter, i: Instruction) -> None:
    to, source = i.mods[-2:]
    known = {**INTEGERS, **FLOATS}
    if to not in known or source not in known:
        raise e.unsupported(f"the conversion .{to}.{source}")
    vector = vector_of(e, i)
    have, want = known[source], known[to]
    value = e.fetch(i.operands[1], have, vector)
    if source in FLOATS and i.has("ftz"):
        value = flush(e, value, have, vector)
    if source in FLOATS and to in FLOATS:
        value = _float_to_float(e, i, value, have, want, vector)
    elif source in FLOATS:
        value = _float_to_integer(e, i, value, have, to, vector)
    elif to in FLOATS:
        value = _integer_to_float(e, i, value, have, want, source.startswith("s"), vector)
    else:
        _put_integer(e, i, value, source, to, vector)
        return
    if to in INTEGERS:
        _widen(e, i, value, to, vector)
    else:
        e.put(i.operands[0], value, want, vector)


def _float_to_float(e: Emitter, i: Instruction, value: str, have: str, want: str, vector: bool) -> str:
    mode = next((m for m in i.mods if m in ROUND_TO_INTEGER), "")
    if mode:
        value = e.intrinsic(ROUND_TO_INTEGER[mode], have, vector, value)
    if have != want:
        if any(i.has(m) for m in ("rz", "rm", "rp")):
            raise e.unsupported("a directed rounding mode")
        verb = "fpext" if want == "double" else "fptrunc"
        value = e.op(f"{verb} {e.shaped(have, vector)} {value} to {e.shaped(want, vector)}")
    if i.has("sat"):
        value = saturate(e, value, want, vector)
    return flush(e, value, want, vector) if i.has("ftz") else value


def _float_to_integer(e: Emitter, i: Instruction, value: str, have: str, to: str, vector: bool) -> str:
    """Out of range clamps to the nearest integer; NaN gives zero, or the top bit where 64 bits are involved."""
    mode = next((m for m in i.mods if m in ROUND_TO_INTEGER), "rzi")
    if mode != "rzi":
        value = e.intrinsic(ROUND_TO_INTEGER[mode], have, vector, value)
    base = "fptosi" if to.startswith("s") else "fptoui"
    kind = INTEGERS[to]
    shape = "v32" if vector else ""
    name = f"llvm.{base}.sat.{shape}{kind}.{shape}{'f32' if have == 'float' else 'f64'}"
    full, out = e.shaped(have, vector), e.shaped(kind, vector)
    result = e.call(out, name, f"{full} {value}", full)
    if have == "float" and kind != "i64":
        return result
    nan = e.op(f"fcmp uno {full} {value}, {value}")
    top = e.constant(1 << (int(kind[1:]) - 1), kind, vector)
    return e.op(f"select {e.shaped('i1', vector)} {nan}, {out} {top}, {out} {result}")


def _integer_to_float(e: Emitter, i: Instruction, value: str, have: str, want: str, signed: bool, vector: bool) -> str:
    mode = next((m for m in i.mods if m in ("rz", "rm", "rp")), "")
    exact = int(have[1:]) < (32 if want == "float" else 64)
    if mode and not exact:
        if have == "i64":
            raise e.unsupported("a directed rounding mode from this type")
        value = _directed_from_integer(e, mode, value, have, signed, vector)
    else:
        verb = "sitofp" if signed else "uitofp"
        value = e.op(f"{verb} {e.shaped(have, vector)} {value} to {e.shaped(want, vector)}")
    return saturate(e, value, want, vector) if i.has("sat") else value


def _directed_from_integer(e: Emitter, mode: str, value: str, have: str, signed: bool, vector: bool) -> str:
    """32-bit integers split into two exact floats, added with the mode asked for."""
    full, single = e.shaped(have, vector), e.shaped("float", vector)
    sixteen = e.constant(16, have, vector)
    high = e.op(f"{'ashr' if signed else 'lshr'} {full} {value}, {sixteen}")
    low = e.op(f"and {full} {value}, {e.constant(0xFFFF, have, vector)}")
    h = e.op(f"{'sitofp' if signed else 'uitofp'} {full} {high} to {single}")
    low_float = e.op(f"uitofp {full} {low} to {single}")
    return directed(e, mode, vector, h, e.constant(0x47800000, "float", vector), low_float)


def _put_integer(e: Emitter, i: Instruction, value: str, source: str, to: str, vector: bool) -> None:
    have, want = INTEGERS[source], INTEGERS[to]
    if i.has("sat"):
        raise e.unsupported("saturation between integers")
    if int(want[1:]) > int(have[1:]):
        verb = "sext" if source.startswith("s") else "zext"
        value = e.op(f"{verb} {e.shaped(have, vector)} {value} to {e.shaped(want, vector)}")
    else:
        value = e.cast(value, have, want, vector)
    _widen(e, i, value, to, vector)


def _widen(e: Emitter, i: Instruction, value: str, to: str, vector: bool) -> None:
    """A destination register wider than the type is sign- or zero-extended (PTX ISA, "Operand Size")."""
    target = i.operands[0]
    assert isinstance(target, Reg)
    declared = f"i{ {'16': 16, '32': 32, '64': 64}.get(e.function.registers[target.name][1:], 64) }"
    have = INTEGERS[to]
    if int(declared[1:]) > int(have[1:]) and to.startswith("s"):
        value = e.op(f"sext {e.shaped(have, vector)} {value} to {e.shaped(declared, vector)}")
        have = declared
    e.put(target, value, have, vector)


OPCODES = {
    "mov": Opcode(_mov, "mov"),
    "cvt": Opcode(_cvt, "cvt"),
    "cvta": Opcode(_cvta, "cvta"),
}
