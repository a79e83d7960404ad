"""Matrix instructions (PTX ISA: wmma, mma, ldmatrix, stmatrix, movmatrix).

Covered: dense products of every type and shape of these instructions on sm_75 to sm_90; see `tensor_shapes` for the
layouts and the runtime's tensor.cpp for the arithmetic.  Not covered: sparse products (`mma.sp`), block scaling and the
types of sm_100, rounding modes other than ``.rn``.

All lanes of a warp must execute a matrix instruction; if some do not, that is a finding ("divergent-mma"), and the
result is computed from the current contents of their registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.lower.tensor_memory import (
    load_fragment,
    load_matrix,
    move_matrix,
    raw_type,
    stage,
    store_fragment,
    store_matrix,
    unstage,
    whole_warp,
)
from cupilot.vgpu.lower.tensor_shapes import (
    NotCovered,
    Part,
    Product,
    Shape,
    accumulator_registers,
    operand_registers,
    parts_of,
    product_of,
)
from cupilot.vgpu.ptx.syntax import Instruction, items_of

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

HALF_C, HALF_D, COLUMN_A, ROW_B = 1, 2, 4, 8  # flags of tensor.cpp
DATA_BYTES = 4096  # size of %data


def tensor_flop(instruction: Instruction) -> tuple[str, int] | None:
    """Type and floating-point (or integer) operations of one warp's product; loads and stores have none."""
    if instruction.opcode == "wmma" and not instruction.has("mma"):
        return None
    try:
        product = product_of(instruction)
    except NotCovered:
        return None
    return product.family, product.flop


def _product(e: Emitter, i: Instruction) -> Product:
    try:
        return product_of(i)
    except NotCovered as error:
        raise e.unsupported(str(error)) from None


def _check_registers(e: Emitter, i: Instruction, p: Product, wmma: bool) -> None:
    """Check that each fragment has the registers its elements need; f16 operands of `wmma` always have eight."""
    s = p.shape
    left, right = operand_registers(s.m, s.k, p.a), operand_registers(s.n, s.k, p.b)
    if p.quad_pairs:
        wanted = [8 if p.d == "f32" else 4, 2, 2, 8 if p.c == "f32" else 4]
    else:
        wanted = [accumulator_registers(s.m, s.n, p.d), left, right, accumulator_registers(s.m, s.n, p.c)]
    if wmma and p.a == "f16":
        wanted[1:3] = [8, 8]
    have = [len(items_of(operand)) for operand in i.operands[:4]]
    if have != wanted:
        raise e.unsupported(f"fragments of {have} registers where {wanted} are due")


def _symbol(p: Product, inner: Shape, swapped: bool) -> str:
    kinds = p.operation or "_".join((p.b, p.a) if swapped else (p.a, p.b))
    return f"vg_mma_{kinds}_{inner.m}_{inner.k}"


def _multiply(e: Emitter, i: Instruction, p: Product, inner: Shape, swapped: bool, parts: list[Part]) -> None:
    whole_warp(e, i)
    operands = [items_of(operand) for operand in i.operands[:4]]
    size = raw_type(p.a)[1]
    at_b = size * len(operands[1])
    at_c = at_b + size * len(operands[2])
    # D may overwrite C unless the two are packed differently
    at_d = at_c if p.c == p.d else at_c + size * len(operands[3])
    assert at_d + size * len(operands[0]) <= DATA_BYTES
    for items, kind, offset in zip(operands[1:], (p.a, p.b, p.c), (0, at_b, at_c), strict=True):
        stage(e, items, kind, offset)
    form = int(p.clamp)
    if p.family in ("fp16", "fp8"):
        form = HALF_C * (p.c == "f16") | HALF_D * (p.d == "f16") | COLUMN_A * p.column_a | ROW_B * p.row_b
    left_at, right_at = (at_b, 0) if swapped else (0, at_b)
    for part in parts:
        sums = [accumulator_registers(inner.m, inner.n, kind) * part.sum for kind in (p.c, p.d)]
        offsets = (
            left_at + size * part.left, right_at + size * part.right, at_c + size * sums[0], at_d + size * sums[1],
        )  # fmt: skip
        pointers = ", ".join(f"ptr {e.field_at('%data', offset)}" for offset in offsets)
        e.call("void", _symbol(p, inner, swapped), f"{pointers}, i32 {form}", "ptr, ptr, ptr, ptr, i32")
    unstage(e, operands[0], p.d, at_d, len(operands[0]))


