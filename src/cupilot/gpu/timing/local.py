"""Local memory: arrays that are indexed at run time, and spills, through L1, L2 and DRAM.

The PTX says which lanes differ in their offset (each such offset is a line of its own), the machine code how often
spills are loaded and stored, loops included.  Without machine code spills count once per thread.  Stores go through L1;
loads hit in it as far as the frames of the resident threads fit, and in L2 as far as those of the whole chip do.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.gpu.occupancy import WARP, l1_bytes, occupancy, shared_carveout
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Launch

SECTOR_BYTES, WAVEFRONT_BYTES = 32, 128
FULL_AT = 2.0
"""Frames of the resident threads over the size of a cache at which it no longer has what is asked for again."""


@dataclass(frozen=True)
class LocalTraffic:
    """Bytes that lanes ask for, passes through L1, and bytes that cross L2 and DRAM."""

    bytes: float
    wavefronts: float
    l2_bytes: float
    dram_bytes: float


def local_bytes(launch: Launch) -> float:
    """What the PTX asks for, and ptxas' spills."""
    return launch.counter("local_load_bytes") + launch.counter("local_store_bytes") + spilled_bytes(launch)


def spilled_bytes(launch: Launch) -> float:
    """What the machine code loads and stores beside the PTX's own accesses; without it, each spill once per thread."""
    if launch.counter("sass_instructions") <= 0:
        return float(launch.resources.spill_bytes) * launch.threads * launch.blocks
    if launch.resources.spill_bytes == 0:
        return 0.0
    asked = launch.counter("local_load_bytes") + launch.counter("local_store_bytes")
    return max(0.0, launch.counter("local_machine_bytes") - asked)


def local_traffic(launch: Launch, spec: GpuSpec) -> LocalTraffic:
    total = local_bytes(launch)
    if total <= 0:
        return LocalTraffic(0.0, 0.0, 0.0, 0.0)
    spilled = spilled_bytes(launch)
    loads, stores = (_asked(launch, kind) for kind in ("load", "store"))
    wavefronts = sum(max(launch.counter(f"local_{kind}_wavefronts"), asked / WAVEFRONT_BYTES)
                     for kind, asked in (("load", loads), ("store", stores)))  # fmt: skip
    # of spills it is not known which half they are
    loads, stores = loads + spilled / 2, stores + spilled / 2
    resident, lines_bytes = _resident_bytes(launch, spec)
    missed = loads * _lost(resident, lines_bytes)
    l2 = stores + missed
    dram = l2 * _lost(resident * spec.sms, spec.l2_bytes)
    return LocalTraffic(total, wavefronts + spilled / WAVEFRONT_BYTES, l2, dram)


def _asked(launch: Launch, kind: str) -> float:
    """Bytes of the sectors that the PTX's accesses touch."""
    sectors = launch.counter(f"local_{kind}_sectors") * SECTOR_BYTES
    return max(sectors, launch.counter(f"local_{kind}_bytes"))


def _resident_bytes(launch: Launch, spec: GpuSpec) -> tuple[float, float]:
    """Frames of the threads that an SM holds at once, and the L1 beside their shared memory."""
    blocks = max(1, occupancy(spec, launch.threads, launch.resources, launch.dynamic_shared_bytes).blocks_per_sm)
    blocks = min(blocks, -(-launch.blocks // spec.sms))
    # a spilled register is stored and loaded at least once, so half of the bytes are places
    frame = launch.counter("local_frame_bytes") + launch.resources.spill_bytes / 2
    threads = blocks * -(-launch.threads // WARP) * WARP
    shared = launch.resources.static_shared_bytes + launch.dynamic_shared_bytes
    return frame * threads, float(l1_bytes(spec, shared_carveout(spec, shared, blocks)))


def _lost(size: float, cache: float) -> float:
    """The share of what is asked for again that a cache has lost."""
    return min(1.0, max(0.0, (size / max(cache, 1.0) - 1.0) / (FULL_AT - 1.0)))
