"""What instructions cost, statically: pipe, opcode class, floating-point operations, source line.

A counter that belongs to one source line has the line in its name (``flop@12``).  These are PTX instructions; ptxas
merges and removes some (moves above all), which the time model takes into account.
"""

from __future__ import annotations

from collections.abc import Sequence

from cupilot.vgpu.lower.table import access_of
from cupilot.vgpu.lower.tensor import tensor_flop
from cupilot.vgpu.ptx.syntax import Instruction

SFU = {"ex2", "lg2", "sin", "cos", "rsqrt", "rcp", "sqrt", "tanh"}
# floating-point values that are only compared, chosen or given a sign: the integer pipe does it
SIMPLE = {"selp", "setp", "set", "slct", "testp", "copysign", "neg", "abs"}
CONTROL = {"mov", "bra", "brx", "call", "ret", "exit", "bar", "barrier", "cvta", "membar", "fence", "trap", "brkpt",
           "nanosleep", "pmevent", "griddepcontrol", "setmaxnreg"}  # fmt: skip
LSU = {"ld", "st", "ldu", "atom", "red", "shfl", "prefetch", "prefetchu", "cp", "ldmatrix", "stmatrix", "movmatrix",
       "mbarrier"}  # fmt: skip
CLASSES = {
    "load": {"ld", "ldu", "ldmatrix"},
    "store": {"st", "stmatrix"},
    "atomic": {"atom", "red", "mbarrier"},
    "copy": {"cp"},
    "prefetch": {"prefetch", "prefetchu"},
    "matrix": {"mma", "wmma"},
    "warp": {"shfl", "vote", "match", "activemask", "redux", "elect", "movmatrix"},
    "barrier": {"bar", "barrier"},
    "fence": {"membar", "fence"},
    "branch": {"bra", "brx", "call", "ret", "exit", "trap", "brkpt"},
    "special": SFU,
    "compare": {"setp", "set", "selp", "slct", "testp"},
    "convert": {"cvt", "cvta", "isspacep"},
    "move": {"mov"},
    "logic": {"and", "or", "xor", "not", "cnot", "lop3", "shl", "shr", "shf", "prmt", "bfe", "bfi", "bmsk", "szext",
              "brev", "popc", "clz", "bfind", "fns"},
}  # fmt: skip
_CLASS = {opcode: name for name, opcodes in CLASSES.items() for opcode in opcodes}
FLOP = {"add": 1, "sub": 1, "mul": 1, "fma": 2, "mad": 2, "div": 1, "sqrt": 1, "rcp": 1, "rsqrt": 1, "ex2": 1, "lg2": 1,
        "sin": 1, "cos": 1, "tanh": 1}  # fmt: skip
# by type, the pipe
PRECISION = {"f32": "fp32", "f64": "fp64", "f16": "fp16", "bf16": "fp16", "f16x2": "fp16", "bf16x2": "fp16"}


def pipe_of(instruction: Instruction) -> str:
    """The execution pipe an instruction is counted for."""
    opcode = instruction.opcode
    if opcode in CONTROL or (opcode == "ld" and instruction.has("param")):
        return "control"
    if opcode in LSU or (opcode == "wmma" and not instruction.has("mma")):
        return "lsu"
    if opcode in ("mma", "wmma"):
        return "tensor"
    if opcode in SFU:
        return "sfu"
    kind = type_of(instruction)
    if opcode in SIMPLE and kind != "f64":
        return "int"
    return PRECISION.get(kind, "int")


def type_of(instruction: Instruction) -> str:
    """The last floating-point type that an instruction names, of a conversion only its source; or nothing."""
    mods = instruction.mods[-1:] if instruction.opcode == "cvt" else instruction.mods
    return next((m for m in reversed(mods) if m in PRECISION), "")


def class_of(instruction: Instruction) -> str:
    """The class an opcode is counted in: what it does, whichever pipe does it."""
    opcode = instruction.opcode
    if opcode == "wmma" and not instruction.has("mma"):
        return "load" if instruction.has("load") else "store"
    if opcode in ("ld", "st") and any(mod.split("::")[0] == "param" for mod in instruction.mods):
        return "parameter"
    return _CLASS.get(opcode) or ("float" if type_of(instruction) else "integer")


def flop_of(instruction: Instruction) -> tuple[str, int] | None:
    """Counter and floating-point operations of one lane; those of matrix products are `tensor_flop`."""
    kind = type_of(instruction)
    if not kind or instruction.opcode not in FLOP:
        return None
    name = "bf16" if kind.startswith("bf16") else PRECISION[kind]
    return f"flop_{name}", FLOP[instruction.opcode] * (2 if kind.endswith("x2") else 1)


def at_line(name: str, line: int) -> str:
    """Name of a counter for one source line only."""
    return f"{name}@{line}"


def is_copy(instruction: Instruction) -> bool:
    """An asynchronous copy itself, not its group, its wait or its barrier."""
    steps = ("commit_group", "wait_group", "wait_all", "mbarrier", "prefetch")
    return instruction.opcode == "cp" and not any(mod in steps for mod in instruction.mods[:3])


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
        if (instruction.opcode == "ld" and is_global(instruction)) or is_copy(instruction):
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

    def count(name: str, amount: float = 1) -> None:
        counters[name] = counters.get(name, 0) + amount

    for instruction in code:
        count(f"instructions_{pipe_of(instruction)}")
        count(f"opcodes_{class_of(instruction)}")
        count("warp_instructions")
        if (arithmetic := flop_of(instruction)) is not None:
            count(*arithmetic)
            count(at_line("flop", instruction.line), arithmetic[1])
        if (product := tensor_flop(instruction)) is not None:
            count(f"flop_tensor_{product[0]}", product[1])
            count(at_line("flop_tensor", instruction.line), product[1])
        if instruction.opcode in ("bar", "barrier"):
            count("barriers")
        lines[instruction.line] = lines.get(instruction.line, 0) + 1
    if groups := load_groups(code):
        counters["load_groups"] = groups
    return counters, lines
