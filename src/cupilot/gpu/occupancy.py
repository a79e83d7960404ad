"""Occupancy as CUDA computes it: how many blocks of a kernel one SM holds, and what stops more.

Covers compute capability 7.0 and later with the largest shared-memory carve-out.  Clusters and
the driver's own choice of a smaller carve-out are not covered.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.gpu.spec import GpuSpec
from cupilot.records import Resources

WARP = 32
REGISTER_UNIT = 256
"""Registers are handed to a warp in units of this many."""
SUBPARTITIONS = 4
"""Warps and registers of an SM are split evenly over this many schedulers."""


@dataclass(frozen=True)
class Occupancy:
    """Resident blocks and warps of one SM; ``limit`` is registers, shared, warps or blocks.

    ``blocks_per_sm`` is zero when a single block does not fit: such a launch fails.
    """

    blocks_per_sm: int
    warps_per_sm: int
    limit: str
    fraction: float


def occupancy(spec: GpuSpec, threads_per_block: int, resources: Resources, dynamic_shared_bytes: int) -> Occupancy:
    """Occupancy of a kernel at a block size; on a tie the first of warps, blocks, registers, shared is named."""
    warps = -(-threads_per_block // WARP)
    limits = {
        "warps": spec.warps_per_sm // warps if 0 < threads_per_block <= spec.threads_per_block else 0,
        "blocks": spec.blocks_per_sm,
        "registers": blocks_by_registers(spec, warps, resources.registers),
        "shared": blocks_by_shared(spec, resources.static_shared_bytes + dynamic_shared_bytes),
    }
    limit = min(limits, key=lambda name: limits[name])
    resident = limits[limit] * warps
    return Occupancy(limits[limit], resident, limit, resident / spec.warps_per_sm)


def blocks_by_registers(spec: GpuSpec, warps_per_block: int, registers_per_thread: int) -> int:
    """Blocks whose registers fit, each scheduler holding whole warps out of its quarter of the file."""
    if registers_per_thread > spec.registers_per_thread:
        return 0
    per_warp = _round_up(max(registers_per_thread, 1) * WARP, REGISTER_UNIT)
    if per_warp * _round_up(warps_per_block, SUBPARTITIONS) > spec.registers_per_sm:
        return 0
    warps = spec.registers_per_sm // SUBPARTITIONS // per_warp * SUBPARTITIONS
    return warps // warps_per_block


def blocks_by_shared(spec: GpuSpec, shared_bytes: int) -> int:
    """Blocks whose shared memory fits; since 8.0 the system keeps 1 KB per block for itself."""
    if shared_bytes > spec.shared_bytes_per_block_optin:
        return 0
    reserved, unit = (1024, 128) if spec.capability >= 8.0 else (0, 256)
    per_block = _round_up(shared_bytes + reserved, unit)
    return spec.shared_bytes_per_sm // per_block if per_block else spec.blocks_per_sm


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
