"""Control flow and barriers (PTX ISA, "Control Flow Instructions", "bar, barrier").

Branches and exits are part of how a block ends (see `cupilot.vgpu.emit`); their entries here only
say that they exist and write nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import Instruction

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter


def _ends_block(e: Emitter, i: Instruction) -> None:
    raise AssertionError(f"{i.text} ends a block and is not lowered on its own")


def _barrier(e: Emitter, i: Instruction) -> str | None:
    """Give the barrier's number to the block's end; within a warp, lanes are in step already."""
    if i.has("warp"):
        return None
    if not i.has("sync") or len(i.operands) > 1 or i.guard:
        raise e.unsupported("a barrier with a thread count, a reduction or a guard")
    if not i.operands:
        return "0"
    if not e.operand_is_uniform(i.operands[0]):
        raise e.unsupported("a barrier whose number differs between lanes")
    return e.fetch(i.operands[0], "i32", False)


OPCODES = {
    "bra": Opcode(_ends_block, "bra", writes=0),
    "ret": Opcode(_ends_block, "ret", writes=0),
    "exit": Opcode(_ends_block, "exit", writes=0),
    "trap": Opcode(_ends_block, "trap", writes=0),
    "bar": Opcode(_barrier, "bar", writes=0),
    "barrier": Opcode(_barrier, "barrier", writes=0),
}
