"""Special registers (PTX ISA, "Special Registers"): where a thread is, how large things are, what time it is.

Performance monitors read as zero, and a grid without clusters consists of clusters of one block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cupilot.vgpu import layout
from cupilot.vgpu.emit.text import LANES

if TYPE_CHECKING:
    from cupilot.vgpu.emit.operands import Operands

Value = tuple[str, str, bool]  # LLVM value, element type, whether it has one element per lane

AXES = {"x": 0, "y": 1, "z": 2}
# registers that name lanes relative to one's own, from its bit
LANE_MASKS: dict[str, Callable[[int], int]] = {
    "%lanemask_eq": lambda bit: bit, "%lanemask_lt": lambda bit: bit - 1, "%lanemask_le": lambda bit: 2 * bit - 1,
    "%lanemask_gt": lambda bit: -2 * bit, "%lanemask_ge": lambda bit: -bit,
}  # fmt: skip
CONSTANTS = {
    "WARP_SZ": 32, "%clusterid": 0, "%nclusterid": 1, "%cluster_ctaid": 0, "%cluster_nctaid": 1, "%cluster_ctarank": 0,
    "%cluster_nctarank": 1, "%is_explicit_cluster": 0, "%aggr_smem_size": 0, "%reserved_smem_offset_begin": 0,
    "%reserved_smem_offset_end": 0, "%reserved_smem_offset_cap": 0,
    **{f"%pm{i}": 0 for i in range(8)},
}  # fmt: skip
CONTEXT = {
    "%ctaid": layout.CTX_CTAID, "%nctaid": layout.CTX_NCTAID, "%ntid": layout.CTX_NTID, "%smid": layout.CTX_SM,
    "%nsmid": layout.CTX_SMS, "%dynamic_smem_size": layout.CTX_DYNAMIC_SHARED_BYTES,
    # where cooperative groups find the grid's workspace, in two halves
    "%envreg1": layout.CTX_WORKSPACE + 4, "%envreg2": layout.CTX_WORKSPACE,
}  # fmt: skip
CLOCKS = ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi")


def special_register(e: Operands, name: str) -> Value | None:
    """The register's value, or None when there is no such register."""
    base, _, axis = name.partition(".")
    if base == "%tid":
        place = e.field_at("%w", layout.WARP_TID + 128 * AXES[axis])
        return e.op(f"load <{LANES} x i32>, ptr {place}, align 64"), "i32", True
    if name == "%laneid":
        return "<" + ", ".join(f"i32 {i}" for i in range(LANES)) + ">", "i32", True
    if name in LANE_MASKS:
        words = (LANE_MASKS[name](1 << i) & 0xFFFFFFFF for i in range(LANES))
        return "<" + ", ".join(f"i32 {word}" for word in words) + ">", "i32", True
    if base in CONTEXT:
        return e.load_field("%c", CONTEXT[base] + 4 * AXES.get(axis, 0), "i32"), "i32", False
    return _clock(e, name) if name in CLOCKS else _other(e, name)


def _other(e: Operands, name: str) -> Value | None:
    base = name.partition(".")[0]
    if base in CONSTANTS:
        return str(CONSTANTS[base]), "i32", False
    if name == "%warpid":
        return e.load_field("%w", layout.WARP_INDEX, "i32"), "i32", False
    if name == "%nwarpid":
        threads = [e.load_field("%c", layout.CTX_NTID + 4 * i, "i32") for i in range(3)]
        total = e.op(f"mul i32 {e.op(f'mul i32 {threads[0]}, {threads[1]}')}, {threads[2]}")
        return e.op(f"lshr i32 {e.op(f'add i32 {total}, 31')}, 5"), "i32", False
    if name == "%total_smem_size":
        size = e.load_field("%c", layout.CTX_SHARED_BYTES, "i64")
        return e.op(f"trunc i64 {size} to i32"), "i32", False
    return ("1", "i64", False) if name == "%gridid" else None


def _clock(e: Operands, name: str) -> Value:
    now = e.call("i64", "vg_clock", f"ptr %c, i32 {int('global' in name)}", "ptr, i32")
    if name in ("%clock64", "%globaltimer"):
        return now, "i64", False
    if name.endswith("_hi"):
        now = e.op(f"lshr i64 {now}, 32")
    return e.op(f"trunc i64 {now} to i32"), "i32", False
