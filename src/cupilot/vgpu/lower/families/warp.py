"""Exchange between the lanes of a warp (PTX ISA: shfl, vote, match, redux, activemask, elect).

The paths of a diverged warp run one after the other, so that an instruction cannot wait for lanes of its member mask
that are on another path: the active lanes of the mask act among themselves, and lanes with different masks form
separate groups.  A shuffle that reads from an absent lane (inactive, or not in the mask) gives an undefined value on
hardware and zero here; sums over a part of a warp that do not mask such values come out right.  The forms without
``.sync`` act among the active lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import Imm, Instruction, Operand, Pair, Reg

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

EVERYONE = Imm(0xFFFFFFFF)
SHUFFLES = ("up", "down", "bfly", "idx")


def _mode(e: Emitter, i: Instruction, modes: tuple[str, ...]) -> str:
    for mod in i.mods:
        if mod in modes:
            return mod
    raise e.unsupported(f"this form of {i.opcode}")


def _members(i: Instruction, place: int) -> Operand:
    """The member mask; the forms without .sync have none."""
    return i.operands[place] if len(i.operands) > place else EVERYONE


def _stage(e: Emitter, kind: str, offset: int, value: str) -> None:
    e.line(f"store <32 x {kind}> {value}, ptr {e.field_at('%data', offset)}, align 64")


def _constant(e: Emitter, operand: Operand) -> int | None:
    """The value of an operand that never changes: a literal, or a register that only holds one literal."""
    if isinstance(operand, Imm):
        return operand.value
    if not isinstance(operand, Reg) or not e.operand_is_uniform(operand):
        return None
    held = e.held.get(operand.name)
    if held is not None and held.value.isdigit():
        return int(held.value)
    sources = [i for b in e.flow.blocks for i in b.code if operand.name in e.flow.access(i).writes]
    if len(sources) != 1 or sources[0].opcode != "mov" or sources[0].guard:
        return None
    source = sources[0].operands[1]
    return source.value if isinstance(source, Imm) else None


# --- shuffles -------------------------------------------------------------------------------


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
    mode = _mode(e, i, SHUFFLES)
    if i.mods[-1] != "b32":
        raise e.unsupported("this form of shfl")
    target, source, b, c = i.operands[:4]
    members = _members(i, 4)
    known = [_constant(e, operand) for operand in (b, c, members)]
    value = e.fetch(source, "i32", True)
    if any(number is None for number in known):
        moved, inside = _shuffle_at_run_time(e, mode, value, (b, c, members))
    else:
        amount, clamp, mask = (int(number or 0) for number in known)
        lanes = [source_lane(mode, lane, amount, clamp) for lane in range(32)]
        moved = _permute(e, value, [other for other, _ in lanes], mask)
        inside = "<" + ", ".join(f"i1 {'true' if ok else 'false'}" for _, ok in lanes) + ">"
    e.put(target.first if isinstance(target, Pair) else target, moved, "i32", True)
    if isinstance(target, Pair):
        e.put(target.second, inside, "i1", True)


def _permute(e: Emitter, value: str, lanes: list[int], members: int) -> str:
    """Each lane's value from a lane known at compile time; zero where that lane is absent."""
    order = ", ".join(f"i32 {lane}" for lane in lanes)
    moved = e.op(f"shufflevector <32 x i32> {value}, <32 x i32> poison, <32 x i32> <{order}>")
    here = e.lane_mask()
    if members & 0xFFFFFFFF != 0xFFFFFFFF:
        here = e.op(f"and i32 {here}, {members & 0xFFFFFFFF}")
    there = e.op(f"bitcast i32 {_moved_bits(e, here, lanes)} to <32 x i1>")
    return e.op(f"select <32 x i1> {there}, <32 x i32> {moved}, <32 x i32> zeroinitializer")


