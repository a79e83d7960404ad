"""What must hold before a function is translated: its registers exist, and what it needs has a bounded size.

PTX that a compiler wrote holds it anyway; here it is told apart from what this engine does not support.  Types of
registers are not compared with those of instructions, as ptxas does: values are cut or filled with zeros.
"""

from __future__ import annotations

from cupilot.vgpu.lower.table import UNKNOWN, access_of, entry_of, written_operands
from cupilot.vgpu.ptx.parse import PtxError
from cupilot.vgpu.ptx.syntax import Function, Instruction, Operand, Pair, Reg, items_of

# PTX ISA, "Kernel Function Parameters"; CUDA C++ Programming Guide, "Compute Capabilities"
PARAM_BYTES = 32764
LOCAL_BYTES = 512 << 10
SHARED_BYTES = 1 << 24
# registers that live across blocks, for a whole warp
WARP_BYTES = 1 << 26


def verify_function(function: Function) -> None:
    """Raise a `PtxError` for registers that are not declared and results that go nowhere."""
    if function.is_kernel and function.param_bytes > PARAM_BYTES:
        raise PtxError(f"the parameters of {function.name} have {function.param_bytes} bytes, more than {PARAM_BYTES}")
    for instruction in function.body:
        if not isinstance(instruction, str):
            _verify(function, instruction)


def _verify(function: Function, instruction: Instruction) -> None:
    if instruction.guard and function.registers.get(instruction.guard) != "pred":
        raise _wrong(function, instruction, f"the guard {instruction.guard} is not a predicate")
    if entry_of(instruction) is UNKNOWN:
        return  # refused when it is lowered
    for operand in written_operands(instruction):
        if not all(isinstance(part, Reg) for part in _parts(operand)):
            raise _wrong(function, instruction, "the result is not a register")
    access = access_of(instruction)
    for name in access.writes:
        if name not in function.registers and name != "_":
            raise _wrong(function, instruction, f"the register {name} is not declared")
    for name in access.reads:
        if name not in function.registers and name[0] != "%" and name not in ("_", "WARP_SZ"):
            raise _wrong(function, instruction, f"the register {name} is not declared")


def _parts(operand: Operand) -> tuple[Operand, ...]:
    if isinstance(operand, Pair):
        return operand.first, operand.second
    return items_of(operand)


def _wrong(function: Function, instruction: Instruction, what: str) -> PtxError:
    return PtxError(f"invalid PTX: {what}, {instruction.text}", function.name, instruction.line)


def verify_sizes(warp_bytes: int, local_bytes: int, shared_bytes: int) -> None:
    """Raise a `PtxError` for a kernel that no device could hold, before sizes and offsets grow out of their types."""
    limits = (("registers", warp_bytes, WARP_BYTES), ("local memory", local_bytes, LOCAL_BYTES),
              ("shared memory", shared_bytes, SHARED_BYTES))  # fmt: skip
    for what, size, limit in limits:
        if size > limit:
            raise PtxError(f"the kernel needs {size} bytes of {what}; at most {limit} are possible")
