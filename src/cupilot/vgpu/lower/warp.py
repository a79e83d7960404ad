"""Exchange between the lanes of a warp (PTX ISA: shfl.sync, vote.sync, activemask, bar.warp.sync)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import Imm, Instruction, Operand, Pair

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter


def source_lane(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The lane a shuffle reads, and whether it lies in range (PTX ISA, shfl: pseudo-code)."""
    bound, segment = c & 31, (c >> 8) & 31
    b &= 31
    maximum = (lane & segment) | (bound & ~segment & 31)
    minimum = lane & segment
    if mode == "up":
        other, inside = lane - b, lane - b >= maximum
    elif mode == "down":
        other, inside = lane + b, lane + b <= maximum
    elif mode == "bfly":
        other, inside = lane ^ b, (lane ^ b) <= maximum
    else:
        other = minimum | (b & ~segment & 31)
        inside = other <= maximum
    return (other if inside else lane), inside


def _shuffle(e: Emitter, i: Instruction) -> None:
    mode = next((m for m in i.mods if m in ("up", "down", "bfly", "idx")), "")
    if not mode or i.mods[-1] != "b32":
        raise e.unsupported("this form of shfl")
    target, source, b, c = i.operands[:4]
    value = e.fetch(source, "i32", True)
    if isinstance(b, Imm) and isinstance(c, Imm):
        lanes = [source_lane(mode, lane, b.value, c.value) for lane in range(32)]
        order = ", ".join(f"i32 {lane}" for lane, _ in lanes)
        moved = e.op(f"shufflevector <32 x i32> {value}, <32 x i32> poison, <32 x i32> <{order}>")
        inside = "<" + ", ".join(f"i1 {'true' if ok else 'false'}" for _, ok in lanes) + ">"
    else:
        moved, inside = _dynamic(e, mode, value, b, c)
    e.put(target.first if isinstance(target, Pair) else target, moved, "i32", True)
    if isinstance(target, Pair):
        e.put(target.second, inside, "i1", True)


def _dynamic(e: Emitter, mode: str, value: str, b: Operand, c: Operand) -> tuple[str, str]:
    """Lane numbers known only at run time: the runtime does what `source_lane` says."""
    for number, part in enumerate((value, e.fetch(b, "i32", True), e.fetch(c, "i32", True))):
        e.line(f"store <32 x i32> {part}, ptr {e.field_at('%data', 128 * number)}, align 64")
    code = ("up", "down", "bfly", "idx").index(mode)
    bits = e.call("i32", "vg_shfl", f"ptr %data, i32 {code}", "ptr, i32")
    moved = e.op("load <32 x i32>, ptr %data, align 64")
    return moved, e.op(f"bitcast i32 {bits} to <32 x i1>")


def _vote(e: Emitter, i: Instruction) -> None:
    """Lanes that execute it with different member masks vote in groups of their own."""
    mode = next((m for m in i.mods if m in ("all", "any", "uni", "ballot")), "")
    full, bits = e.shaped("i32", True), e.shaped("i1", True)
    here = e.splat(e.lane_mask(), "i32")
    if len(i.operands) > 2:
        here = e.op(f"and {full} {here}, {e.fetch(i.operands[2], 'i32', True)}")
    votes = e.splat(e.lane_bits(e.fetch(i.operands[1], "i1", True)), "i32")
    asked = e.op(f"and {full} {votes}, {here}")
    if mode == "ballot":
        e.put(i.operands[0], asked, "i32", True)
        return
    everyone = e.op(f"icmp eq {full} {asked}, {here}")
    if mode == "any":
        everyone = e.op(f"icmp ne {full} {asked}, {e.constant(0, 'i32', True)}")
    elif mode == "uni":
        nobody = e.op(f"icmp eq {full} {asked}, {e.constant(0, 'i32', True)}")
        everyone = e.op(f"or {bits} {everyone}, {nobody}")
    e.put(i.operands[0], everyone, "i1", True)


def _activemask(e: Emitter, i: Instruction) -> None:
    e.put(i.operands[0], e.splat(e.lane_mask(), "i32"), "i32", True)


OPCODES = {
    "shfl": Opcode(_shuffle, "shfl.sync", varies=lambda i: True),
    "vote": Opcode(_vote, "vote.sync", varies=lambda i: True),
    "activemask": Opcode(_activemask, "activemask", varies=lambda i: True),
}
