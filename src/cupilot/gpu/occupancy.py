"""Occupancy as CUDA computes it: how many blocks of a kernel one SM holds, and what stops more.

Covers compute capability 7.0 and later.  Blocks are counted with the largest share of the L1 that shared
memory can have, for the driver gives a kernel as much of it as its blocks need; `shared_carveout` says how
much that is and `l1_bytes` what is left for the cache.  Clusters are not covered, nor a carve-out that a
program asks for itself.
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
    """Resident blocks and warps of one SM; ``limit`` is warps, blocks, registers, shared or barriers.

    ``blocks_per_sm`` is zero when a single block does not fit: such a launch fails.
    """

    blocks_per_sm: int
    warps_per_sm: int
    limit: str
    fraction: float


def occupancy(spec: GpuSpec, threads_per_block: int, resources: Resources, dynamic_shared_bytes: int) -> Occupancy:
    """Occupancy of a kernel at a block size; on a tie the limit named first in `Occupancy` is the one."""
    warps = -(-threads_per_block // WARP)
    limits = {
        "warps": spec.warps_per_sm // warps if 0 < threads_per_block <= spec.threads_per_block else 0,
        "blocks": spec.blocks_per_sm,
        "registers": blocks_by_registers(spec, warps, resources.registers),
        "shared": blocks_by_shared(spec, resources.static_shared_bytes + dynamic_shared_bytes),
        "barriers": blocks_by_barriers(spec, resources.barriers),
    }
    limit = min(limits, key=lambda name: limits[name])
    resident = limits[limit] * warps
    return Occupancy(limits[limit], resident, limit, resident / spec.warps_per_sm)


def blocks_by_registers(spec: GpuSpec, warps_per_block: int, registers_per_thread: int) -> int:
    """Blocks whose registers fit, each scheduler holding whole warps out of its quarter of the file."""
    if registers_per_thread > spec.registers_per_thread:
        return 0
    per_warp = _round_up(max(registers_per_thread, 1) * WARP, REGISTER_UNIT)
    warps = spec.registers_per_sm // SUBPARTITIONS // per_warp * SUBPARTITIONS
    return warps // max(warps_per_block, 1)


def blocks_by_shared(spec: GpuSpec, shared_bytes: int) -> int:
    """Blocks whose shared memory fits into the largest carve-out."""
    if shared_bytes > spec.shared_bytes_per_block_optin:
        return 0
    per_block = allocated_shared_bytes(spec, shared_bytes)
    return spec.shared_bytes_per_sm // per_block if per_block else spec.blocks_per_sm


def allocated_shared_bytes(spec: GpuSpec, shared_bytes: int) -> int:
    """What a block takes of an SM: in units, and since 8.0 with 1 KB that the system keeps for itself."""
    reserved, unit = (1024, 128) if spec.capability >= 8.0 else (0, 256)
    return _round_up(shared_bytes + reserved, unit)


def blocks_by_barriers(spec: GpuSpec, barriers: int) -> int:
    """Blocks whose named barriers there are: since 9.0, twice as many as blocks, and as many on 12.0."""
    if spec.capability < 9.0:
        return spec.blocks_per_sm
    return spec.blocks_per_sm * (2 if spec.capability < 12.0 else 1) // max(barriers, 1)


def shared_carveout(spec: GpuSpec, bytes_per_block: int, blocks: int) -> int:
    """Bytes of shared memory that the driver configures for so many resident blocks: the fewest that hold them.

    Where they do not fit at all, the most there is.
    """
    needed = blocks * allocated_shared_bytes(spec, bytes_per_block)
    return next((size for size in spec.shared_carveouts if size >= needed), spec.shared_bytes_per_sm)


def l1_bytes(spec: GpuSpec, carveout: int) -> int:
    """What a carve-out leaves of the memory of an SM that L1 and shared memory have in common."""
    return spec.l1_bytes_per_sm - carveout


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
