"""Matrices between memory and registers (PTX ISA: wmma.load, wmma.store, ldmatrix, stmatrix, movmatrix).

Rows and tiles use the runtime's ordinary accesses, so that bounds, alignment, races, sectors and bank conflicts are
those of the lanes' addresses.  Not covered: the 8-bit and smaller forms of `ldmatrix` and `stmatrix`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.tensor_shapes import (
    ACCUMULATORS,
    BITS,
    FAMILY,
    WMMA_SHAPES,
    NotCovered,
    Shape,
    per_register,
    shape_of,
    tiles_of,
)
from cupilot.vgpu.ptx.syntax import Instruction, Operand, items_of

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

WHERE = ("shared", "global", "generic")  # in the order of tensor_memory.cpp


def raw_type(kind: str) -> tuple[str, int]:
    """The LLVM type of one register of a fragment, and the bytes of 32 lanes of it."""
    return ("i64", 256) if kind == "f64" else ("i32", 128)


def stage(e: Emitter, items: tuple[Operand, ...], kind: str, offset: int) -> None:
    """Store registers to %data, one after the other."""
    raw, size = raw_type(kind)
    for number, item in enumerate(items):
        place = e.field_at("%data", offset + number * size)
        e.line(f"store <32 x {raw}> {e.fetch(item, raw, True)}, ptr {place}, align 64")


def unstage(e: Emitter, items: tuple[Operand, ...], kind: str, offset: int, distinct: int) -> None:
    """Load registers from %data; those beyond ``distinct`` repeat the first ones."""
    raw, size = raw_type(kind)
    values = [
        e.op(f"load <32 x {raw}>, ptr {e.field_at('%data', offset + number * size)}, align 64")
        for number in range(min(distinct, len(items)))
    ]
    for number, item in enumerate(items):
        e.put(item, values[number % len(values)], raw, True)


def whole_warp(e: Emitter, i: Instruction) -> str:
    """The mask of active lanes, after a check that all lanes or none are active."""
    mask = e.lane_mask()
    e.call("void", "vg_whole_warp", f"ptr %c, ptr %w, i32 {i.line}, i32 {mask}", "ptr, ptr, i32, i32")
    return mask


def _space(e: Emitter, i: Instruction, allowed: tuple[str, ...]) -> str:
    for mod in i.mods:
        if mod.split("::")[0] in ("shared", "global", "const", "local", "param"):
            if mod not in (*allowed, "shared::cta"):
                raise e.unsupported(f"a matrix in .{mod} memory")
            return mod.split("::")[0]
    return "generic"


def _stage_addresses(e: Emitter, operand: Operand, space: str) -> None:
    kind = "i32" if space == "shared" else "i64"
    value = e.cast(e.address(operand, kind, True), kind, "i64", True)
    e.line(f"store <32 x i64> {value}, ptr %addresses, align 64")


# --- ldmatrix, stmatrix, movmatrix ------------------------------------------------------------


def _matrices(e: Emitter, i: Instruction, items: tuple[Operand, ...]) -> int:
    count = next((int(mod[1:]) for mod in i.mods if mod in ("x1", "x2", "x4")), 0)
    if "m8n8" not in i.mods or "b16" not in i.mods or count != len(items):
        raise e.unsupported("this form of matrix load or store (only m8n8 with .b16 is covered)")
    return count


def _matrix_rows(e: Emitter, i: Instruction, address: Operand, items: tuple[Operand, ...], step: str) -> int:
    count = _matrices(e, i, items)
    space = _space(e, i, ("shared",))
    mask = whole_warp(e, i)
    _stage_addresses(e, address, space)
    site = e.site(space, 16, store=step == "st")
    transposed = int(i.has("trans"))
    e.call(
        "void", f"vg_{step}matrix",
        f"ptr %c, ptr %w, i32 {site}, ptr %addresses, i32 {mask}, ptr %data, i32 {WHERE.index(space)}, i32 {count}, "
        f"i32 {transposed}",
        "ptr, ptr, i32, ptr, i32, ptr, i32, i32, i32",
    )  # fmt: skip
    return count


def load_matrix(e: Emitter, i: Instruction) -> None:
    items = items_of(i.operands[0])
    count = _matrix_rows(e, i, i.operands[1], items, "ld")
    unstage(e, items, "b16", 0, count)


def store_matrix(e: Emitter, i: Instruction) -> None:
    items = items_of(i.operands[1])
    stage(e, items, "b16", 0)
    _matrix_rows(e, i, i.operands[0], items, "st")


def move_matrix(e: Emitter, i: Instruction) -> None:
    if not {"m8n8", "trans", "b16"} <= set(i.mods):
        raise e.unsupported("this form of movmatrix")
    whole_warp(e, i)
    stage(e, (i.operands[1],), "b16", 0)
    e.call("void", "vg_movmatrix", "ptr %data", "ptr")
    unstage(e, (i.operands[0],), "b16", 0, 1)


# --- wmma.load, wmma.store --------------------------------------------------------------------


def _fragment(e: Emitter, i: Instruction) -> tuple[str, Shape, str, str]:
    """The matrix, shape, element type and memory layout; other forms raise an error."""
    fragment, kind = i.mods[1], i.mods[-1]
    try:
        shape = shape_of(i)
    except NotCovered as error:
        raise e.unsupported(str(error)) from None
    layout = "row" if i.has("row") else "col"
    families = [
        family
        for family, shapes in WMMA_SHAPES.items()
        if str(shape) in shapes and (kind in ACCUMULATORS[family] if fragment in "cd" else FAMILY.get(kind) == family)
    ]
    if not families:
        raise e.unsupported(f"the shape {shape} for matrix {fragment} of .{kind}")
    if BITS[kind] < 8 and layout != {"a": "row", "b": "col"}[fragment]:
        raise e.unsupported(f"matrix {fragment} of .{kind} in .{layout} order")
    return fragment, shape, kind, layout


def default_stride(fragment: str, shape: Shape, layout: str) -> int:
    """The leading dimension of a matrix without gaps in memory."""
    rows = shape.k if fragment == "b" else shape.m
    columns = shape.k if fragment == "a" else shape.n
    return columns if layout == "row" else rows


def _same_in_all_lanes(e: Emitter, operand: Operand, mask: str) -> str:
    """A value that must be the same in all lanes (PTX ISA): that of the first active lane."""
    if e.operand_is_uniform(operand):
        return e.fetch(operand, "i32", False)
    zeros = e.call("i32", "llvm.cttz.i32", f"i32 {mask}, i1 false", "i32, i1")
    lane = e.op(f"and i32 {zeros}, 31")  # without active lanes, any lane will do
    return e.op(f"extractelement <32 x i32> {e.fetch(operand, 'i32', True)}, i32 {lane}")


def _tiles(e: Emitter, i: Instruction, address: Operand, step: str) -> int:
    """Move every tile between memory and %data; returns the number of registers."""
    fragment, shape, kind, layout = _fragment(e, i)
    space = _space(e, i, ("shared", "global"))
    per_lane = 2 if fragment in "cd" else per_register(kind)
    registers = 1 if BITS[kind] < 32 else per_lane
    mask = whole_warp(e, i)
    _stage_addresses(e, address, space)
    stride = str(default_stride(fragment, shape, layout))
    if len(i.operands) > 2:
        stride = _same_in_all_lanes(e, i.operands[2], mask)
    by_rows, tiles = tiles_of(fragment, shape, kind)
    along = by_rows == (layout == "row")
    width = max(4, BITS[kind] // 8 * per_lane) if along else BITS[kind] // 8
    for number, tile in enumerate(tiles):
        line, position = (tile.line, tile.along) if along else (tile.along, tile.line)
        place = e.field_at("%data", number * registers * raw_type(kind)[1])
        # every access has a site of its own: its pattern of addresses repeats from one execution to the next
        sites = [e.site(space, width, store=step == "store") for _ in range(1 if along else per_lane)]
        e.call(
            "void", f"vg_tile_{step}",
            f"ptr %c, ptr %w, i32 {sites[0]}, ptr %addresses, i32 {mask}, ptr {place}, i32 {stride}, "
            f"i32 {WHERE.index(space)}, i32 {BITS[kind]}, i32 {per_lane}, i32 {int(along)}, i32 {line}, i32 {position}",
            "ptr, ptr, i32, ptr, i32, ptr, i32, i32, i32, i32, i32, i32, i32",
        )  # fmt: skip
    return len(tiles) * registers


def load_fragment(e: Emitter, i: Instruction) -> None:
    items = items_of(i.operands[0])
    distinct = _tiles(e, i, i.operands[1], "load")
    if len(items) != distinct and (i.mods[-1] != "f16" or len(items) % distinct):
        raise e.unsupported(f"a fragment of {len(items)} registers")
    unstage(e, items, i.mods[-1], 0, distinct)


def store_fragment(e: Emitter, i: Instruction) -> None:
    items = items_of(i.operands[1])
    stage(e, items, i.mods[-1], 0)
    if _tiles(e, i, i.operands[0], "store") != len(items):
        raise e.unsupported(f"a fragment of {len(items)} registers")
