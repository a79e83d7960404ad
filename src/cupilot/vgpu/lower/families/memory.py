"""Loads, stores and fences (PTX ISA: ld, ldu, st, prefetch, membar, fence).

The runtime checks, counts and moves the data of all lanes at once, except for kernel parameters, which are read
directly.  Cache operators and eviction hints have no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu import layout
from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import TYPE_BYTES, Address, Instruction, Operand, Reg, Symbol, items_of

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter
    from cupilot.vgpu.emit.groups import Group

SPACES = ("global", "shared", "const", "local", "param")
RAW = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
# bytes of an element and elements of a vector that the runtime can move: 16 bytes at most
FORMS = frozenset((w, v) for w in RAW for v in (1, 2, 4) if w * v <= 16)


def space_of(instruction: Instruction) -> str:
    """The state space; without one the address is generic."""
    for mod in instruction.mods:
        base = mod.split("::")[0]
        if base in SPACES:
            return base
    return "generic"


def _from_global(i: Instruction) -> bool:
    return space_of(i) in ("global", "generic")


def _stored_spaces(i: Instruction) -> tuple[str, ...]:
    space = space_of(i)
    return ("global", "shared") if space == "generic" else (space,)


def _element(e: Emitter, i: Instruction) -> tuple[str, int]:
    kind = i.mods[-1]
    if kind not in TYPE_BYTES or TYPE_BYTES[kind] not in RAW:
        raise e.unsupported(f"the type .{kind}")
    return kind, TYPE_BYTES[kind]


def _check_form(e: Emitter, space: str, width: int, count: int, spaces: tuple[str, ...]) -> None:
    if space not in spaces:
        raise e.unsupported(f"this access to .{space} memory")
    if (width, count) not in FORMS:
        raise e.unsupported(f"an access of {count} elements of {width} bytes")


def _load(e: Emitter, i: Instruction) -> None:
    kind, width = _element(e, i)
    space = space_of(i)
    items = items_of(i.operands[0])
    if space == "param":
        _load_param(e, i, items, kind, width)
        return
    if id(i) in e.groups:
        group, number = e.groups[id(i)]
        if not group.emitted:
            _load_group(e, group)
        _put_items(e, items, kind, width, group.emitted, number * width * len(items))
        return
    _access(e, f"vg_ld_{space}", i.operands[1], space, width, len(items), store=False)
    _put_items(e, items, kind, width)


def _load_group(e: Emitter, group: Group) -> None:
    """Emit all loads of a group in place of the first one, into a buffer of their own."""
    size = group.width * group.count
    leader = e.site("group", size, store=False)
    words = [len(group.loads)]
    for load, offset in zip(group.loads, group.offsets, strict=True):
        words += [offset, e.member_site(load, size, leader)]
    table, group.emitted = e.table(words), e.buffer(32 * size * len(group.loads))
    _stage_addresses(e, Address(group.base), "shared")
    e.call(
        "void", f"vg_ld_group_{group.width}_{group.count}",
        f"ptr %c, ptr %w, i32 {leader}, ptr %addresses, i32 {e.mask}, ptr {group.emitted}, ptr {table}",
        "ptr, ptr, i32, ptr, i32, ptr, ptr",
    )  # fmt: skip


def _access(e: Emitter, function: str, address: Operand, space: str, width: int, count: int, *, store: bool) -> None:
    """Let the runtime move the data of all lanes between memory and ``%data``."""
    _check_form(e, space, width, count, (*SPACES, "generic"))
    _stage_addresses(e, address, space)
    site = e.site(space, width * count, store=store)
    e.call(
        "void", f"{function}_{width}_{count}",
        f"ptr %c, ptr %w, i32 {site}, ptr %addresses, i32 {e.lane_mask()}, ptr %data",
        "ptr, ptr, i32, ptr, i32, ptr",
    )  # fmt: skip


def _put_items(
    e: Emitter, items: tuple[Operand, ...], kind: str, width: int, buffer: str = "%data", start: int = 0
) -> None:
    raw = RAW[width]
    for number, item in enumerate(items):
        place = e.field_at(buffer, (start + number * width) * 32)
        value = e.op(f"load <32 x {raw}>, ptr {place}, align {min(32 * width, 64)}")
        _put_loaded(e, item, value, kind, width, vector=True)


def _put_loaded(e: Emitter, item: Operand, value: str, kind: str, width: int, *, vector: bool) -> None:
    raw = RAW[width]
    if isinstance(item, Reg) and item.name != "_":
        declared = TYPE_BYTES[e.function.registers[item.name]]
        if declared > width and kind.startswith("s"):
            wide = RAW[declared]
            value = e.op(f"sext {e.shaped(raw, vector)} {value} to {e.shaped(wide, vector)}")
            raw = wide
    e.put(item, value, raw, vector)


def _load_param(e: Emitter, i: Instruction, items: tuple[Operand, ...], kind: str, width: int) -> None:
    address = i.operands[1]
    if not isinstance(address, Address) or not isinstance(address.base, Symbol):
        # a kernel's parameters are addressed like constants
        _access(e, "vg_ld_const", address, "const", width, len(items), store=False)
        _put_items(e, items, kind, width)
        return
    if _in_frame(e, address):
        _access(e, "vg_ld_local", address, "param", width, len(items), store=False)
        _put_items(e, items, kind, width)
        return
    place = {param.name: param.offset for param in e.function.params}.get(address.base.name)
    if place is None:
        raise e.unsupported(f"the parameter {address.base.name}")
    first = place + address.base.offset + address.offset
    if first < 0 or first + width * len(items) > e.function.param_bytes:
        raise e.unsupported(f"a read beyond the parameters, at {first} of {e.function.param_bytes} bytes")
    base = e.load_field("%c", layout.CTX_PARAMS, "ptr")
    for number, item in enumerate(items):
        offset = first + number * width
        value = e.op(f"load {RAW[width]}, ptr {e.field_at(base, offset)}, align 1")
        _put_loaded(e, item, value, kind, width, vector=False)


def _in_frame(e: Emitter, address: Operand) -> bool:
    """Whether an address is that of an argument or result of a called function, which are in local memory."""
    base = address.base if isinstance(address, Address) else None
    return isinstance(base, Symbol) and base.name in e.frame.offsets


def _stage_addresses(e: Emitter, operand: Operand, space: str) -> None:
    kind = "i32" if space == "shared" else "i64"
    e.line(f"store <32 x {kind}> {e.address(operand, kind, True)}, ptr %addresses, align 64")


def _store(e: Emitter, i: Instruction) -> None:
    _, width = _element(e, i)
    space = space_of(i)
    items = items_of(i.operands[1])
    if space == "const" or i.has("async"):
        raise e.unsupported("a store to constant memory" if space == "const" else "an asynchronous store")
    raw = RAW[width]
    if i.has("release"):
        _fence(e, i)
    for number, item in enumerate(items):
        place = e.field_at("%data", number * width * 32)
        e.line(f"store <32 x {raw}> {e.fetch(item, raw, True)}, ptr {place}, align {min(32 * width, 64)}")
    if space == "param" and not (
        isinstance(base := getattr(i.operands[0], "base", None), Symbol) and base.name in e.frame.offsets
    ):
        raise e.unsupported("a store to this parameter")
    function = "vg_st_local" if space == "param" else f"vg_st_{space}"
    _access(e, function, i.operands[0], space, width, len(items), store=True)


def _fence(e: Emitter, i: Instruction) -> None:
    """Accesses are in order here; a fence tells the race checks that other threads may read what was written."""
    e.call("void", "vg_publish", "ptr %c, ptr %w", "ptr, ptr")


def _nothing(e: Emitter, i: Instruction) -> None:
    """A prefetch has no effect on the modelled caches."""


ORDER = 110
OPCODES = {
    "ld": Opcode(
        _load,
        varies=lambda i: space_of(i) != "param",
        round_trip=_from_global,
        kind=lambda i: "parameter" if space_of(i) == "param" else "load",
        forms=(
            "ld{,.weak,.volatile,.relaxed.gpu,.acquire.sys}{,.global,.shared,.local}"
            ".{b8,u8,s8,b16,u16,s16,b32,u32,s32,b64,u64,s64,f32,f64}",
            "ld.global{.ca,.cg,.cs,.lu,.cv,.nc,.nc.L1::no_allocate.L2::128B}.u32",
            "ld.const.{u8,u32,u64}",
            "ld.param.u32 %r1, [p1]",
            "ld{,.global,.shared,.local}.v2.{u8,u16,u32,u64} {%rd1, %rd2}, [%rd3]",
            "ld{,.global,.shared,.local}.v4.{u8,u16,u32} {%r1, %r2, %r3, %r4}, [%rd3]",
            "ld.global.u32 %r1, [variable+4]",
            "ld.shared.u32 %r1, [tile+4]",
        ),
        operands="%rd1, [%rd2+8]",
        missing=("ld.global.v8.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, [%rd1]", "ld.global.b128 %q1, [%rd1]"),
        notes="cache operators and eviction hints change nothing; no distributed shared memory",
    ),
    "ldu": Opcode(
        _load,
        varies=True,
        kind="load",
        forms=("ldu.global.{u8,s8,u16,s16,u32,s32,u64,s64,f32,f64}", "ldu.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd3]"),
        operands="%rd1, [%rd2]",
    ),
    "st": Opcode(
        _store,
        writes=0,
        orders=_stored_spaces,
        pipe="lsu",
        kind=lambda i: "parameter" if space_of(i) == "param" else "store",
        forms=(
            "st{,.weak,.volatile,.relaxed.gpu,.release.sys}{,.global,.shared,.local}"
            ".{b8,u8,s8,b16,u16,s16,b32,u32,s32,b64,u64,s64,f32,f64}",
            "st.global{.wb,.cg,.cs,.wt}.u32",
            "st{,.global,.shared,.local}.v2.{u8,u16,u32,u64} [%rd3], {%rd1, %rd2}",
            "st{,.global,.shared,.local}.v4.{u8,u16,u32} [%rd3], {%r1, %r2, %r3, %r4}",
        ),
        operands="[%rd2+8], %rd1",
        missing=(
            "st.global.v8.f32 [%rd1], {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}",
            "st.global.b128 [%rd1], %q1",
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r2, [%r3]",
        ),
        notes="cache operators and eviction hints change nothing; no distributed shared memory",
    ),
    "membar": Opcode(_fence, writes=0, orders=("shared",), kind="fence", forms=("membar.{cta,gl,sys}",)),
    "fence": Opcode(
        _fence,
        writes=0,
        orders=("shared",),
        kind="fence",
        forms=("fence{,.sc,.acq_rel}.{cta,gpu,sys}", "fence.proxy.async", "fence.mbarrier_init.release.cluster"),
    ),
    "prefetch": Opcode(
        _nothing,
        writes=0,
        kind="prefetch",
        forms=("prefetch{,.global,.local}.{L1,L2}",),
        operands="[%rd1]",
        notes="no effect",
    ),
    "prefetchu": Opcode(
        _nothing, writes=0, kind="prefetch", forms=("prefetchu.L1",), operands="[%rd1]", notes="no effect"
    ),
}
