"""Opcodes that exist for several kinds of types: the type decides on the family that lowers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower import floating, half, integer
from cupilot.vgpu.lower.lanes import FLOATS, HALVES
from cupilot.vgpu.lower.table import Lowering, Opcode
from cupilot.vgpu.ptx.syntax import Instruction

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter


def _no_such(e: Emitter, i: Instruction) -> None:
    raise e.unsupported("this type")


def _by_type(
    of_floats: Lowering = _no_such, of_halves: Lowering = _no_such, of_integers: Lowering = _no_such
) -> Lowering:
    def lower(e: Emitter, i: Instruction) -> None:
        if any(m in HALVES for m in i.mods):
            of_halves(e, i)
        elif any(m in FLOATS for m in i.mods):
            of_floats(e, i)
        else:
            of_integers(e, i)

    return lower


OPCODES = {
    "add": Opcode(_by_type(floating.add_float, half.add_half, integer.add_integer), "add"),
    "sub": Opcode(_by_type(floating.add_float, half.add_half, integer.add_integer), "sub"),
    "mul": Opcode(_by_type(floating.mul_float, half.mul_half, integer.multiply), "mul"),
    "mad": Opcode(_by_type(floating.fma_float, _no_such, integer.multiply), "mad"),
    "fma": Opcode(_by_type(floating.fma_float, half.fma_half), "fma"),
    "div": Opcode(_by_type(floating.div_float, _no_such, integer.divide), "div"),
    "min": Opcode(_by_type(floating.minmax_float, half.minmax_half, integer.minmax_integer), "min"),
    "max": Opcode(_by_type(floating.minmax_float, half.minmax_half, integer.minmax_integer), "max"),
    "neg": Opcode(_by_type(floating.sign_float, half.sign_half, integer.sign_integer), "neg"),
    "abs": Opcode(_by_type(floating.sign_float, half.sign_half, integer.sign_integer), "abs"),
    "ex2": Opcode(_by_type(floating.special_float, half.special_half), "ex2"),
    "tanh": Opcode(_by_type(floating.special_float, half.special_half), "tanh"),
}
