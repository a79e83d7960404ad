"""Control flow and barriers (PTX ISA, "Control Flow Instructions", "bar, barrier").

Branches and exits end a block and are lowered with it (see `cupilot.vgpu.emit`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu import layout
from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import Instruction, Operand

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter


def _ends_block(e: Emitter, i: Instruction) -> None:
    raise AssertionError(f"{i.text} ends a block and is not lowered on its own")


def _barrier(e: Emitter, i: Instruction) -> bool:
    """Store a barrier's number, thread count and predicates in the warp's record; true when the warp must wait.

    The lanes of a warp run in lockstep, so ``bar.warp`` has nothing to do.  The second half of a reduction reads the
    result (see `split_blocks`).
    """
    if i.has("warp"):
        return False
    if i.guard:
        raise e.unsupported("a barrier with a guard")
    reduction = i.has("red")
    operands = list(i.operands)
    if i.has("result"):
        _barrier_result(e, i)
        return False
    predicate = operands.pop() if reduction else None
    if reduction:
        operands = operands[1:]
    number = _uniform_word(e, operands[0]) if operands else "0"
    threads = _uniform_word(e, operands[1]) if len(operands) > 1 else "0"
    if i.has("arrive"):
        e.call("void", "vg_arrive", f"ptr %c, ptr %w, i32 {number}, i32 {threads}", "ptr, ptr, i32, i32")
        return False
    e.store_field("%w", layout.WARP_BARRIER, "i32", number)
    e.store_field("%w", layout.WARP_BARRIER_THREADS, "i32", threads)
    if predicate is not None:
        e.store_field("%w", layout.WARP_VOTES, "i32", e.lane_bits(e.fetch(predicate, "i1", True)))
    return True


def _uniform_word(e: Emitter, operand: Operand) -> str:
    """An operand that must be the same in all lanes; if it may differ, the first active lane's value."""
    if e.operand_is_uniform(operand):
        return e.fetch(operand, "i32", False)
    first = e.call("i32", "llvm.cttz.i32", f"i32 {e.mask}, i1 false", "i32, i1")
    return e.op(f"extractelement <32 x i32> {e.fetch(operand, 'i32', True)}, i32 {first}")


def _barrier_result(e: Emitter, i: Instruction) -> None:
    target, number = i.operands[0], _uniform_word(e, i.operands[1])
    kind = 0 if i.has("popc") else 1 if i.has("or") else 2
    value = e.call("i32", "vg_barrier_result", f"ptr %c, i32 {number}, i32 {kind}", "ptr, i32, i32")
    if kind:
        e.put(target, e.op(f"trunc i32 {value} to i1"), "i1", False)
    else:
        e.put(target, value, "i32", False)


def _nothing(e: Emitter, i: Instruction) -> None:
    """No visible effect."""


def _sleep(e: Emitter, i: Instruction) -> None:
    """Its time is put down for the time model, and the scheduler is told at once that this warp is waiting."""
    e.line(f"store <32 x i32> {e.fetch(i.operands[0], 'i32', True)}, ptr %data, align 64")
    e.call("void", "vg_sleep", f"ptr %c, ptr %w, ptr %data, i32 {e.lane_mask()}", "ptr, ptr, ptr, i32")
    e.store_field("%w", layout.WARP_FUEL, "i32", str(layout.ASLEEP))


def _barrier_writes(i: Instruction) -> int:
    return 1 if i.has("result") else 0


ORDER = 160
OPCODES = {
    "bra": Opcode(_ends_block, writes=0, kind="branch", forms=("bra{,.uni} $END",), notes="also brx.idx"),
    "ret": Opcode(_ends_block, writes=0, kind="branch", forms=("ret{,.uni}",)),
    "exit": Opcode(_ends_block, writes=0, kind="branch", forms=("exit",)),
    "trap": Opcode(_ends_block, writes=0, kind="branch", forms=("trap",)),
    "bar": Opcode(
        _barrier,
        writes=_barrier_writes,
        orders=("global", "shared"),
        kind="barrier",
        forms=(
            "bar.sync 0",
            "bar.sync %r1, 64",
            "bar.arrive 1, 64",
            "bar.red.popc.u32 %r1, 0, %p1",
            "bar.red{.and,.or}.pred %p1, 0, !%p2",
            "bar.warp.sync -1",
        ),
        notes="a guarded barrier is refused",
    ),
    "barrier": Opcode(
        _barrier,
        writes=_barrier_writes,
        orders=("global", "shared"),
        kind="barrier",
        forms=(
            "barrier.sync{,.aligned} 0",
            "barrier.cta.sync 2, 64",
            "barrier.cta.arrive 1, 64",
            "barrier.red.popc.u32 %r1, 0, %p1",
            "barrier.cta.red{.and,.or}.aligned.pred %p1, 0, !%p2",
        ),
        notes="a guarded barrier is refused",
    ),
    "brkpt": Opcode(_nothing, writes=0, kind="branch", forms=("brkpt",), notes="no effect"),
    "nanosleep": Opcode(
        _sleep,
        writes=0,
        pipe="control",
        forms=("nanosleep.u32 %r1",),
        notes="no time passes while it runs; it counts for the modelled time",
    ),
    "setmaxnreg": Opcode(
        _nothing, writes=0, pipe="control", forms=("setmaxnreg.{inc,dec}.sync.aligned.u32 64",), notes="no effect"
    ),
    "griddepcontrol": Opcode(
        _nothing,
        writes=0,
        pipe="control",
        forms=("griddepcontrol.{wait,launch_dependents}",),
        notes="no effect: launches run one after the other",
    ),
    "pmevent": Opcode(_nothing, writes=0, pipe="control", forms=("pmevent 3",), notes="no effect"),
}
