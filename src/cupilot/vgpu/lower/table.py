"""The opcode table: one entry per opcode, collected from the families.

An entry says how an opcode is lowered, how many leading operands it writes, and whether its result
may differ between lanes although its operands do not.  Adding an opcode means adding an entry to
its family's ``OPCODES``; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cupilot.vgpu.ptx.flow import Access, registers
from cupilot.vgpu.ptx.parse import PtxError
from cupilot.vgpu.ptx.syntax import Instruction, Operand, Pair

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

Lowering = Callable[["Emitter", Instruction], Any]


@dataclass(frozen=True)
class Opcode:
    """One opcode; ``section`` is its heading in the PTX ISA."""

    lower: Lowering
    section: str
    writes: int | Callable[[Instruction], int] = 1
    varies: Callable[[Instruction], bool] = lambda instruction: False


FAMILIES = (
    "arithmetic", "integer", "carry", "bits", "logic", "compare", "floating", "half", "convert", "move", "video",
    "memory", "atomic", "asynchronous", "tensor", "warp", "control", "call",
)  # fmt: skip
_TABLE: dict[str, Opcode] = {}


def opcodes() -> dict[str, Opcode]:
    """All opcodes of all families."""
    if not _TABLE:
        for family in FAMILIES:
            _TABLE.update(import_module(f"cupilot.vgpu.lower.{family}").OPCODES)
    return _TABLE


def lowering_of(instruction: Instruction, kernel: str) -> Lowering:
    """The lowering of an instruction, or an error naming opcode, kernel and line."""
    entry = opcodes().get(instruction.opcode)
    if entry is None:
        raise PtxError(f"unsupported on the virtual GPU: opcode {instruction.text}", kernel, instruction.line)
    return entry.lower


def written_operands(instruction: Instruction) -> tuple[Operand, ...]:
    """The leading operands that an instruction writes; of an opcode that is not known, the first."""
    entry = opcodes().get(instruction.opcode)
    count = entry.writes if entry is not None else 1
    return instruction.operands[: count if isinstance(count, int) else count(instruction)]


def access_of(instruction: Instruction) -> Access:
    head = written_operands(instruction)
    rest = instruction.operands[len(head) :]
    writes = tuple(name for operand in head for name in registers(operand))
    # an address is read even where it stands first (never the case for true destinations)
    reads = tuple(name for operand in rest for name in registers(operand))
    if any(isinstance(operand, Pair) for operand in head):
        writes = tuple(name for name in writes if name != "_")
    return Access(writes, reads)


def varies(instruction: Instruction) -> bool:
    names = [name for operand in instruction.operands for name in registers(operand)]
    if any(name.startswith(("%tid", "%laneid", "%lanemask")) for name in names):
        return True
    entry = opcodes().get(instruction.opcode)
    return entry.varies(instruction) if entry is not None else True