def _moved_bits(e: Emitter, bits: str, lanes: list[int]) -> str:
    """Permute a word with one bit per lane: one step per distance or per lane that is read, whichever is fewer."""
    distances = sorted({other - lane for lane, other in enumerate(lanes)})
    sources = sorted(set(lanes))
    parts = []
    if len(distances) <= len(sources):
        for distance in distances:
            readers = sum(1 << lane for lane, other in enumerate(lanes) if other - lane == distance)
            verb = "lshr" if distance >= 0 else "shl"
            parts.append(e.op(f"and i32 {e.op(f'{verb} i32 {bits}, {abs(distance)}')}, {readers}"))
    else:
        for source in sources:
            readers = sum(1 << lane for lane, other in enumerate(lanes) if other == source)
            asked = e.op(f"icmp ne i32 {e.op(f'and i32 {bits}, {1 << source}')}, 0")
            parts.append(e.op(f"select i1 {asked}, i32 {readers}, i32 0"))
    result = parts[0]
    for part in parts[1:]:
        result = e.op(f"or i32 {result}, {part}")
    return result


def _shuffle_at_run_time(e: Emitter, mode: str, value: str, others: tuple[Operand, ...]) -> tuple[str, str]:
    """For lane numbers known only at run time, the runtime does the same as `source_lane`."""
    _stage(e, "i32", 0, value)
    for number, operand in enumerate(others, 1):
        _stage(e, "i32", 128 * number, e.fetch(operand, "i32", True))
    arguments = f"ptr %data, i32 {SHUFFLES.index(mode)}, i32 {e.lane_mask()}"
    bits = e.call("i32", "vg_shuffle", arguments, "ptr, i32, i32")
    moved = e.op("load <32 x i32>, ptr %data, align 64")
    return moved, e.op(f"bitcast i32 {bits} to <32 x i1>")


# --- masks ----------------------------------------------------------------------------------


def _present(e: Emitter, members: Operand) -> str:
    """For each lane, the active lanes in its member mask."""
    here = e.splat(e.lane_mask(), "i32")
    return e.op(f"and <32 x i32> {here}, {e.fetch(members, 'i32', True)}")


def _vote(e: Emitter, i: Instruction) -> None:
    mode = _mode(e, i, ("all", "any", "uni", "ballot"))
    bits, zero = e.shaped("i1", True), e.constant(0, "i32", True)
    here = _present(e, _members(i, 2))
    votes = e.splat(e.lane_bits(e.fetch(i.operands[1], "i1", True)), "i32")
    asked = e.op(f"and <32 x i32> {votes}, {here}")
    if mode == "ballot":
        e.put(i.operands[0], asked, "i32", True)
        return
    everyone = e.op(f"icmp eq <32 x i32> {asked}, {here}")
    if mode == "any":
        everyone = e.op(f"icmp ne <32 x i32> {asked}, {zero}")
    elif mode == "uni":
        nobody = e.op(f"icmp eq <32 x i32> {asked}, {zero}")
        everyone = e.op(f"or {bits} {everyone}, {nobody}")
    e.put(i.operands[0], everyone, "i1", True)


def _activemask(e: Emitter, i: Instruction) -> None:
    e.put(i.operands[0], e.splat(e.lane_mask(), "i32"), "i32", True)


def _elect(e: Emitter, i: Instruction) -> None:
    """The lowest lane is the leader; the ISA leaves the choice open."""
    target = i.operands[0]
    here = _present(e, _members(i, 1))
    negative = e.op(f"sub <32 x i32> {e.constant(0, 'i32', True)}, {here}")
    lowest = e.op(f"and <32 x i32> {here}, {negative}")
    below = e.op(f"sub <32 x i32> {lowest}, {e.constant(1, 'i32', True)}")
    e.put(target.first if isinstance(target, Pair) else target, e.intrinsic("ctpop", "i32", True, below), "i32", True)
    if isinstance(target, Pair):
        own = ", ".join(f"i32 {1 << lane}" for lane in range(32))
        e.put(target.second, e.op(f"icmp eq <32 x i32> {lowest}, <{own}>"), "i1", True)