def _mma(e: Emitter, i: Instruction) -> None:
    product = _product(e, i)
    _check_registers(e, i, product, wmma=False)
    _multiply(e, i, product, product.shape, False, [Part(0, 0, 0)])


def _wmma(e: Emitter, i: Instruction) -> None:
    if i.has("load"):
        load_fragment(e, i)
    elif i.has("store"):
        store_fragment(e, i)
    else:
        product = _product(e, i)
        _check_registers(e, i, product, wmma=True)
        _multiply(e, i, product, *parts_of(product))


def _wmma_kind(i: Instruction) -> str:
    return "matrix" if i.has("mma") else "load" if i.has("load") else "store"


ORDER = 140
OPCODES = {
    "mma": Opcode(
        _mma,
        varies=True,
        kind="matrix",
        tensor_flop=tensor_flop,
        forms=(
            "mma.sync.aligned.m16n8k8.row.col.{f16.f16.f16.f16} {%r1, %r2}, {%r3, %r4}, {%r5}, {%r1, %r2}",
            "mma.sync.aligned.{m16n8k8,m16n8k16}: f16, bf16",
            "mma.sync.aligned.{m16n8k4,m16n8k8}: tf32",
            "mma.sync.aligned.m8n8k4: f16 (any .row/.col), f64",
            "mma.sync.aligned.{m16n8k4,m16n8k8,m16n8k16}: f64",
            "mma.sync.aligned.{m16n8k16,m16n8k32}: e4m3, e5m2",
            "mma.sync.aligned.{m8n8k16,m16n8k16,m16n8k32}{,.satfinite}: s8, u8",
            "mma.sync.aligned.{m8n8k32,m16n8k32,m16n8k64}{,.satfinite}: s4, u4",
            "mma.sync.aligned.{m8n8k128,m16n8k128,m16n8k256}: b1 with .xor.popc, .and.popc",
        ),
        missing=(
            "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
            " {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r3, %r4}, {%f1, %f2, %f3, %f4}, %r5, 0",
        ),
    ),
    "wmma": Opcode(
        _wmma,
        writes=lambda i: 0 if i.has("store") else 1,
        varies=True,
        orders=("shared",),
        kind=_wmma_kind,
        tensor_flop=tensor_flop,
        forms=(
            "wmma.{load,mma,store}: {m16n16k16,m32n8k16,m8n32k16} of f16, bf16, s8, u8;"
            " m16n16k8 of tf32; m8n8k4 of f64; m8n8k32 of s4, u4; m8n8k128 of b1",
            "wmma.load.a.sync.aligned.{row,col}.m16n16k16.{global,shared}.f16"
            " {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd1], 16",
        ),
    ),
    "ldmatrix": Opcode(
        load_matrix,
        varies=True,
        orders=("shared",),
        kind="load",
        forms=(
            "ldmatrix.sync.aligned.m8n8.x1{,.trans}.shared.b16 {%r1}, [%r5]",
            "ldmatrix.sync.aligned.m8n8.x2{,.trans}.shared.b16 {%r1, %r2}, [%r5]",
            "ldmatrix.sync.aligned.m8n8.x4{,.trans}{,.shared}.b16 {%r1, %r2, %r3, %r4}, [%rd5]",
        ),
        missing=("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r2}, [%r5]",),
    ),
    "stmatrix": Opcode(
        store_matrix,
        writes=0,
        varies=True,
        orders=("shared",),
        kind="store",
        forms=(
            "stmatrix.sync.aligned.m8n8.x1{,.trans}.shared.b16 [%r5], {%r1}",
            "stmatrix.sync.aligned.m8n8.x4{,.trans}.shared.b16 [%r5], {%r1, %r2, %r3, %r4}",
        ),
        missing=("stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r5], {%r1}",),
    ),
    "movmatrix": Opcode(
        move_matrix,
        varies=True,
        pipe="lsu",
        kind="warp",
        forms=("movmatrix.sync.aligned.m8n8.trans.b16",),
        operands="%r1, %r2",
    ),
}
