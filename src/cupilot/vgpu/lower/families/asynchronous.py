"""Asynchronous copies and their barriers (PTX ISA: cp.async, cp.async.bulk, cp.reduce.async.bulk, mbarrier).

The runtime checks and counts a copy when it is issued, and moves its data when a warp waits for it.  Covered: all of
``cp.async`` and ``mbarrier``, ``cp.async.bulk`` and ``cp.reduce.async.bulk`` between global memory and the block's own
shared memory.  ``try_wait`` never suspends: a loop around it lets other warps run.  Cache operators, prefetch sizes,
eviction hints, memory orders and scopes have no effect.  Not covered: multicast and masked bulk copies, ``st.async``,
``red.async`` and the shared memory of other blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.families.atomic import OPERATIONS
from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import TYPE_BYTES, Imm, Instruction, Not, Operand, Reg

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

SHARED = ("shared", "shared::cta", "shared::cluster")
# byte offsets in %data of the second and third array with one element per lane
SECOND, THIRD = 256, 512
ATOM = "ptr, ptr, i32, ptr, i32, ptr, i32, i32, i32"
_HINTS = frozenset(("ca", "cg", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"))


def _stage(e: Emitter, operand: Operand | None, kind: str, place: int, otherwise: int = 0) -> str:
    """Store an operand's lanes to ``%data`` at a byte offset; without an operand, a number."""
    value = e.constant(otherwise, kind, True) if operand is None else e.fetch(operand, kind, True)
    return _store(e, value, kind, place)


def _store(e: Emitter, value: str, kind: str, place: int) -> str:
    to = e.field_at("%data", place)
    e.line(f"store <32 x {kind}> {value}, ptr {to}, align 64")
    return to


def _long_address(e: Emitter, operand: Operand, shared: bool) -> str:
    """Addresses as 64 bits; those of shared memory have 32."""
    if not shared:
        return e.address(operand, "i64", True)
    return e.op(f"zext <32 x i32> {e.address(operand, 'i32', True)} to <32 x i64>")


def _number(e: Emitter, operand: Operand) -> int:
    if not isinstance(operand, Imm):
        raise e.unsupported("a count that is not a constant")
    return operand.value


# --- copies of 4, 8 or 16 bytes ---------------------------------------------------------------


def _copy(e: Emitter, i: Instruction) -> None:
    mods = i.mods[1:]
    if mods[:1] == ("bulk",):
        _bulk(e, i, mods[1:])
    elif mods == ("commit_group",):
        e.call("void", "vg_cp_async_commit", f"ptr %c, ptr %w, i32 {e.lane_mask()}", "ptr, ptr, i32")
    elif mods in (("wait_group",), ("wait_all",)):
        waits_for_all = mods == ("wait_all",)
        allowed = 0 if waits_for_all else _number(e, i.operands[0])
        e.call(
            "void", "vg_cp_async_wait",
            f"ptr %c, ptr %w, i32 {e.lane_mask()}, i32 {allowed}, i32 {int(waits_for_all)}", "ptr, ptr, i32, i32, i32",
        )  # fmt: skip
    elif mods[:2] == ("mbarrier", "arrive"):
        head = _barrier_head(e, i, i.operands[0])
        e.call("void", "vg_cp_async_arrive", f"{head}, i32 {int(not i.has('noinc'))}", f"{BARRIER}, i32")
    else:
        _copy_elements(e, i, mods)


def _copy_elements(e: Emitter, i: Instruction, mods: tuple[str, ...]) -> None:
    plain = [mod for mod in mods if mod not in _HINTS]
    if len(plain) != 2 or plain[0] not in SHARED[:2] or plain[1] != "global":
        raise e.unsupported("an asynchronous copy of this form")
    target, source, size, *rest = i.operands
    width = _number(e, size)
    if width not in (4, 8, 16):
        raise e.unsupported(f"an asynchronous copy of {width} bytes")
    if i.has("L2::cache_hint"):
        rest.pop()
    places = _store(e, e.address(source, "i64", True), "i64", 0), _stage_source_bytes(e, rest, width)
    e.line(f"store <32 x i32> {e.address(target, 'i32', True)}, ptr %addresses, align 64")
    load, store = e.site("global", width, store=False), e.site("shared", width, store=True)
    e.call(
        "void", "vg_cp_async",
        f"ptr %c, ptr %w, i32 {load}, i32 {store}, ptr %addresses, ptr {places[0]}, ptr {places[1]}, "
        f"i32 {e.lane_mask()}, i32 {width}",
        "ptr, ptr, i32, i32, ptr, ptr, ptr, i32, i32",
    )  # fmt: skip


