"""The opcode table: one entry per opcode, collected from the modules of `cupilot.vgpu.lower.families`.

Adding an opcode means adding an entry to its family's ``OPCODES``; nothing else changes.  (Only an opcode that ends a
basic block is also part of `cupilot.vgpu.ptx.flow`.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cupilot.vgpu.lower import families as package
from cupilot.vgpu.lower.pipes import kind_by_type
from cupilot.vgpu.ptx.flow import Access, registers
from cupilot.vgpu.ptx.parse import PtxError
from cupilot.vgpu.ptx.syntax import Instruction, Operand, Pair

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

Lowering = Callable[["Emitter", Instruction], Any]


@dataclass(frozen=True, eq=False)
class Opcode:
    """One opcode.  What depends on the modifiers is a function of the instruction.

    Translation:
        lower: writes the LLVM IR of one instruction.
        section: heading in the PTX ISA where that is not the opcode itself.
        writes: how many leading operands are results.
        varies: results may differ between lanes although the operands do not.
        orders: state spaces (``global``, ``shared``) whose loads stay on their side of it.
    Cost (docs/counters.md):
        kind: counted as ``opcodes_KIND``; ``float`` or ``integer`` by default.
        pipe: counted as ``instructions_PIPE``; by default the usual one of the kind (`pipes`).
        flop: floating-point operations of a lane; packed types count twice.
        tensor_flop: type and operations of a matrix product, for one warp.
        round_trip: fetches from global memory; later instructions wait for it.
    Coverage page (a test translates its forms):
        forms: ``{a,b}`` stands for one of several, ``{,a}`` for a part that may be missing.
        operands: those of the forms that have none.
        before: code that the forms need in front of them.
        missing: forms of PTX that are refused.
        notes: further remarks.
    """

    lower: Lowering
    _: KW_ONLY
    section: str = ""
    writes: int | Callable[[Instruction], int] = 1
    varies: bool | Callable[[Instruction], bool] = False
    orders: tuple[str, ...] | Callable[[Instruction], tuple[str, ...]] = ()
    kind: str | Callable[[Instruction], str] = kind_by_type
    pipe: str | Callable[[Instruction], str] = ""
    flop: int = 0
    tensor_flop: Callable[[Instruction], tuple[str, int] | None] = lambda instruction: None
    round_trip: Callable[[Instruction], bool] = lambda instruction: False
    forms: tuple[str, ...]
    operands: str = ""
    before: str = ""
    missing: tuple[str, ...] = ()
    notes: str = ""


def _unknown(e: Emitter, i: Instruction) -> None:
    raise PtxError(f"unsupported on the virtual GPU: opcode {i.text}", e.function.name, i.line)


UNKNOWN = Opcode(_unknown, varies=True, forms=())


@cache
def families() -> tuple[ModuleType, ...]:
    """All families, in the order of the coverage page."""
    paths = [path for folder in package.__path__ for path in Path(folder).glob("[!_]*.py")]
    found = [import_module(f"{package.__name__}.{path.stem}") for path in paths]
    return tuple(sorted(found, key=lambda family: (family.ORDER, family.__name__)))


@cache
def opcodes() -> dict[str, Opcode]:
    """All entries of all families."""
    table: dict[str, Opcode] = {}
    for family in families():
        if twice := table.keys() & family.OPCODES.keys():
            raise ValueError(f"{family.__name__} has a second entry for {', '.join(sorted(twice))}")
        table |= family.OPCODES
    return table


def entry_of(instruction: Instruction) -> Opcode:
    """The entry of an instruction, or `UNKNOWN`, which cannot be lowered."""
    return _entry(instruction.opcode, instruction.mods)


@lru_cache(maxsize=4096)
def _entry(opcode: str, mods: tuple[str, ...]) -> Opcode:
    """The entry with the longest name that an instruction begins with."""
    names = (".".join((opcode, *mods[:count])) for count in range(len(mods), -1, -1))
    return next((opcodes()[name] for name in names if name in opcodes()), UNKNOWN)


def written_operands(instruction: Instruction) -> tuple[Operand, ...]:
    """The leading operands that an instruction writes."""
    count = entry_of(instruction).writes
    return instruction.operands[: count if isinstance(count, int) else count(instruction)]


def access_of(instruction: Instruction) -> Access:
    head = written_operands(instruction)
    rest = instruction.operands[len(head) :]
    writes = tuple(name for operand in head for name in registers(operand))
    reads = tuple(name for operand in rest for name in registers(operand))
    if any(isinstance(operand, Pair) for operand in head):
        writes = tuple(name for name in writes if name != "_")
    return Access(writes, reads)


def varies(instruction: Instruction) -> bool:
    """Whether the result may differ between lanes although the operands do not."""
    names = [name for operand in instruction.operands for name in registers(operand)]
    if any(name.startswith(("%tid", "%laneid", "%lanemask")) for name in names):
        return True
    differs = entry_of(instruction).varies
    return differs if isinstance(differs, bool) else differs(instruction)


def orders(instruction: Instruction, space: str) -> bool:
    """Whether loads of a state space before an instruction stay before it, and later ones behind it."""
    spaces = entry_of(instruction).orders
    return space in (spaces if isinstance(spaces, tuple) else spaces(instruction))
