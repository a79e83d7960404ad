"""Atomic updates (PTX ISA: atom, red).

Covered: all operations and types, in global and shared memory and through generic addresses, and the vector forms.
Lanes update one after the other in lane order, and every update is atomic on the host, so orders, scopes and cache
hints have no effect on results; the race checks are told of release orders.  Not covered: ``red.async``, and the shared
memory of other blocks (``.shared::cluster``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import TYPE_BYTES, Instruction, Operand, items_of

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

# the types of each operation, with the runtime's name for each; sums are the same for signed and unsigned
_HALVES = {name: name for name in ("f16", "bf16", "f16x2", "bf16x2")}
_BITS = {"b32": "b32", "b64": "b64"}
_ORDERED = {name: name for name in ("u32", "s32", "u64", "s64")} | _HALVES
OPERATIONS: dict[str, dict[str, str]] = {
    "and": _BITS,
    "or": _BITS,
    "xor": _BITS,
    "exch": _BITS | {"b128": "b128"},
    "cas": _BITS | {"b16": "b16", "b128": "b128"},
    "inc": {"u32": "u32"},
    "dec": {"u32": "u32"},
    "add": {"u32": "u32", "s32": "u32", "u64": "u64", "s64": "u64", "f32": "f32", "f64": "f64"} | _HALVES,
    "min": _ORDERED,
    "max": _ORDERED,
}
SPACES = {"global": 0, "shared": 1, "shared::cta": 1, "generic": 2}  # engine.h: enum Space
RELEASES = frozenset(("release", "acq_rel", "sc"))
IGNORED = frozenset(
    ("relaxed", "acquire", "cta", "cluster", "gpu", "sys", "noftz", "L2::cache_hint", "v2", "v4", "v8")
)  # fmt: skip
_LLVM = {"f32": "float", "f64": "double"}


def _form(e: Emitter, i: Instruction) -> tuple[str, str, str]:
    """Operation, type and state space; modifiers may come in any order."""
    operation = kind = ""
    space = "generic"
    for mod in i.mods:
        if mod in OPERATIONS:
            operation = mod
        elif mod in SPACES:
            space = mod
        elif mod in TYPE_BYTES:
            kind = mod
        elif mod not in IGNORED and mod not in RELEASES:
            raise e.unsupported(f"an atomic update with .{mod}")
    if kind not in OPERATIONS.get(operation, {}) or (i.opcode == "red" and operation in ("cas", "exch")):
        raise e.unsupported(f"the atomic operation .{operation} on .{kind}")
    return operation, kind, space


def _update(e: Emitter, i: Instruction) -> None:
    operation, kind, space = _form(e, i)
    results = items_of(i.operands[0]) if i.opcode == "atom" else ()
    address, value, *rest = i.operands[1 if i.opcode == "atom" else 0 :]
    items, width = items_of(value), TYPE_BYTES[kind]
    if len(items) > 1 and (kind not in (*_HALVES, "f32") or space.startswith("shared") or width * len(items) > 16):
        raise e.unsupported(f"an atomic update of {len(items)} elements of .{kind} in .{space} memory")
    if len(results) > len(items):
        raise e.unsupported(f"{len(results)} results of an atomic update of {len(items)} elements")
    llvm = _LLVM.get(kind, f"i{8 * width}")
    _stage_addresses(e, address, space)
    operands = (*items, rest[0]) if operation == "cas" else items
    for number, item in enumerate(operands):
        place = e.field_at("%data", number * width * 32)
        e.line(f"store <32 x {llvm}> {e.fetch(item, llvm, True)}, ptr {place}, align {min(32 * width, 64)}")
    site = e.site(space.split("::")[0], width * len(items), store=True, atomic=True)
    releases = int(any(mod in RELEASES for mod in i.mods))
    e.call(
        "void", f"vg_atom_{operation}_{OPERATIONS[operation][kind]}",
        f"ptr %c, ptr %w, i32 {site}, ptr %addresses, i32 {e.lane_mask()}, ptr %data, "
        f"i32 {SPACES[space]}, i32 {len(items)}, i32 {releases}",
        "ptr, ptr, i32, ptr, i32, ptr, i32, i32, i32",
    )  # fmt: skip
    for number, item in enumerate(results):
        place = e.field_at("%data", number * width * 32)
        found = e.op(f"load <32 x {llvm}>, ptr {place}, align {min(32 * width, 64)}")
        e.put(item, found, llvm, True)


def _stage_addresses(e: Emitter, operand: Operand, space: str) -> None:
    """Addresses are passed as 64 bits; those of shared memory are extended from 32."""
    if SPACES[space] == SPACES["shared"]:
        short = e.address(operand, "i32", True)
        value = e.op(f"zext <32 x i32> {short} to <32 x i64>")
    else:
        value = e.address(operand, "i64", True)
    e.line(f"store <32 x i64> {value}, ptr %addresses, align 64")


ORDER = 120
OPCODES = {
    "atom": Opcode(
        _update,
        varies=True,
        orders=("shared",),
        kind="atomic",
        forms=(
            "atom{,.relaxed,.acquire,.release,.acq_rel}{,.cta,.gpu,.sys}{,.global,.shared}.{and,or,xor,exch}.{b32,b64}",
            "atom{,.global,.shared}.{inc,dec}.u32",
            "atom{,.global,.shared}.{add,min,max}.{u32,s32,u64,s64}",
            "atom{,.global,.shared}.add.{f32,f64}",
            "atom{,.global,.shared}.{add,min,max}.noftz.{f16,f16x2,bf16,bf16x2}",
            "atom{,.global,.shared}.cas.{b16,b32,b64} %rd1, [%rd2], %rd3, %rd4",
            "atom.exch.b128 %q1, [%rd2], %q2",
            "atom.cas.b128 %q1, [%rd2], %q2, %q3",
            "atom.global.add.v2.f32 {%f1, %f2}, [%rd2], {%f3, %f4}",
            "atom.global.add.v4.f32 {%f1, %f2, %f3, %f4}, [%rd2], {%f5, %f6, %f7, %f8}",
            "atom.global.add.noftz.v4.f16 {%rs1, %rs2, %rs3, %rs4}, [%rd2], {%rs5, %rs6, %rs7, %rs8}",
        ),
        operands="%rd1, [%rd2], %rd3",
        missing=("atom.shared::cluster.add.u32",),
    ),
    "red": Opcode(
        _update,
        writes=0,
        orders=("shared",),
        kind="atomic",
        forms=(
            "red{,.relaxed,.release}{,.cta,.gpu,.sys}{,.global,.shared}.{and,or,xor}.{b32,b64}",
            "red{,.global,.shared}.{inc,dec}.u32",
            "red{,.global,.shared}.{add,min,max}.{u32,s32,u64,s64}",
            "red{,.global,.shared}.add.{f32,f64}",
            "red{,.global,.shared}.{add,min,max}.noftz.{f16,f16x2,bf16,bf16x2}",
            "red.global.add.v2.f32 [%rd2], {%f3, %f4}",
            "red.global.add.noftz.v4.bf16x2 [%rd2], {%r1, %r2, %r3, %r4}",
        ),
        operands="[%rd2], %rd3",
        missing=(
            "red.shared::cluster.add.u32",
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.inc.u32 [%r1], %r2, [%r3]",
        ),
    ),
}
