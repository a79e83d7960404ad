"""The part of a kernel that depends on nothing but where a thread is and what the kernel was called with.

Comparisons of such values (``blockIdx.x == 77``, ``row < m``, ``i % 997 == 5``) decide which blocks do something else
than the others, and their outcomes can be had for every block without running it (`cupilot.vgpu.rare_blocks`).

Followed are registers that one unguarded instruction writes: what loops carry on and what memory holds is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cupilot.vgpu.ptx.flow import registers
from cupilot.vgpu.ptx.syntax import Address, Function, Imm, Instruction, Operand, Reg, Symbol

FOLLOWED = frozenset({
    "add", "sub", "mul", "mad", "neg", "not", "and", "or", "xor", "shl", "shr", "rem", "div", "min", "max", "mov",
    "cvt", "popc", "selp", "setp", "abs", "cvta", "ld",
})  # fmt: skip
POSITIONS = ("%ctaid.", "%tid.", "%ntid.", "%nctaid.")
BLOCK = "%ctaid."


def index_code(function: Function) -> tuple[Instruction, ...]:
    """Instructions that compare what depends on the block's index, and those that they need, in their order."""
    body = [item for item in function.body if isinstance(item, Instruction)]
    written = Counter(name for item in body for name in _written(item))
    made: dict[str, Instruction] = {}
    varies: set[str] = set()  # with the block
    for item in body:
        names = _written(item)
        if len(names) != 1 or written[names[0]] > 1 or not _is_followed(item, made):
            continue
        made[names[0]] = item
        if any(_is_of_block(name, varies) for name in _read(item)):
            varies.add(names[0])
    wanted = [name for name, item in made.items() if item.opcode == "setp" and name in varies]
    needed: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in made and name not in needed:
            needed.add(name)
            wanted += _read(made[name])
    return tuple(item for name, item in made.items() if name in needed)


def _is_of_block(name: str, varies: set[str]) -> bool:
    return name in varies or name.startswith(BLOCK)


def _is_followed(item: Instruction, made: dict[str, Instruction]) -> bool:
    if item.guard or item.opcode not in FOLLOWED:
        return False
    if item.opcode == "ld":
        address = item.operands[1]
        fixed = isinstance(address, Address) and isinstance(address.base, Symbol)
        return fixed and len(item.mods) == 2 and item.mods[0] in ("param", "const")
    if not all(isinstance(operand, (Reg, Imm)) for operand in item.operands):
        return False
    return all(name in made or name.startswith(POSITIONS) for name in _read(item))


def _written(item: Instruction) -> list[str]:
    """Its first operand's registers; stores and branches write none, but counting them does no harm."""
    return list(_registers(item.operands[:1]))


def _read(item: Instruction) -> list[str]:
    return list(_registers(item.operands[1:]))


def _registers(operands: Iterable[Operand]) -> Iterable[str]:
    for operand in operands:
        yield from registers(operand)