def _match(e: Emitter, i: Instruction) -> None:
    mode, kind = _mode(e, i, ("any", "all")), i.mods[-1]
    if kind not in ("b32", "b64"):
        raise e.unsupported("this form of match")
    target, value = i.operands[:2]
    plain = f"i{kind[1:]}"
    _stage(e, "i64", 0, e.cast(e.fetch(value, plain, True), plain, "i64", True))
    _stage(e, "i32", 256, e.fetch(_members(i, 2), "i32", True))
    agreed = e.call("i32", "vg_match", f"ptr %data, i32 {int(mode == 'all')}, i32 {e.lane_mask()}", "ptr, i32, i32")
    lanes = e.op(f"load <32 x i32>, ptr {e.field_at('%data', 256)}, align 64")
    e.put(target.first if isinstance(target, Pair) else target, lanes, "i32", True)
    if isinstance(target, Pair):
        e.put(target.second, e.op(f"bitcast i32 {agreed} to <32 x i1>"), "i1", True)


# --- reductions -----------------------------------------------------------------------------

REDUCTIONS = {
    ("add", "u32"): "add_u32", ("add", "s32"): "add_u32", ("min", "u32"): "min_u32", ("min", "s32"): "min_s32",
    ("max", "u32"): "max_u32", ("max", "s32"): "max_s32", ("and", "b32"): "and_b32", ("or", "b32"): "or_b32",
    ("xor", "b32"): "xor_b32", ("min", "f32"): "min_f32", ("max", "f32"): "max_f32",
}  # fmt: skip


def _redux(e: Emitter, i: Instruction) -> None:
    form = (_mode(e, i, ("add", "min", "max", "and", "or", "xor")), i.mods[-1])
    if form not in REDUCTIONS:
        raise e.unsupported("this form of redux")
    target, value = i.operands[:2]
    _stage(e, "i32", 0, e.fetch(value, "i32", True))
    _stage(e, "i32", 128, e.fetch(_members(i, 2), "i32", True))
    arguments, signature = f"ptr %data, i32 {e.lane_mask()}", "ptr, i32"
    if form[1] == "f32":
        arguments += f", i32 {int(i.has('abs'))}, i32 {int(i.has('NaN'))}"
        signature += ", i32, i32"
    e.call("void", f"vg_redux_{REDUCTIONS[form]}", arguments, signature)
    e.put(target, e.op("load <32 x i32>, ptr %data, align 64"), "i32", True)


ORDER = 150
OPCODES = {
    "shfl": Opcode(
        _shuffle,
        section="shfl.sync",
        varies=True,
        pipe="lsu",
        kind="warp",
        forms=(
            "shfl.sync{.up,.down,.bfly,.idx}.b32",
            "shfl.sync.idx.b32 %r1|%p1, %r2, 3, 31, -1",
            "shfl{.up,.down,.bfly,.idx}.b32 %r1|%p1, %r2, %r3, %r4",
        ),
        operands="%r1, %r2, %r3, %r4, %r5",
    ),
    "vote": Opcode(
        _vote,
        section="vote.sync",
        varies=True,
        kind="warp",
        forms=("vote.sync{.all,.any,.uni}.pred", "vote.sync.ballot.b32 %r1, %p1, -1", "vote.ballot.b32 %r1, %p1"),
        operands="%p1, !%p2, %r1",
    ),
    "match": Opcode(
        _match,
        section="match.sync",
        varies=True,
        kind="warp",
        forms=("match.any.sync.{b32,b64}", "match.all.sync.{b32,b64} %r1|%p1, %rd2, %r3"),
        operands="%r1, %rd2, %r3",
    ),
    "redux": Opcode(
        _redux,
        section="redux.sync",
        varies=True,
        kind="warp",
        forms=(
            "redux.sync.{add,min,max}.{u32,s32}",
            "redux.sync.{and,or,xor}.b32",
            "redux.sync.{min,max}{,.abs}{,.NaN}.f32",
        ),
        operands="%r1, %r2, %r3",
    ),
    "activemask": Opcode(_activemask, varies=True, kind="warp", forms=("activemask.b32",), operands="%r1"),
    "elect": Opcode(
        _elect, section="elect.sync", varies=True, kind="warp", forms=("elect.sync",), operands="%r1|%p1, -1"
    ),
}
