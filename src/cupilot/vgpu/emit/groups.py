"""Shared loads that can go together: the same base register, nothing written in between.

Unrolled loops load dozens of neighbours from one address; together they need one look at the lanes' addresses and one
check of all the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cupilot.vgpu.lower.table import access_of, orders
from cupilot.vgpu.ptx.syntax import TYPE_BYTES, Address, Instruction, Reg, Symbol, items_of

RELAXED = ("volatile", "relaxed", "acquire", "mmio")
MOST_BYTES = 64 * 4  # of one lane


@dataclass
class Group:
    """Loads of one width from one base; the first one loads for all."""

    base: Reg | Symbol | None
    width: int  # bytes of an element
    count: int  # elements of a vector
    loads: list[Instruction] = field(default_factory=list)
    emitted: str = ""  # name of the buffer that holds the values

    @property
    def offsets(self) -> list[int]:
        return [i.operands[1].offset for i in self.loads if isinstance(i.operands[1], Address)]

    @property
    def full(self) -> bool:
        return (len(self.loads) + 1) * self.width * self.count > MOST_BYTES


def find_groups(code: Sequence[Instruction]) -> dict[int, tuple[Group, int]]:
    """For each load that has company (by identity): its group and its number in it."""
    open_groups: dict[tuple[Reg | Symbol | None, int, int], Group] = {}
    groups: list[Group] = []
    for instruction in code:
        if orders(instruction, "shared"):
            open_groups.clear()
        elif (key := _key(instruction)) is not None:
            group = open_groups.get(key)
            if group is None or group.full:
                group = open_groups[key] = Group(*key)
                groups.append(group)
            group.loads.append(instruction)
        written = access_of(instruction).writes
        for known in list(open_groups):
            if isinstance(known[0], Reg) and known[0].name in written:
                del open_groups[known]
    return {id(i): (group, n) for group in groups if len(group.loads) > 1 for n, i in enumerate(group.loads)}


def _key(instruction: Instruction) -> tuple[Reg | Symbol | None, int, int] | None:
    if instruction.opcode != "ld" or instruction.guard or any(map(instruction.has, RELAXED)):
        return None
    if not any(mod.split("::")[0] == "shared" for mod in instruction.mods):
        return None
    address = instruction.operands[1]
    width = TYPE_BYTES.get(instruction.mods[-1], 0)
    count = len(items_of(instruction.operands[0]))
    if not isinstance(address, Address) or isinstance(address.base, Symbol) or width != 4 or count not in (1, 2, 4):
        return None
    return address.base, width, count