def _stage_source_bytes(e: Emitter, rest: list[Operand], width: int) -> str:
    """Store how many bytes are read: all, a given number, or none where a predicate is true."""
    if not rest or not _is_predicate(e, rest[0]):
        return _stage(e, rest[0] if rest else None, "i32", SECOND, otherwise=width)
    ignored = e.fetch(rest[0], "i1", True)
    value = e.op(f"select <32 x i1> {ignored}, <32 x i32> zeroinitializer, <32 x i32> splat (i32 {width})")
    return _store(e, value, "i32", SECOND)


def _is_predicate(e: Emitter, operand: Operand) -> bool:
    if isinstance(operand, Not):
        return True
    return isinstance(operand, Reg) and e.function.registers.get(operand.name) == "pred"


# --- copies of many bytes ---------------------------------------------------------------------


def _bulk(e: Emitter, i: Instruction, mods: tuple[str, ...]) -> None:
    if mods == ("commit_group",):
        e.call("void", "vg_bulk_commit", f"ptr %c, ptr %w, i32 {e.lane_mask()}", "ptr, ptr, i32")
    elif mods[:1] == ("wait_group",):
        allowed = _number(e, i.operands[0])
        e.call("void", "vg_bulk_wait", f"ptr %c, ptr %w, i32 {e.lane_mask()}, i32 {allowed}", "ptr, ptr, i32, i32")
    elif mods[:1] != ("prefetch",):  # a hint
        _bulk_copy(e, i, mods, "null", 0)


def _reduce(e: Emitter, i: Instruction) -> None:
    """``cp.reduce.async.bulk``: the elements go through the runtime's atomic operation, as those of ``red`` do."""
    mods = tuple(mod for mod in i.mods[3:] if mod != "noftz")
    operation, kind = mods[-2:]
    if i.mods[1:3] != ("async", "bulk") or kind not in OPERATIONS.get(operation, {}) or operation in ("cas", "exch"):
        raise e.unsupported("a reduction of this form")
    if TYPE_BYTES[kind] > 8:
        raise e.unsupported(f"a reduction of .{kind}")
    name = f"vg_atom_{operation}_{OPERATIONS[operation][kind]}"
    e.declared.setdefault(name, f"declare void @{name}({ATOM})")
    _bulk_copy(e, i, mods[:-2], f"@{name}", TYPE_BYTES[kind])


def _bulk_copy(e: Emitter, i: Instruction, mods: tuple[str, ...], operation: str, item: int) -> None:
    plain = tuple(mod for mod in mods if mod not in _HINTS)
    with_barrier = plain[2:] == ("mbarrier::complete_tx::bytes",)
    known = plain[:1] and plain[0] in (*SHARED, "global") and (with_barrier or plain[2:] == ("bulk_group",))
    if not known or len(plain) != 3 or plain[1] not in (*SHARED, "global"):
        raise e.unsupported("a bulk copy of this form")
    to_shared, from_shared = plain[0] in SHARED, plain[1] in SHARED
    if to_shared != with_barrier or not (to_shared or from_shared):
        raise e.unsupported("a bulk copy between these spaces")
    target, source, size, *rest = i.operands
    e.line(f"store <32 x i64> {_long_address(e, target, to_shared)}, ptr %addresses, align 64")
    sources = _store(e, _long_address(e, source, from_shared), "i64", 0)
    sizes = _stage(e, size, "i32", SECOND)
    barriers = _store(e, e.address(rest[0], "i32", True), "i32", THIRD) if with_barrier else "null"
    load = e.site("shared" if from_shared else "global", 16, store=False)
    store = e.site("shared" if to_shared else "global", 16, store=True)
    e.call(
        "void", "vg_bulk_copy",
        f"ptr %c, ptr %w, i32 {load}, i32 {store}, ptr %addresses, ptr {sources}, ptr {sizes}, ptr {barriers}, "
        f"i32 {e.lane_mask()}, i32 {int(to_shared) + 2 * int(from_shared)}, i32 {int(with_barrier)}, "
        f"ptr {operation}, i32 {item}",
        "ptr, ptr, i32, i32, ptr, ptr, ptr, ptr, i32, i32, i32, ptr, i32",
    )  # fmt: skip


