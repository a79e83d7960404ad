"""Floating-point arithmetic (PTX ISA, "Floating Point Instructions").

Rounding to nearest even is the machine's; the directed modes are made exact from an error-free
transformation in double precision (fp32) and are not available for fp64.  ``.ftz`` flushes
subnormal inputs and results to zero of the same sign, ``.sat`` clamps to [0, 1] with NaN to 0.
Approximate instructions (ex2, lg2, sin, cos, tanh, rsqrt) are within their documented error of the
true value but not bit-identical to hardware.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.table import Lowering, Opcode
from cupilot.vgpu.ptx.syntax import Instruction, Reg

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

FLOATS = {"f32": "float", "f64": "double"}
DIRECTED = {"rm", "rp", "rz"}
SMALLEST_NORMAL = {"float": 0x00800000}


def shape_of(e: Emitter, i: Instruction) -> tuple[str, bool]:
    kind = i.mods[-1]
    if kind not in FLOATS:
        raise e.unsupported(f"the type .{kind}")
    return FLOATS[kind], e.is_vector(*(o.name for o in i.operands[:1] if isinstance(o, Reg)))


def flush(e: Emitter, value: str, kind: str, vector: bool) -> str:
    """Subnormals become zero of the same sign."""
    if kind != "float":
        return value
    full = e.shaped(kind, vector)
    size = e.intrinsic("fabs", kind, vector, value)
    small = e.op(f"fcmp olt {full} {size}, {e.constant(SMALLEST_NORMAL[kind], kind, vector)}")
    zero = e.intrinsic("copysign", kind, vector, e.constant(0, kind, vector), value)
    return e.op(f"select {e.shaped('i1', vector)} {small}, {full} {zero}, {full} {value}")


def saturate(e: Emitter, value: str, kind: str, vector: bool) -> str:
    """Clamp to [0, 1]; maxnum against zero turns NaN into zero."""
    one = {"float": 0x3F800000, "double": 0x3FF0000000000000}[kind]
    low = e.intrinsic("maxnum", kind, vector, value, e.constant(0, kind, vector))
    return e.intrinsic("minnum", kind, vector, low, e.constant(one, kind, vector))


def inputs(e: Emitter, i: Instruction, kind: str, vector: bool) -> list[str]:
    values = [e.fetch(o, kind, vector) for o in i.operands[1:]]
    return [flush(e, v, kind, vector) for v in values] if i.has("ftz") else values


def finish(e: Emitter, i: Instruction, value: str, kind: str, vector: bool) -> None:
    if i.has("sat"):
        value = saturate(e, value, kind, vector)
    if i.has("ftz"):
        value = flush(e, value, kind, vector)
    e.put(i.operands[0], value, kind, vector)


def directed(e: Emitter, mode: str, vector: bool, a: str, b: str, c: str) -> str:
    """a * b + c in fp32 rounded down (rm), up (rp) or to zero (rz), exactly.

    The product of two floats is exact in double; adding the third has an error that the two-sum
    transformation gives exactly, so the rounded-to-nearest result can be corrected by one step.
    A sum that is exactly zero is -0 when rounding down, which adding the negatives gives.
    """
    single, double, bits = e.shaped("float", vector), e.shaped("double", vector), e.shaped("i1", vector)
    x, y, z = (e.op(f"fpext {single} {v} to {double}") for v in (a, b, c))
    p = e.op(f"fmul {double} {x}, {y}")
    if mode == "rm":
        minus = [e.op(f"fneg {double} {v}") for v in (p, z)]
        s = e.op(f"fneg {double} {e.op(f'fadd {double} {minus[0]}, {minus[1]}')}")
    else:
        s = e.op(f"fadd {double} {p}, {z}")
    t = e.op(f"fsub {double} {s}, {p}")
    left = e.op(f"fsub {double} {p}, {e.op(f'fsub {double} {s}, {t}')}")
    error = e.op(f"fadd {double} {left}, {e.op(f'fsub {double} {z}, {t}')}")
    nearest = e.op(f"fptrunc {double} {s} to {single}")
    wide = e.op(f"fpext {single} {nearest} to {double}")
    zero = e.constant(0, "double", vector)

    def beyond(compare: str, sign: str) -> str:
        direct = e.op(f"fcmp {compare} {double} {wide}, {s}")
        equal = e.op(f"fcmp oeq {double} {wide}, {s}")
        rest = e.op(f"fcmp {sign} {double} {error}, {zero}")
        return e.op(f"or {bits} {direct}, {e.op(f'and {bits} {equal}, {rest}')}")

    too_high, too_low = beyond("ogt", "olt"), beyond("olt", "ogt")
    if mode == "rz":
        positive = e.op(f"fcmp ogt {double} {s}, {zero}")
        negative = e.op(f"fcmp olt {double} {s}, {zero}")
        high = e.op(f"and {bits} {too_high}, {positive}")
        low = e.op(f"and {bits} {too_low}, {negative}")
        nearest = _step(e, vector, nearest, high, up=False)
        return _step(e, vector, nearest, low, up=True)
    return _step(e, vector, nearest, too_high if mode == "rm" else too_low, up=mode == "rp")


def _step(e: Emitter, vector: bool, value: str, where: str, *, up: bool) -> str:
    """The next float down or up, in the lanes where asked."""
    ints, single, bits = e.shaped("i32", vector), e.shaped("float", vector), e.shaped("i1", vector)
    raw = e.op(f"bitcast {single} {value} to {ints}")
    zero = e.op(f"fcmp oeq {single} {value}, {e.constant(0, 'float', vector)}")
    negative = e.op(f"icmp slt {ints} {raw}, {e.constant(0, 'i32', vector)}")
    plus, minus = (e.constant(n, "i32", vector) for n in (1, -1))
    away, toward = (minus, plus) if not up else (plus, minus)
    step = e.op(f"select {bits} {negative}, {ints} {toward}, {ints} {away}")
    moved = e.op(f"add {ints} {raw}, {step}")
    tiny = e.constant(0x00000001 if up else 0x80000001, "i32", vector)
    moved = e.op(f"select {bits} {zero}, {ints} {tiny}, {ints} {moved}")
    chosen = e.op(f"select {bits} {where}, {ints} {moved}, {ints} {raw}")
    return e.op(f"bitcast {ints} {chosen} to {single}")


def _mode(e: Emitter, i: Instruction, kind: str) -> str:
    modes = [m for m in i.mods if m in DIRECTED]
    if modes and kind != "float":
        raise e.unsupported(f"rounding mode .{modes[0]} for fp64")
    return modes[0] if modes else ""


def add_float(e: Emitter, i: Instruction) -> None:
    _linear(e, i, "fadd")


def sub_float(e: Emitter, i: Instruction) -> None:
    _linear(e, i, "fsub")


def _linear(e: Emitter, i: Instruction, verb: str) -> None:
    kind, vector = shape_of(e, i)
    a, b = inputs(e, i, kind, vector)
    if mode := _mode(e, i, kind):
        if verb == "fsub":
            b = e.op(f"fneg {e.shaped(kind, vector)} {b}")
        result = directed(e, mode, vector, a, e.constant(0x3F800000, kind, vector), b)
    else:
        result = e.op(f"{verb} {e.shaped(kind, vector)} {a}, {b}")
    finish(e, i, result, kind, vector)


def mul_float(e: Emitter, i: Instruction) -> None:
    kind, vector = shape_of(e, i)
    a, b = inputs(e, i, kind, vector)
    if mode := _mode(e, i, kind):
        # the zero that keeps the sign of a zero product: +0 when rounding down, else -0
        nothing = 0 if mode == "rm" else 0x80000000
        result = directed(e, mode, vector, a, b, e.constant(nothing, kind, vector))
    else:
        result = e.op(f"fmul {e.shaped(kind, vector)} {a}, {b}")
    finish(e, i, result, kind, vector)


def fma_float(e: Emitter, i: Instruction) -> None:
    kind, vector = shape_of(e, i)
    a, b, c = inputs(e, i, kind, vector)
    if mode := _mode(e, i, kind):
        result = directed(e, mode, vector, a, b, c)
    else:
        result = e.intrinsic("fma", kind, vector, a, b, c)
    finish(e, i, result, kind, vector)


def div_float(e: Emitter, i: Instruction) -> None:
    """div.rn is exact; div.full and div.approx are computed exactly too, within their bounds."""
    kind, vector = shape_of(e, i)
    if _mode(e, i, kind):
        raise e.unsupported("a directed rounding mode")
    a, b = inputs(e, i, kind, vector)
    finish(e, i, e.op(f"fdiv {e.shaped(kind, vector)} {a}, {b}"), kind, vector)


def float_minmax(e: Emitter, i: Instruction) -> None:
    """The operand that is a number wins over NaN; -0 is less than +0."""
    kind, vector = shape_of(e, i)
    values = inputs(e, i, kind, vector)
    base = f"{i.opcode}imum" if i.has("NaN") else f"{i.opcode}imumnum"
    if i.has("xorsign"):
        raise e.unsupported("xorsign")
    result = values[0]
    for other in values[1:]:
        result = e.intrinsic(base, kind, vector, result, other)
    finish(e, i, result, kind, vector)


def neg_abs_float(e: Emitter, i: Instruction) -> None:
    kind, vector = shape_of(e, i)
    (a,) = inputs(e, i, kind, vector)
    value = e.op(f"fneg {e.shaped(kind, vector)} {a}") if i.opcode == "neg" else e.intrinsic("fabs", kind, vector, a)
    finish(e, i, value, kind, vector)


def _reciprocal(e: Emitter, i: Instruction) -> None:
    kind, vector = shape_of(e, i)
    if _mode(e, i, kind):
        raise e.unsupported("a directed rounding mode")
    (a,) = inputs(e, i, kind, vector)
    if i.opcode in ("sqrt", "rsqrt"):
        a = e.intrinsic("sqrt", kind, vector, a)
    if i.opcode in ("rcp", "rsqrt"):
        one = {"float": 0x3F800000, "double": 0x3FF0000000000000}[kind]
        a = e.op(f"fdiv {e.shaped(kind, vector)} {e.constant(one, kind, vector)}, {a}")
    finish(e, i, a, kind, vector)


def _special(function: str) -> Lowering:
    """fp32 functions of the special function unit, computed by the runtime over all lanes."""

    def lower(e: Emitter, i: Instruction) -> None:
        kind, vector = shape_of(e, i)
        if kind != "float":
            raise e.unsupported("the type .f64")
        (a,) = inputs(e, i, kind, True)
        e.line(f"store <32 x float> {a}, ptr %data, align 64")
        e.call("void", function, "ptr %data", "ptr")
        result = e.op("load <32 x float>, ptr %data, align 64")
        if not vector:
            result = e.op(f"extractelement <32 x float> {result}, i32 0")
        finish(e, i, result, kind, vector)

    return lower


def _copysign(e: Emitter, i: Instruction) -> None:
    """PTX copies the sign of the first operand onto the second."""
    kind, vector = shape_of(e, i)
    a, b = inputs(e, i, kind, vector)
    finish(e, i, e.intrinsic("copysign", kind, vector, b, a), kind, vector)


OPCODES = {
    "fma": Opcode(fma_float, "fma"),
    "rcp": Opcode(_reciprocal, "rcp"),
    "sqrt": Opcode(_reciprocal, "sqrt"),
    "rsqrt": Opcode(_reciprocal, "rsqrt"),
    "ex2": Opcode(_special("vg_ex2"), "ex2"),
    "lg2": Opcode(_special("vg_lg2"), "lg2"),
    "sin": Opcode(_special("vg_sin"), "sin"),
    "cos": Opcode(_special("vg_cos"), "cos"),
    "tanh": Opcode(_special("vg_tanh"), "tanh"),
    "copysign": Opcode(_copysign, "copysign"),
}
