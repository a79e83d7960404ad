"""What a matrix instruction computes, read from its modifiers, and how fragments lie in registers.

The layouts of `mma` fragments are documented for every shape (PTX ISA, "Matrix Fragments for mma.*"), and all but
that of ``m8n8k4`` with f16 follow one rule: lane ``4g + t`` holds, in each register, the elements ``t*e .. t*e+e-1``
of line ``g``, where ``e`` elements fit into 32 bits.  Lines are rows of A, columns of B, rows of C; a register
with all its lanes is thus a tile of eight lines.  Registers of A go down 16 rows, then along k.  Accumulators of 32
or 64 bits take two registers for the two elements.

`wmma` fragments are opaque in the ISA.  Here they are pairs of ``m16n8`` fragments, whether loaded from rows or
columns: A once and B, C twice side by side for ``m16n16``; A, C twice one below the other for ``m32n8``; the
transposed product for ``m8n32``.  For ``m16n16`` with f16, bf16, tf32 and s8, sm_75 and later do the same (f16 operands
fill their eight registers twice); the layout of the other two shapes is our choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cupilot.vgpu.ptx.syntax import Instruction

BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
    "f32": 32, "s32": 32, "f64": 64,
}  # fmt: skip
FAMILY = {
    "f16": "fp16", "bf16": "bf16", "tf32": "tf32", "e4m3": "fp8", "e5m2": "fp8", "s8": "int8", "u8": "int8",
    "s4": "int4", "u4": "int4", "b1": "int1", "f64": "fp64",
}  # fmt: skip
ACCUMULATORS = {
    "fp16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "fp8": ("f16", "f32"), "int8": ("s32",),
    "int4": ("s32",), "int1": ("s32",), "fp64": ("f64",),
}  # fmt: skip
MMA_SHAPES = {
    "fp16": ("m8n8k4", "m16n8k8", "m16n8k16"), "bf16": ("m16n8k8", "m16n8k16"), "tf32": ("m16n8k4", "m16n8k8"),
    "fp8": ("m16n8k16", "m16n8k32"), "int8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "int4": ("m8n8k32", "m16n8k32", "m16n8k64"), "int1": ("m8n8k128", "m16n8k128", "m16n8k256"),
    "fp64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
}  # fmt: skip
_SIXTEEN = ("m16n16k16", "m32n8k16", "m8n32k16")
WMMA_SHAPES = {
    "fp16": _SIXTEEN, "bf16": _SIXTEEN, "int8": _SIXTEEN, "tf32": ("m16n16k8",), "int4": ("m8n8k32",),
    "int1": ("m8n8k128",), "fp64": ("m8n8k4",),
}  # fmt: skip
_KNOWN = {"sync", "aligned", "mma", "load", "store", "row", "col", "satfinite", "xor", "and", "popc", "rn"}


class NotCovered(Exception):
    """A form of a matrix instruction that is not supported; the message names it."""


@dataclass(frozen=True)
class Shape:
    """``m x n`` results, each a sum over ``k`` products."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"


@dataclass(frozen=True)
class Product:
    """``D = A x B + C`` of one instruction."""

    shape: Shape
    d: str
    a: str
    b: str
    c: str
    operation: str = ""  # for bits: xor or and
    clamp: bool = False
    column_a: bool = False
    row_b: bool = False

    @property
    def family(self) -> str:
        return FAMILY[self.a]

    @property
    def quad_pairs(self) -> bool:
        """Whether this is the instruction of the first tensor cores: four products, with a layout of its own."""
        return self.a == "f16" and self.shape == Shape(8, 8, 4)

    @property
    def flop(self) -> int:
        s = self.shape
        return 2 * s.m * s.n * s.k * (4 if self.quad_pairs else 1)


def shape_of(instruction: Instruction) -> Shape:
    for mod in instruction.mods:
        if match := re.fullmatch(r"m(\d+)n(\d+)k(\d+)", mod):
            return Shape(*(int(number) for number in match.groups()))
    raise NotCovered("a matrix instruction without a shape")