def _any_copy(e: Emitter, i: Instruction) -> None:
    if i.has("tensor") and not i.has("prefetch"):
        raise e.unsupported("a copy through a tensor map")
    if i.mods[:1] == ("async",):
        _copy(e, i)
    elif i.mods[:1] == ("reduce",):
        _reduce(e, i)
    else:
        raise e.unsupported("a copy of this form")


# --- barriers in shared memory ----------------------------------------------------------------

BARRIER = "ptr, ptr, i32, ptr, i32, i32"


def _barrier_head(e: Emitter, i: Instruction, address: Operand) -> str:
    """The first arguments of every barrier function; without a state space, addresses are generic."""
    shared = any(mod in SHARED for mod in i.mods)
    e.line(f"store <32 x i64> {_long_address(e, address, shared)}, ptr %addresses, align 64")
    site = e.site("shared", 8, store=True, atomic=True)
    return f"ptr %c, ptr %w, i32 {site}, ptr %addresses, i32 {e.lane_mask()}, i32 {int(not shared)}"


def _barrier(e: Emitter, i: Instruction) -> None:
    step = i.mods[0]
    if step == "init":
        head = _barrier_head(e, i, i.operands[0])
        counts = _stage(e, i.operands[1], "i32", 0)
        e.call("void", "vg_mbarrier_init", f"{head}, ptr {counts}", f"{BARRIER}, ptr")
    elif step == "inval":
        e.call("void", "vg_mbarrier_inval", _barrier_head(e, i, i.operands[0]), BARRIER)
    elif step in ("expect_tx", "complete_tx"):
        head = _barrier_head(e, i, i.operands[0])
        sizes = _stage(e, i.operands[1], "i32", 0)
        complete = int(step == "complete_tx")
        e.call("void", "vg_mbarrier_bytes", f"{head}, ptr {sizes}, i32 {complete}", f"{BARRIER}, ptr, i32")
    elif step in ("arrive", "arrive_drop"):
        _arrive(e, i)
    elif step in ("test_wait", "try_wait"):
        _test(e, i)
    elif step == "pending_count":
        _pending_count(e, i)
    else:
        raise e.unsupported("a barrier operation of this form")


def _arrive(e: Emitter, i: Instruction) -> None:
    result, address, *rest = i.operands
    expects = i.has("expect_tx")
    head = _barrier_head(e, i, address)
    counts = _stage(e, None if expects or not rest else rest[0], "i32", 0, otherwise=1)
    sizes = _stage(e, rest[0] if expects else None, "i32", SECOND)
    states = e.field_at("%data", THIRD)
    e.call(
        "void", "vg_mbarrier_arrive",
        f"{head}, ptr {counts}, ptr {sizes}, ptr {states}, i32 {int(i.mods[0] == 'arrive_drop')}, "
        f"i32 {int(not i.has('noComplete'))}",
        f"{BARRIER}, ptr, ptr, ptr, i32, i32",
    )  # fmt: skip
    e.put(result, e.op(f"load <32 x i64>, ptr {states}, align 64"), "i64", True)


