"""The operations of one instruction, all of one shape: a scalar, or one element per lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cupilot.vgpu.ptx.syntax import Instruction, Operand, Reg

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

INT = {f"{sign}{bits}": f"i{bits}" for sign in "usb" for bits in (16, 32, 64)}
FLOATS = {"f32": "float", "f64": "double"}
HALVES = ("f16", "bf16", "f16x2", "bf16x2")
PACKED_SHORTS = ("s16x2", "u16x2")
ARITHMETIC = (*INT, *FLOATS, *HALVES, *PACKED_SHORTS)
ONE = {"float": 0x3F800000, "double": 0x3FF0000000000000}
REGION_BYTES = 256  # %data holds four operands of 32 lanes, 64 bits each


def vector_of(e: Emitter, i: Instruction) -> bool:
    """Whether the instruction's result differs between lanes."""
    return e.is_vector(*(o.name for o in i.operands[:1] if isinstance(o, Reg)))


def type_name(e: Emitter, i: Instruction) -> str:
    """The one type of an arithmetic instruction (modifiers such as ``.relu`` may follow it)."""
    kinds = [m for m in i.mods if m in ARITHMETIC]
    if len(kinds) != 1:
        raise e.unsupported("this type" if len(kinds) < 2 else "two types")
    return kinds[0]


class Lanes:
    """Writes one instruction's operations; values are names or constants of LLVM."""

    def __init__(self, e: Emitter, vector: bool) -> None:
        self.e = e
        self.vector = vector

    def full(self, kind: str) -> str:
        return self.e.shaped(kind, self.vector)

    def op(self, verb: str, kind: str, *values: str) -> str:
        return self.e.op(f"{verb} {self.full(kind)} {', '.join(values)}")

    def const(self, bits: int, kind: str) -> str:
        return self.e.constant(bits, kind, self.vector)

    def call(self, base: str, kind: str, *values: str) -> str:
        """An LLVM intrinsic over one type."""
        return self.e.intrinsic(base, kind, self.vector, *values)

    def icmp(self, relation: str, kind: str, a: str, b: str) -> str:
        return self.op(f"icmp {relation}", kind, a, b)

    def fcmp(self, relation: str, kind: str, a: str, b: str) -> str:
        return self.op(f"fcmp {relation}", kind, a, b)

    def select(self, condition: str, kind: str, yes: str, no: str) -> str:
        full = self.full(kind)
        return self.e.op(f"select {self.full('i1')} {condition}, {full} {yes}, {full} {no}")

    def both(self, a: str, b: str) -> str:
        return self.op("and", "i1", a, b)

    def either(self, a: str, b: str) -> str:
        return self.op("or", "i1", a, b)

    def convert(self, verb: str, value: str, have: str, want: str) -> str:
        return self.e.op(f"{verb} {self.full(have)} {value} to {self.full(want)}")

    def extend(self, value: str, have: str, want: str, signed: bool) -> str:
        """Between integers of any widths."""
        if int(want[1:]) <= int(have[1:]):
            return value if have == want else self.convert("trunc", value, have, want)
        return self.convert("sext" if signed else "zext", value, have, want)

    def bits(self, value: str, have: str, want: str) -> str:
        """The same bits as another type; wider and narrower ones by zero extension and truncation."""
        return self.e.cast(value, have, want, self.vector)

    def fetch(self, operand: Operand, kind: str) -> str:
        return self.e.fetch(operand, kind, self.vector)

    def put(self, operand: Operand, value: str, kind: str) -> None:
        self.e.put(operand, value, kind, self.vector)

    def runtime(self, function: str, values: Sequence[str], have: str, want: str, numbers: Sequence[int] = ()) -> str:
        """Let the runtime compute over all lanes: operand n is in region n of %data, the result replaces the first."""
        e = self.e
        for number, value in enumerate(values):
            whole = value if self.vector else e.splat(value, have)
            e.line(f"store {e.shaped(have, True)} {whole}, ptr {e.field_at('%data', REGION_BYTES * number)}, align 64")
        arguments = ", ".join(("ptr %data", *(f"i32 {n}" for n in numbers)))
        e.call("void", function, arguments, ", ".join(("ptr", *("i32" for _ in numbers))))
        result = e.op(f"load {e.shaped(want, True)}, ptr %data, align 64")
        return result if self.vector else e.op(f"extractelement {e.shaped(want, True)} {result}, i32 0")


def lanes_of(e: Emitter, i: Instruction) -> Lanes:
    """The shape of an instruction's first operand, its result."""
    return Lanes(e, vector_of(e, i))
