"""Conversions between single values (PTX ISA, "cvt"); packed ones are in the module narrow.

Integers, f16, bf16, f32, f64 and tf32 in every pair and rounding.  Not covered: ``.rs`` and the formats of
sm_100 (e2m1, e2m3, e3m2, ue8m0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.half import narrow, widen
from cupilot.vgpu.lower.lanes import FLOATS, Lanes, lanes_of
from cupilot.vgpu.lower.narrow import PACKED, clamp, convert_packed, pack_integers
from cupilot.vgpu.lower.pipes import PRECISION
from cupilot.vgpu.lower.rounding import RELU, SAT, SATFINITE, converted, directed, flush, mode_of, saturate
from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import Instruction, Reg

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

INTEGERS = {f"{sign}{bits}": f"i{bits}" for sign in "su" for bits in (8, 16, 32, 64)}
SINGLE = {**INTEGERS, **FLOATS, "f16": "i16", "bf16": "i16", "tf32": "i32"}
ROUND_TO_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
HALF = ("f16", "bf16")


def _cvt(e: Emitter, i: Instruction) -> None:
    if i.has("pack"):
        return pack_integers(e, i)
    to, source = i.mods[-2:] if len(i.mods) > 1 else ("", "")
    if to in PACKED or source in PACKED:
        return convert_packed(e, i)
    if to not in SINGLE or source not in SINGLE or i.has("rs"):
        raise e.unsupported(f"the conversion .{to}.{source}")
    o = lanes_of(e, i)
    value = o.fetch(i.operands[1], SINGLE[source])
    if source in INTEGERS and to in INTEGERS:
        return _put_integer(o, i, _between_integers(o, i, value, source, to), to)
    if source in INTEGERS:
        return o.put(i.operands[0], _from_integer(o, i, value, source, to), SINGLE[to])
    if to in INTEGERS:
        return _put_integer(o, i, _to_integer(o, i, value, source, to), to)
    return o.put(i.operands[0], _between_floats(o, i, value, source, to), SINGLE[to])


def _flags(i: Instruction) -> int:
    return RELU * i.has("relu") + SATFINITE * i.has("satfinite") + SAT * i.has("sat")


def _by_runtime(o: Lanes, i: Instruction, value: str, source: str, to: str) -> str:
    """Conversions that the host has no instruction for that rounds only once."""
    mode = "rna" if i.has("rna") else mode_of(i) or "rn"
    wide = o.bits(value, SINGLE[source], "i64")
    return o.bits(converted(o, wide, source, to, mode, _flags(i)), "i64", SINGLE[to])


# --- between floats ---------------------------------------------------------------------------


def _between_floats(o: Lanes, i: Instruction, value: str, source: str, to: str) -> str:
    if i.has("ftz") and source == "f32":
        value = flush(o, value, "float")
    plain = not mode_of(i) and not i.has("satfinite") and "tf32" not in (to, source)
    if not plain or (source == "f64" and to in HALF):
        result = _by_runtime(o, i, value, source, to)
    else:
        result = _nearest(o, i, value, source, to)
    return flush(o, result, "float") if to == "f32" and i.has("ftz") else result


def _nearest(o: Lanes, i: Instruction, value: str, source: str, to: str) -> str:
    kind = SINGLE[source]
    if source in HALF:
        value, kind = widen(o, value, source), "float"
    mode = next((m for m in i.mods if m in ROUND_TO_INTEGER), "")
    if mode:
        value = o.call(ROUND_TO_INTEGER[mode], kind, value)
    # clamping may come before rounding, because every format has 0 and 1
    if i.has("sat"):
        value = saturate(o, value, kind)
    if i.has("relu"):
        below = o.fcmp("ole", kind, value, o.const(0, kind))
        value = o.select(below, kind, o.const(0, kind), value)
    if to in HALF:
        return narrow(o, value, to)
    want = SINGLE[to]
    if want == kind:
        return value
    return o.convert("fpext" if want == "double" else "fptrunc", value, kind, want)


# --- integers ---------------------------------------------------------------------------------


def _to_integer(o: Lanes, i: Instruction, value: str, source: str, to: str) -> str:
    """Out of range clamps to the nearest integer; NaN gives zero, or the top bit where 64 bits are involved."""
    have = SINGLE[source]
    if source in HALF:
        value, have = widen(o, value, source), "float"
    elif source == "tf32":
        raise o.e.unsupported("the conversion of .tf32")
    if i.has("ftz"):
        value = flush(o, value, have)
    mode = next((m for m in i.mods if m in ROUND_TO_INTEGER), "rzi")
    if mode != "rzi":
        value = o.call(ROUND_TO_INTEGER[mode], have, value)
    base = "fptosi" if to.startswith("s") else "fptoui"
    kind, shape = INTEGERS[to], "v32" if o.vector else ""
    name = f"llvm.{base}.sat.{shape}{kind}.{shape}{'f32' if have == 'float' else 'f64'}"
    result = o.e.call(o.full(kind), name, f"{o.full(have)} {value}", o.full(have))
    if have == "float" and kind != "i64":
        return result
    nan = o.fcmp("uno", have, value, value)
    return o.select(nan, kind, o.const(1 << (int(kind[1:]) - 1), kind), result)


def _from_integer(o: Lanes, i: Instruction, value: str, source: str, to: str) -> str:
    signed, have = source.startswith("s"), INTEGERS[source]
    bits, mode = int(have[1:]), mode_of(i)
    verb = "sitofp" if signed else "uitofp"
    if to in FLOATS:
        want = FLOATS[to]
        if not mode or bits < (32 if to == "f32" else 64):
            value = o.convert(verb, value, have, want)
        elif have == "i32":
            value = _directed_from_integer(o, mode, value, signed)
        else:
            return _by_runtime(o, i, value, source, to)
        return saturate(o, value, want) if i.has("sat") else value
    if bits > 16 or mode or to == "tf32":
        return _by_runtime(o, i, value, source, to)
    single = o.convert(verb, value, have, "float")
    return narrow(o, saturate(o, single, "float") if i.has("sat") else single, to)


def _directed_from_integer(o: Lanes, mode: str, value: str, signed: bool) -> str:
    """A 32-bit integer as two exact floats, added with the given rounding mode."""
    high = o.op("ashr" if signed else "lshr", "i32", value, o.const(16, "i32"))
    low = o.op("and", "i32", value, o.const(0xFFFF, "i32"))
    upper = o.convert("sitofp" if signed else "uitofp", high, "i32", "float")
    lower = o.convert("uitofp", low, "i32", "float")
    return directed(o, mode, upper, o.const(0x47800000, "float"), lower)


def _between_integers(o: Lanes, i: Instruction, value: str, source: str, to: str) -> str:
    have, want = INTEGERS[source], INTEGERS[to]
    if i.has("sat"):
        value = clamp(o, value, have, source.startswith("s"), to)
    return o.extend(value, have, want, source.startswith("s"))


def _put_integer(o: Lanes, i: Instruction, value: str, to: str) -> None:
    """A destination register wider than the type is sign- or zero-extended (PTX ISA, "Operand Size")."""
    target, have = i.operands[0], INTEGERS[to]
    assert isinstance(target, Reg)
    declared = o.e.function.registers.get(target.name, to)[1:]
    if declared.isdigit() and int(declared) > int(have[1:]) and to.startswith("s"):
        want = f"i{declared}"
        value, have = o.extend(value, have, want, True), want
    o.put(target, value, have)


ORDER = 80
OPCODES = {
    "cvt": Opcode(
        _cvt,
        pipe=lambda i: PRECISION.get(i.mods[-1], "int"),  # that of the source
        kind="convert",
        forms=(
            "cvt{,.sat}.{u8,s8,u16,s16,u32,s32,u64,s64}.{u8,s8,u16,s16,u32,s32,u64,s64}",
            "cvt{.rni,.rzi,.rmi,.rpi}{,.ftz}{,.sat}.{u8,s8,u16,s16,u32,s32,u64,s64}.{f32,f16}",
            "cvt{.rni,.rzi,.rmi,.rpi}.{u8,s8,u16,s16,u32,s32,u64,s64}.{f64,bf16}",
            "cvt{.rn,.rz,.rm,.rp}{,.sat}.{f16,f32,f64}.{u8,s8,u16,s16,u32,s32,u64,s64}",
            "cvt{.rn,.rz,.rm,.rp}.bf16.{u8,s8,u16,s16,u32,s32,u64,s64}",
            "cvt{,.ftz}{,.sat}.{f32,f64}.f16",
            "cvt{.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32.f64",
            "cvt{,.ftz}{,.sat}.f64.f32",
            "cvt{,.rni,.rzi,.rmi,.rpi}.{f32.f32,f64.f64}",
            "cvt{.rn,.rz,.rm,.rp}.f16.{f32,f64}",
            "cvt{.rn,.rz}{,.relu}{,.satfinite}.{f16,bf16}.f32",
            "cvt.f32.bf16",
            "cvt{.rn,.rz}{,.relu}.{f16x2,bf16x2}.f32 %r1, %f1, %f2",
            "cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f32 %rs1, %f1, %f2",
            "cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f16x2",
            "cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2}",
            "cvt.{rna,rn,rz}{,.satfinite}.tf32.f32",
            "cvt.pack.sat.{u16,s16}.s32 %r1, %r2, %r3",
            "cvt.pack.sat.{u2,s2,u4,s4,u8,s8}.s32.b32 %r1, %r2, %r3, %r4",
        ),
        operands="%rd1, %rd2",
        missing=("cvt.rs.f16x2.f32", "cvt.rn.satfinite.e2m1x2.f32", "cvt.rp.satfinite.ue8m0x2.f32"),
    ),
}
