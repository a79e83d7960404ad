"""SIMD video instructions that nvcc still writes (PTX ISA, "Video Instructions": v*2, v*4).

Covered: vadd, vsub, vavrg, vabsdiff, vmin, vmax of two halfwords or four bytes that compute all elements,
with ``.sat`` and ``.add``.  Not covered: element selectors and masks, vset, the scalar forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupilot.vgpu.lower.lanes import lanes_of
from cupilot.vgpu.lower.table import Opcode
from cupilot.vgpu.ptx.syntax import Instruction

if TYPE_CHECKING:
    from cupilot.vgpu.emit import Emitter

# numbers that the runtime's vg_video expects
OPERATIONS = {"vadd": 0, "vsub": 1, "vavrg": 2, "vabsdiff": 3, "vmin": 4, "vmax": 5}
RESULT_SIGNED, A_SIGNED, B_SIGNED, SAT, ADD = 1, 2, 4, 8, 16


def _lower(e: Emitter, i: Instruction) -> None:
    kinds = [m for m in i.mods if m in ("u32", "s32")]
    if len(kinds) != 3 or any(m not in ("u32", "s32", "sat", "add") for m in i.mods):
        raise e.unsupported("these modifiers")
    signs = [k == "s32" for k in kinds]
    flags = RESULT_SIGNED * signs[0] + A_SIGNED * signs[1] + B_SIGNED * signs[2]
    flags += SAT * i.has("sat") + ADD * i.has("add")
    o = lanes_of(e, i)
    values = [o.fetch(operand, "i32") for operand in i.operands[1:4]]
    numbers = (OPERATIONS[i.opcode[:-1]], int(i.opcode[-1]), flags)
    o.put(i.operands[0], o.runtime("vg_video", values, "i32", "i32", numbers), "i32")


ORDER = 100
OPCODES = {
    name: Opcode(_lower, forms=(name + ".{u32,s32}.{u32,s32}.{u32,s32}{,.sat,.add}",), operands="%r1, %r2, %r3, %r4")
    for name in (f"{operation}{count}" for operation in OPERATIONS for count in (2, 4))
}