def per_register(kind: str) -> int:
    """Elements of a type in one register."""
    return max(1, 32 // BITS[kind])


def product_of(instruction: Instruction) -> Product:
    """Read the modifiers of `mma` or `wmma.mma`; a form that is not supported raises `NotCovered`."""
    mods, wmma = instruction.mods, instruction.opcode == "wmma"
    if any(mod.startswith("sp") for mod in mods):
        raise NotCovered("a product with a sparse matrix (mma.sp)")
    shape = shape_of(instruction)
    for mod in mods:
        if mod not in _KNOWN and mod not in BITS and mod != str(shape):
            raise NotCovered(f"the modifier .{mod} of a matrix instruction")
    types = [mod for mod in mods if mod in BITS]
    if wmma and len(types) == 2:  # f16 operands are not named
        types[1:1] = ["f16", "f16"]
    if len(types) != 4:
        raise NotCovered("a matrix instruction with these types")
    d, a, b, c = types
    layouts = [mod for mod in mods if mod in ("row", "col")]
    operation = next((mod for mod in ("xor", "and") if mod in mods), "")
    product = Product(
        shape, d, a, b, c, operation, "satfinite" in mods, layouts[:1] == ["col"], layouts[1:] == ["row"]
    )  # fmt: skip
    _check(product, wmma)
    return product


def _check(p: Product, wmma: bool) -> None:
    family = FAMILY.get(p.a)
    if family is None or FAMILY.get(p.b) != family or not {p.c, p.d} <= set(ACCUMULATORS[family]):
        raise NotCovered(f"a product of .{p.a} and .{p.b} added to .{p.c} giving .{p.d}")
    if str(p.shape) not in (WMMA_SHAPES if wmma else MMA_SHAPES).get(family, ()):
        raise NotCovered(f"the shape {p.shape} for .{p.a}")
    if not wmma and not p.quad_pairs and (p.column_a or p.row_b):
        raise NotCovered("operands that are not .row.col")
    if p.clamp and family not in ("int8", "int4"):
        raise NotCovered(f".satfinite for .{p.a}")
    if (family == "int1") != bool(p.operation):
        raise NotCovered("a product of bits without .xor or .and")


# --- registers --------------------------------------------------------------------------------


def operand_registers(lines: int, k: int, kind: str) -> int:
    """Registers of a fragment of A with ``lines`` rows, or of B with ``lines`` columns."""
    return lines // 8 * (k // (4 * per_register(kind)))


def accumulator_registers(m: int, n: int, kind: str) -> int:
    return m * n // 32 // (2 if kind == "f16" else 1)


@dataclass(frozen=True)
class Part:
    """One ``m16n8`` (or ``m8n8``) product inside a `wmma.mma`: the first registers of its left, right and sum."""

    left: int
    right: int
    sum: int


def parts_of(p: Product) -> tuple[Shape, bool, list[Part]]:
    """The shape and list of the products that make up a `wmma.mma`, and whether the matrices are transposed.

    ``sum`` counts 16 x 8 accumulators, whose registers depend on their type.
    """
    m, n, k = p.shape.m, p.shape.n, p.shape.k
    if (m, n) == (8, 8):
        return p.shape, False, [Part(0, 0, 0)]
    inner = Shape(16, 8, k)
    left, right = operand_registers(16, k, p.a), operand_registers(8, k, p.b)
    if (m, n) == (16, 16):
        return inner, False, [Part(0, right * i, i) for i in range(2)]
    return inner, n == 32, [Part(left * i, 0, i) for i in range(2)]


@dataclass(frozen=True)
class Tile:
    """Eight lines of a `wmma` fragment in one register (or, for wide accumulators, two)."""

    line: int
    along: int


def tiles_of(fragment: str, shape: Shape, kind: str) -> tuple[bool, list[Tile]]:
    """Whether lines are rows, and the tiles of fragment ``a``, ``b``, ``c`` or ``d`` in the order of registers."""
    m, n, k = shape.m, shape.n, shape.k
    transposed = n == 32
    if fragment in "cd":
        if transposed:
            return False, [Tile(line, 0) for line in range(0, n, 8)]
        return True, [Tile(row, column) for column in range(0, n, 8) for row in range(0, m, 8)]
    lines = m if fragment == "a" else n
    chunk = 4 * per_register(kind)
    block = 16 if (fragment == "a") != transposed and lines > 8 else 8
    return fragment == "a", list(_operand_tiles(lines, k, chunk, block))


def _operand_tiles(lines: int, k: int, chunk: int, block: int) -> Iterator[Tile]:
    for first in range(0, lines, block):
        for along in range(0, k, chunk):
            for line in range(first, first + block, 8):
                yield Tile(line, along)
