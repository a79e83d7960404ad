"""What instructions cost, statically: pipe, opcode class, floating-point operations, source line.

A counter that belongs to one source line has the line in its name (``flop@12``).  These are PTX instructions; ptxas
merges and removes some (moves above all), which the time model takes into account.
"""

from __future__ import annotations

from collections.abc import Sequence

from cupilot.vgpu.lower.pipes import PIPES, PRECISION, pipe_by_type, type_of
from cupilot.vgpu.lower.table import access_of, entry_of, orders
from cupilot.vgpu.ptx.syntax import Instruction


def pipe_of(instruction: Instruction) -> str:
    """The execution pipe an instruction is counted for."""
    pipe = entry_of(instruction).pipe or PIPES.get(class_of(instruction), pipe_by_type)
    return pipe if isinstance(pipe, str) else pipe(instruction)


def class_of(instruction: Instruction) -> str:
    """The class an opcode is counted in: what it does, whichever pipe does it."""
    kind = entry_of(instruction).kind
    return kind if isinstance(kind, str) else kind(instruction)


def flop_of(instruction: Instruction) -> tuple[str, int] | None:
    """Counter and floating-point operations of one lane; matrix products have `Opcode.tensor_flop`."""
    kind, flop = type_of(instruction), entry_of(instruction).flop
    if not kind or not flop:
        return None
    name = "bf16" if kind.startswith("bf16") else PRECISION[kind]
    return f"flop_{name}", flop * (2 if kind.endswith("x2") else 1)


def at_line(name: str, line: int) -> str:
    """Name of a counter for one source line only."""
    return f"{name}@{line}"


def load_groups(code: Sequence[Instruction]) -> int:
    """Round trips of global loads: loads that need no earlier load's value go out together.

    ptxas hoists loads to the front of a block as far as data, barriers and stores allow; a group is
    what it can have in flight at once.
    """
    depth: dict[str, int] = {}
    floor = deepest = 0
    for instruction in code:
        access = access_of(instruction)
        level = max((depth.get(name, 0) for name in access.reads), default=0)
        if entry_of(instruction).round_trip(instruction):
            level = max(level, floor) + 1
            deepest = max(deepest, level)
        elif orders(instruction, "global"):
            floor = deepest
        depth.update(dict.fromkeys(access.writes, level))
    return deepest


def cost_of(code: Sequence[Instruction]) -> tuple[dict[str, float], dict[int, int]]:
    """Counters of one execution by a full warp, and instructions by source line."""
    counters: dict[str, float] = {}
    lines: dict[int, int] = {}

    def count(name: str, amount: float = 1) -> None:
        counters[name] = counters.get(name, 0) + amount

    for instruction in code:
        kind = class_of(instruction)
        count(f"instructions_{pipe_of(instruction)}")
        count(f"opcodes_{kind}")
        count("warp_instructions")
        if (arithmetic := flop_of(instruction)) is not None:
            count(*arithmetic)
            count(at_line("flop", instruction.line), arithmetic[1])
        if (product := entry_of(instruction).tensor_flop(instruction)) is not None:
            count(f"flop_tensor_{product[0]}", product[1])
            count(at_line("flop_tensor", instruction.line), product[1])
        if kind == "barrier":
            count("barriers")
        if kind == "fence" and instruction.has("sys"):
            count("system_fences")
        lines[instruction.line] = lines.get(instruction.line, 0) + 1
    if groups := load_groups(code):
        counters["load_groups"] = groups
    return counters, lines
