"""Floating-point arithmetic of fp32 and fp64 (PTX ISA, "Floating Point Instructions").

``.ftz`` flushes subnormal inputs and results to zero of the same sign, ``.sat`` clamps to [0, 1]
with NaN to 0.  Approximate instructions (ex2, lg2, sin, cos, tanh, rcp, sqrt, rsqrt, div) have the error
that is documented for them, up to its bound (``runtime/functions.cpp``); they are not bit-identical to
hardware.  Not covered: ``.f32x2``, mixed-precision add and fma (sm_100).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.lanes import FLOATS, ONE, Lanes, lanes_of, type_name
from cupilot.vgpu.lower.pipes import int_or_fp64
from cupilot.vgpu.lower.rounding import flush, mode_of, rounded, saturate
from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import Instruction

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

SMALLEST_NORMAL_F64 = 0x0010000000000000
UPPER_WORD = 0xFFFFFFFF00000000


def kind_of(e: Emitter, i: Instruction) -> str:
    name = type_name(e, i)
    if name not in FLOATS:
        raise e.unsupported(f"the type .{name}")
    return FLOATS[name]


def inputs(o: Lanes, i: Instruction, kind: str) -> list[str]:
    values = [o.fetch(operand, kind) for operand in i.operands[1:]]
    return [flush(o, v, kind) for v in values] if i.has("ftz") else values


def finish(o: Lanes, i: Instruction, value: str, kind: str) -> None:
    if i.has("sat"):
        value = saturate(o, value, kind)
    if i.has("ftz"):
        value = flush(o, value, kind)
    o.put(i.operands[0], value, kind)


def add_float(e: Emitter, i: Instruction) -> None:
    """add and sub."""
    o, kind = lanes_of(e, i), kind_of(e, i)
    a, b = inputs(o, i, kind)
    mode = mode_of(i)
    if mode and i.opcode == "sub":
        b = o.op("fneg", kind, b)
    result = rounded(o, "add", mode, kind, a, b) if mode else o.op(f"f{i.opcode}", kind, a, b)
    finish(o, i, result, kind)


def mul_float(e: Emitter, i: Instruction) -> None:
    o, kind = lanes_of(e, i), kind_of(e, i)
    a, b = inputs(o, i, kind)
    mode = mode_of(i)
    finish(o, i, rounded(o, "mul", mode, kind, a, b) if mode else o.op("fmul", kind, a, b), kind)


def fma_float(e: Emitter, i: Instruction) -> None:
    """fma, and mad, which is the same on all devices covered."""
    o, kind = lanes_of(e, i), kind_of(e, i)
    values = inputs(o, i, kind)
    mode = mode_of(i)
    finish(o, i, rounded(o, "fma", mode, kind, *values) if mode else o.call("fma", kind, *values), kind)


def div_float(e: Emitter, i: Instruction) -> None:
    """div.rn is exact; div.full and div.approx have their documented error."""
    o, kind = lanes_of(e, i), kind_of(e, i)
    a, b = inputs(o, i, kind)
    if i.has("approx") or i.has("full"):
        return finish(o, i, o.runtime("vg_div", [a, b], kind, kind, [int(i.has("full"))]), kind)
    mode = mode_of(i)
    return finish(o, i, rounded(o, "div", mode, kind, a, b) if mode else o.op("fdiv", kind, a, b), kind)


def select_float(o: Lanes, i: Instruction, values: list[str], kind: str) -> str:
    """min and max of two or three: -0 is less than +0, and a number wins over NaN unless ``.NaN`` is given.

    ``.xorsign.abs`` compares magnitudes and gives the result the product of the signs.
    """
    base = f"{i.opcode}imum" if i.has("NaN") else f"{i.opcode}imumnum"
    sizes = [o.call("fabs", kind, v) for v in values] if i.has("abs") else values
    result = sizes[0]
    for other in sizes[1:]:
        result = o.call(base, kind, result, other)
    if i.has("xorsign"):
        whole = f"i{32 if kind == 'float' else 64}"
        signs = [o.bits(v, kind, whole) for v in values]
        sign = o.bits(o.op("xor", whole, *signs), whole, kind)
        signed = o.call("copysign", kind, result, sign)
        result = o.select(o.fcmp("uno", kind, result, result), kind, result, signed)
    return result


def minmax_float(e: Emitter, i: Instruction) -> None:
    o, kind = lanes_of(e, i), kind_of(e, i)
    finish(o, i, select_float(o, i, inputs(o, i, kind), kind), kind)


def sign_float(e: Emitter, i: Instruction) -> None:
    """neg and abs."""
    o, kind = lanes_of(e, i), kind_of(e, i)
    (a,) = inputs(o, i, kind)
    finish(o, i, o.op("fneg", kind, a) if i.opcode == "neg" else o.call("fabs", kind, a), kind)


def _root_or_reciprocal(e: Emitter, i: Instruction) -> None:
    """rcp, sqrt, rsqrt."""
    o, kind = lanes_of(e, i), kind_of(e, i)
    if kind == "double" and i.has("approx") and i.has("ftz"):
        return _gross(o, i)
    (a,) = inputs(o, i, kind)
    if kind == "float" and i.has("approx"):
        return finish(o, i, special_function(o, i.opcode, a), kind)
    one, mode = o.const(ONE[kind], kind), mode_of(i)
    if mode:
        a = rounded(o, "sqrt", mode, kind, a) if i.opcode == "sqrt" else rounded(o, "div", mode, kind, one, a)
    else:
        if i.opcode in ("sqrt", "rsqrt"):
            a = o.call("sqrt", kind, a)
        if i.opcode in ("rcp", "rsqrt"):
            a = o.op("fdiv", kind, one, a)
    return finish(o, i, a, kind)


def _gross(o: Lanes, i: Instruction) -> None:
    """rcp and rsqrt.approx.ftz.f64: operand and result have only their upper 32 bits."""
    raw = o.fetch(i.operands[1], "double")
    a = _flush_double(o, _upper_word(o, raw))
    if i.opcode == "rsqrt":
        a = o.call("sqrt", "double", a)
    result = o.op("fdiv", "double", o.const(ONE["double"], "double"), a)
    result = _flush_double(o, _upper_word(o, result))
    # a NaN stays a NaN even if its payload is in the lower word
    result = o.select(o.fcmp("uno", "double", raw, raw), "double", raw, result)
    o.put(i.operands[0], result, "double")


def _upper_word(o: Lanes, value: str) -> str:
    raw = o.op("and", "i64", o.bits(value, "double", "i64"), o.const(UPPER_WORD, "i64"))
    return o.bits(raw, "i64", "double")


def _flush_double(o: Lanes, value: str) -> str:
    small = o.fcmp("olt", "double", o.call("fabs", "double", value), o.const(SMALLEST_NORMAL_F64, "double"))
    return o.select(small, "double", o.call("copysign", "double", o.const(0, "double"), value), value)


def special_function(o: Lanes, name: str, value: str) -> str:
    """An approximate function of fp32 values, or of halves as fp32 (``ex2_f16``), by the runtime."""
    return o.runtime(f"vg_{name}", [value], "float", "float")


def special_float(e: Emitter, i: Instruction) -> None:
    o, kind = lanes_of(e, i), kind_of(e, i)
    if kind != "float":
        raise e.unsupported("the type .f64")
    (a,) = inputs(o, i, kind)
    finish(o, i, special_function(o, i.opcode, a), kind)


def _copysign(e: Emitter, i: Instruction) -> None:
    """PTX copies the sign of the first operand onto the second."""
    o, kind = lanes_of(e, i), kind_of(e, i)
    a, b = inputs(o, i, kind)
    finish(o, i, o.call("copysign", kind, b, a), kind)


# classes of llvm.is.fpclass; zero counts as normal
CLASSES = {
    "notanumber": 0x003, "infinite": 0x204, "normal": 0x168, "subnormal": 0x090, "finite": 0x1F8, "number": 0x3FC,
}  # fmt: skip


def _testp(e: Emitter, i: Instruction) -> None:
    o, kind = lanes_of(e, i), kind_of(e, i)
    full, shape = o.full(kind), "v32" if o.vector else ""
    if i.mods[0] not in CLASSES:
        raise e.unsupported(f"the property .{i.mods[0]}")
    a = o.fetch(i.operands[1], kind)
    name = f"llvm.is.fpclass.{shape}{i.mods[-1]}"
    result = e.call(o.full("i1"), name, f"{full} {a}, i32 {CLASSES[i.mods[0]]}", f"{full}, i32 immarg")
    o.put(i.operands[0], result, "i1")


ORDER = 70
OPCODES = {
    "rcp": Opcode(
        _root_or_reciprocal,
        kind="special",
        flop=1,
        forms=("rcp{.approx,.rn,.rz,.rm,.rp}{,.ftz}.f32", "rcp{.rn,.rz,.rm,.rp}.f64", "rcp.approx.ftz.f64"),
        operands="%rd1, %rd2",
    ),
    "sqrt": Opcode(
        _root_or_reciprocal,
        kind="special",
        flop=1,
        forms=("sqrt{.approx,.rn,.rz,.rm,.rp}{,.ftz}.f32", "sqrt{.rn,.rz,.rm,.rp}.f64"),
        operands="%rd1, %rd2",
    ),
    "rsqrt": Opcode(
        _root_or_reciprocal, kind="special", flop=1, forms=("rsqrt.approx{,.ftz}.{f32,f64}",), operands="%rd1, %rd2"
    ),
    **{
        name: Opcode(special_float, kind="special", flop=1, forms=(name + ".approx{,.ftz}.f32",), operands="%f1, %f2")
        for name in ("lg2", "sin", "cos")
    },
    "copysign": Opcode(_copysign, pipe=int_or_fp64, forms=("copysign.{f32,f64}",), operands="%rd1, %rd2, %rd3"),
    "testp": Opcode(
        _testp,
        kind="compare",
        forms=("testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64}",),
        operands="%p1, %rd2",
    ),
}