def _test(e: Emitter, i: Instruction) -> None:
    """Whether a phase is complete; its parity or the state that an arrival returned identifies it."""
    result, address, which = i.operands[:3]  # the limit on the waiting time is ignored
    head = _barrier_head(e, i, address)
    if i.has("parity"):
        phases = _stage(e, which, "i32", 0)
    else:
        high = e.op(f"lshr <32 x i64> {e.fetch(which, 'i64', True)}, splat (i64 63)")
        phases = _store(e, e.op(f"trunc <32 x i64> {high} to <32 x i32>"), "i32", 0)
    lanes = e.call("i32", "vg_mbarrier_test", f"{head}, ptr {phases}", f"{BARRIER}, ptr")
    vector = isinstance(result, Reg) and e.is_vector(result.name)
    over = e.op(f"bitcast i32 {lanes} to <32 x i1>") if vector else e.op(f"icmp ne i32 {lanes}, 0")
    e.put(result, over, "i1", vector)


def _pending_count(e: Emitter, i: Instruction) -> None:
    """Pending arrivals of the phase before the one that returned the state: the low 20 bits of the state."""
    result, state = i.operands
    vector = isinstance(result, Reg) and e.is_vector(result.name)
    low = e.cast(e.fetch(state, "i64", vector), "i64", "i32", vector)
    value = e.op(f"and {e.shaped('i32', vector)} {low}, {e.constant((1 << 20) - 1, 'i32', vector)}")
    e.put(result, value, "i32", vector)


def _is_copy(i: Instruction) -> bool:
    """Not the commit of a group, a wait, an arrival at a barrier or a prefetch."""
    return not any(mod in ("commit_group", "wait_group", "wait_all", "mbarrier", "prefetch") for mod in i.mods[:3])


def _barrier_writes(i: Instruction) -> int:
    return int(i.mods[0] in ("arrive", "arrive_drop", "test_wait", "try_wait", "pending_count"))


ORDER = 130
OPCODES = {
    "cp": Opcode(
        _any_copy,
        section="cp.async",
        writes=0,
        orders=("shared",),
        round_trip=_is_copy,
        kind="copy",
        forms=(
            "cp.async{.ca,.cg}.shared.global{,.L2::cache_hint}{,.L2::64B,.L2::128B,.L2::256B}"
            " [%r1], [%rd1], 16, %r2, %rd2",
            "cp.async.ca.shared.global [%r1], [%rd1], {4,8,16}",
            "cp.async.ca.shared.global [%r1], [%rd1], 4, %p1",
            "cp.async.commit_group",
            "cp.async.wait_group 1",
            "cp.async.wait_all",
            "cp.async.mbarrier.arrive{,.noinc}.shared.b64 [%r1]",
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3]",
            "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2",
            "cp.async.bulk.commit_group",
            "cp.async.bulk.wait_group{,.read} 0",
            "cp.async.bulk.prefetch.L2.global [%rd1], %r2",
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.{add,min,max}.{u32,s32,u64} [%rd1], [%r1], %r2",
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add{.f32,.f64,.noftz.f16,.noftz.bf16}"
            " [%rd1], [%r1], %r2",
        ),
        missing=(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
            " [%r1], [%rd1], %r2, [%r3], %rs1",
        ),
    ),
    "mbarrier": Opcode(
        _barrier,
        writes=_barrier_writes,
        varies=lambda i: i.mods[0].startswith("arrive"),  # lanes arrive one after the other; a test is the same for all
        orders=("shared",),
        kind="atomic",
        forms=(
            "mbarrier.init{,.shared,.shared::cta}.b64 [%rd1], %r1",
            "mbarrier.inval{,.shared}.b64 [%rd1]",
            "mbarrier.{expect_tx,complete_tx}.relaxed.cta.shared::cta.b64 [%rd1], %r1",
            "mbarrier.{arrive,arrive_drop}{,.release.cta}{,.shared::cta}.b64 %rd2, [%rd1], %r1",
            "mbarrier.{arrive,arrive_drop}.noComplete.shared.b64 %rd2, [%rd1], %r1",
            "mbarrier.arrive.expect_tx{,.release.cta}.shared::cta.b64 %rd2, [%rd1], %r1",
            "mbarrier.{test_wait,try_wait}{,.acquire.cta}{,.shared::cta}.b64 %p1, [%rd1], %rd2",
            "mbarrier.{test_wait,try_wait}.parity.shared.b64 %p1, [%rd1], %r1",
            "mbarrier.pending_count.b64 %r1, %rd1",
        ),
    ),
}
