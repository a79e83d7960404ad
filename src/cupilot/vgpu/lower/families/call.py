"""Calls (PTX ISA, "Parameter Passing" and "call").

A call of another function of the module ends a basic block (see `cupilot.vgpu.emit.calls`); the runtime executes
printf, assert, malloc and free directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import Instruction

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter


def _call(e: Emitter, i: Instruction) -> None:
    from cupilot.vgpu.emit.calls import runtime_call

    if i.has("result"):
        e.emit_return(i)
    else:
        runtime_call(e, i)


ORDER = 170
OPCODES = {
    "call": Opcode(
        _call,
        writes=0,
        orders=("shared",),
        kind="branch",
        forms=("call{,.uni} device, (p2)",),
        notes="also through pointers with a prototype, recursively; vprintf, __assertfail, malloc, free",
    ),
}
