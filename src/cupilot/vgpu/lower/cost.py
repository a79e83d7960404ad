"""What instructions cost, statically: pipe, floating-point operations, source line.

These are PTX instructions; ptxas merges and removes some (moves above all), which the time model
takes into account.
"""

from __future__ import annotations

from collections.abc import Sequence

from cupilot.vgpu.lower.table import access_of
from cupilot.vgpu.ptx.syntax import Instruction

SFU = {"ex2", "lg2", "sin", "cos", "rsqrt", "rcp", "sqrt", "tanh"}
CONTROL = {"mov", "bra", "ret", "exit", "bar", "barrier", "cvta", "membar", "fence", "trap", "brkpt"}
LSU = {"ld", "st", "ldu", "atom", "red", "shfl", "prefetch"}
FLOP = {"add": 1, "sub": 1, "mul": 1, "fma": 2, "mad": 2, "div": 1, "sqrt": 1, "rcp": 1, "rsqrt": 1, "ex2": 1, "lg2": 1,
        "sin": 1, "cos": 1, "tanh": 1}  # fmt: skip
PRECISION = {"f32": "fp32", "f64": "fp64", "f16": "fp16", "bf16": "fp16", "f16x2": "fp16", "bf16x2": "fp16"}


def pipe_of(instruction: Instruction) -> str:
    """The execution pipe an instruction is counted for."""
    opcode = instruction.opcode
    if opcode in CONTROL or (opcode == "ld" and instruction.has("param")):
        return "control"
    if opcode in LSU:
        return "lsu"
    if opcode in SFU:
        return "sfu"
    kind = instruction.mods[-1] if instruction.mods else ""
    if opcode in ("selp", "setp", "neg", "abs") and kind != "f64":
        return "int"
    return PRECISION.get(kind, "int")


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
        if instruction.opcode == "ld" and is_global(instruction):
            level = max(level, floor) + 1
            deepest = max(deepest, level)
        elif instruction.opcode in ("bar", "barrier") or (instruction.opcode == "st" and is_global(instruction)):
            floor = deepest
        depth.update(dict.fromkeys(access.writes, level))
    return deepest


def is_global(instruction: Instruction) -> bool:
    return instruction.has("global") or not any(
        space in instruction.text for space in (".shared", ".param", ".const", ".local")
    )


def cost_of(code: Sequence[Instruction]) -> tuple[dict[str, float], dict[int, int]]:
    """Counters of one execution by a full warp, and instructions by source line."""
    counters: dict[str, float] = {}
    lines: dict[int, int] = {}
    for instruction in code:
        pipe = f"instructions_{pipe_of(instruction)}"
        counters[pipe] = counters.get(pipe, 0) + 1
        counters["warp_instructions"] = counters.get("warp_instructions", 0) + 1
        kind = PRECISION.get(instruction.mods[-1] if instruction.mods else "")
        if kind and instruction.opcode in FLOP:
            pairs = 2 if instruction.mods[-1].endswith("x2") else 1
            name = f"flop_{kind}"
            counters[name] = counters.get(name, 0) + FLOP[instruction.opcode] * pairs
        if instruction.opcode in ("bar", "barrier"):
            counters["barriers"] = counters.get("barriers", 0) + 1
        lines[instruction.line] = lines.get(instruction.line, 0) + 1
    if groups := load_groups(code):
        counters["load_groups"] = groups
    return counters, lines
