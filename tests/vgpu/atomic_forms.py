"""Atomic operations on bit patterns, written from the PTX ISA (atom: Semantics), and kernels that use one of them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from exact import FORMATS, Format, negative, to_float, zero
from ptxkit import INDEX, pointer

FORMATS.setdefault("f16", Format(11, -24, 16))
FORMATS.setdefault("bf16", Format(8, -133, 128))
BITS = {"f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32} | {
    f"{sign}{bits}": bits for sign in "bus" for bits in (16, 32, 64)
} | {"f32": 32, "f64": 64}  # fmt: skip
CLASS = {16: "%rs", 32: "%r", 64: "%rd"}
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}
SLOTS = 8

Operation = Callable[[int, int, int], int]


def float_of(bits: int, kind: str) -> float:
    if kind == "bf16":
        return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
    code, width = {"f16": ("<e", 2), "f32": ("<f", 4), "f64": ("<d", 8)}[kind]
    return float(struct.unpack(code, bits.to_bytes(width, "little"))[0])


def bits_of(value: float, kind: str) -> int:
    """The pattern of a value that the format can hold."""
    if math.isnan(value):
        return NAN[kind]
    if kind == "bf16":
        return int(struct.unpack("<I", struct.pack("<f", value))[0]) >> 16
    return int.from_bytes(struct.pack({"f16": "<e", "f32": "<f", "f64": "<d"}[kind], value), "little")


def is_nan(bits: int, kind: str) -> bool:
    return math.isnan(float_of(bits, kind))


def float_sum(x: float, y: float, kind: str) -> float:
    if math.isnan(x) or math.isnan(y) or (math.isinf(x) and math.isinf(y) and x != y):
        return math.nan
    if math.isinf(x) or math.isinf(y):
        return x if math.isinf(x) else y
    exact = Fraction(x) + Fraction(y)
    return to_float(exact, kind) if exact else zero(negative(x) and negative(y))


def flushed(value: float, kind: str) -> float:
    small = abs(value) < FORMATS[kind].smallest_normal
    return zero(negative(value)) if small and not math.isnan(value) else value


def add_float(kind: str, *, flush: bool) -> Operation:
    def apply(old: int, b: int, c: int) -> int:
        x, y = float_of(old, kind), float_of(b, kind)
        if not flush:
            return bits_of(float_sum(x, y, kind), kind)
        return bits_of(flushed(float_sum(flushed(x, kind), flushed(y, kind), kind), kind), kind)

    return apply


def extreme_float(kind: str, *, greater: bool) -> Operation:
    def apply(old: int, b: int, c: int) -> int:
        numbers = [bits for bits in (old, b) if not is_nan(bits, kind)]
        if not numbers:
            return NAN[kind]

        def order(bits: int) -> tuple[float, bool]:
            return float_of(bits, kind), not negative(float_of(bits, kind))

        return max(numbers, key=order) if greater else min(numbers, key=order)

    return apply


def packed(operation: Operation) -> Operation:
    return lambda old, b, c: operation(old >> 16, b >> 16, 0) << 16 | operation(old & 0xFFFF, b & 0xFFFF, 0)


def signed(value: int, kind: str) -> int:
    width = BITS[kind]
    return value - (1 << width) if kind[0] == "s" and value >> (width - 1) else value


def operation_of(name: str, kind: str, *, shared: bool) -> Operation:
    """The new pattern from the old one and the operands."""
    base = kind.removesuffix("x2")
    if base in NAN:
        plain = (
            add_float(base, flush=base == "f32" and not shared)
            if name == "add"
            else extreme_float(base, greater=name == "max")
        )
        return packed(plain) if kind != base else plain
    limit = (1 << BITS[kind]) - 1
    table: dict[str, Operation] = {
        "and": lambda old, b, c: old & b,
        "or": lambda old, b, c: old | b,
        "xor": lambda old, b, c: old ^ b,
        "exch": lambda old, b, c: b,
        "cas": lambda old, b, c: c if old == b else old,
        "add": lambda old, b, c: old + b & limit,
        "inc": lambda old, b, c: 0 if old >= b else old + 1,
        "dec": lambda old, b, c: b if old == 0 or old > b else old - 1,
        "min": lambda old, b, c: min(old, b, key=lambda v: signed(v, kind)),
        "max": lambda old, b, c: max(old, b, key=lambda v: signed(v, kind)),
    }
    return table[name]


@dataclass(frozen=True)
class Atomic:
    """One operation on one type; ``opcode`` is atom or red."""

    name: str
    kind: str
    opcode: str = "atom"

    def __str__(self) -> str:
        return f"{self.opcode}.{self.name}.{self.kind}"

    @property
    def bits(self) -> int:
        return BITS[self.kind]

    @property
    def suffix(self) -> str:
        return f"{self.name}{'.noftz' if self.kind.startswith(('f16', 'bf16')) else ''}.{self.kind}"

    def instruction(self, space: str, address: str) -> str:
        """The instruction on ``[address]``, with operands 10 and 11 and the result 12 of its class."""
        r = CLASS[self.bits]
        third = f", {r}11" if self.name == "cas" else ""
        target = f"{r}12, " if self.opcode == "atom" else ""
        return f" {self.opcode}{space}.{self.suffix} {target}[{address}], {r}10{third};"

    def run(self, memory: list[int], lanes: list[tuple[int, int, int]], *, shared: bool) -> list[int]:
        """Lanes (slot, b, c) in order; gives what each found, and changes the memory."""
        apply, found = operation_of(self.name, self.kind, shared=shared), []
        for slot, b, c in lanes:
            found.append(memory[slot])
            memory[slot] = apply(memory[slot], b, c)
        return found


def body_of(form: Atomic) -> str:
    """The operation on four copies of a small memory: global, generic to global, shared, generic to shared.

    Parameters: slots, b, c, memory (four copies), what the lanes found (four copies).  One block.
    """
    size, r, b = form.bits // 8, CLASS[form.bits], f"b{form.bits}"
    lines = [
        f" .shared .align 16 .b8 fast[{2 * SLOTS * size}];", INDEX, pointer(0), " ld.global.u32 %r30, [%rd0];",
        pointer(1, size=size), f" ld.global.{b} {r}10, [%rd1];",
        pointer(2, size=size), f" ld.global.{b} {r}11, [%rd2];",
        " ld.param.u64 %rd3, [p3];", pointer(4, size=size, register="%rd4"), f" mul.lo.u32 %r31, %r30, {size};",
        f" mad.wide.u32 %rd5, %r30, {size}, %rd3; mov.u32 %r32, fast; add.u32 %r33, %r32, %r31;",
        f" add.u32 %r36, %r33, {SLOTS * size}; cvt.u64.u32 %rd6, %r36; cvta.shared.u64 %rd6, %rd6;",
        f" setp.lt.u32 %p1, %r0, {2 * SLOTS}; mad.lo.u32 %r34, %r0, {size}, %r32;",
        f" mad.wide.u32 %rd7, %r0, {size}, %rd3; @%p1 ld.global.{b} {r}13, [%rd7+{2 * SLOTS * size}];",
        f" @%p1 st.shared.{b} [%r34], {r}13; bar.sync 0;",
    ]  # fmt: skip
    places = ((".global", "%rd5"), ("", f"%rd5+{SLOTS * size}"), (".shared", "%r33"), ("", "%rd6"))
    for number, (space, address) in enumerate(places):
        lines.append(form.instruction(space, address))
        if form.opcode == "atom":
            lines.append(f" st.global.{b} [%rd4+{number * 32 * size}], {r}12;")
    lines += [
        f" bar.sync 0; @%p1 ld.shared.{b} {r}13, [%r34]; @%p1 st.global.{b} [%rd7+{2 * SLOTS * size}], {r}13; ret;"
    ]
    return "\n".join(lines)


def array(values: list[int], bits: int) -> np.ndarray:
    return np.array(values, dtype=f"u{bits // 8}")
