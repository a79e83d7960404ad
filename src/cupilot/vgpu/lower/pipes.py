"""The usual pipe of a kind of instruction, and pipes and kinds that depend on the type."""

from __future__ import annotations

from collections.abc import Callable

from cupilot.vgpu.ptx.syntax import Instruction

# the pipe of each floating-point type
PRECISION = {"f32": "fp32", "f64": "fp64", "f16": "fp16", "bf16": "fp16", "f16x2": "fp16", "bf16x2": "fp16"}


def type_of(instruction: Instruction) -> str:
    """The last floating-point type that an instruction names, or an empty string."""
    return next((mod for mod in reversed(instruction.mods) if mod in PRECISION), "")


def pipe_by_type(instruction: Instruction) -> str:
    return PRECISION.get(type_of(instruction), "int")


def kind_by_type(instruction: Instruction) -> str:
    return "float" if type_of(instruction) else "integer"


def int_or_fp64(instruction: Instruction) -> str:
    """Compare, select, change the sign: the integer pipe does this for all floating-point types but f64."""
    return "fp64" if type_of(instruction) == "f64" else "int"


# the usual pipe of each kind; for other kinds the type decides
PIPES: dict[str, str | Callable[[Instruction], str]] = {
    **dict.fromkeys(("load", "store", "atomic", "copy", "prefetch"), "lsu"),
    **dict.fromkeys(("parameter", "branch", "barrier", "fence", "move"), "control"),
    "compare": int_or_fp64,
    "special": "sfu",
    "matrix": "tensor",
}
