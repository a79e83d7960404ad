"""What the runtime counted, turned into the counters of a profile.

Instruction counts are static mixes times executions of basic blocks.  L1 and a block's share of L2
are simulated while blocks run; how much of the L2 traffic reaches DRAM is estimated here:

* what one block reads twice at a distance that its share of L2 cannot hold is read twice (`passes`);
* blocks that run at the same time advance together and share what they read, so one wave reads a
  buffer at most once per pass;
* when all buffers together fit into L2, every later wave finds them there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from cupilot.records import Counter, LineCost
from cupilot.vgpu.emit import KernelCode

SECTOR_BYTES = 32
# Counters that are means or maxima of a warp, so they are not scaled with the number of blocks.
INTENSIVE = frozenset({"independent_loads", "critical_loads"})


@dataclass(frozen=True)
class SiteCount:
    """What one memory instruction did."""

    requests: int
    sectors: int
    wavefronts: int
    lane_bytes: int

    def __add__(self, other: SiteCount) -> SiteCount:
        return SiteCount(
            self.requests + other.requests, self.sectors + other.sectors, self.wavefronts + other.wavefronts,
            self.lane_bytes + other.lane_bytes,
        )  # fmt: skip


@dataclass(frozen=True)
class BufferTraffic:
    """32-byte sectors that blocks moved to and from one buffer."""

    bytes: int
    l2_read: int
    l2_write: int
    miss_read: int
    miss_write: int
    unique_read: int
    unique_write: int


def instruction_counters(code: KernelCode, counts: Sequence[tuple[int, int]], warps: int) -> dict[str, float]:
    """Static mix of each basic block times how often warps and lanes executed it."""
    totals: dict[str, float] = {}
    for block, (executions, lanes) in zip(code.blocks, counts, strict=True):
        for name, amount in block.counters.items():
            # floating-point operations are those of active lanes, the rest is per warp, matrix products too
            times = lanes if name.startswith("flop_") and not name.startswith("flop_tensor") else executions
            totals[name] = totals.get(name, 0.0) + amount * times
        totals["lane_instructions"] = (
            totals.get("lane_instructions", 0.0) + block.counters.get("warp_instructions", 0.0) * lanes
        )
    groups = totals.pop("load_groups", 0.0)
    totals["critical_loads"] = groups / max(warps, 1)
    totals["load_groups"] = groups
    return totals


def memory_counters(code: KernelCode, sites: Sequence[SiteCount]) -> dict[str, float]:
    """Requests, sectors and wavefronts by space and direction."""
    totals: dict[str, float] = {}
    for site, count in zip(code.sites, sites, strict=True):
        if site.space in ("const", "param", "group"):
            continue
        space = site.space if site.space in ("shared", "local") else "global"
        atomic = site.text.startswith(("atom.", "red."))
        stem = f"{space}_{'atomic' if atomic else 'store' if site.store else 'load'}"
        parts = {"requests": count.requests, "wavefronts": count.wavefronts, "bytes": count.lane_bytes}
        if space != "shared":
            parts["sectors"] = count.sectors
        for name, amount in parts.items():
            totals[f"{stem}_{name}"] = totals.get(f"{stem}_{name}", 0.0) + amount
    return totals


def dram_bytes(traffic: Iterable[BufferTraffic], scale: float, waves: float, l2_bytes: int) -> dict[str, float]:
    """Bytes that cross L2 and DRAM in the whole grid (see the module's text)."""
    buffers = [t for t in traffic if t.l2_read or t.l2_write]
    fits = sum(t.bytes for t in buffers) <= 0.8 * l2_bytes
    totals = {"l2_read_sectors": 0.0, "l2_write_sectors": 0.0, "dram_read_bytes": 0.0, "dram_write_bytes": 0.0}
    for t in buffers:
        totals["l2_read_sectors"] += t.l2_read * scale
        totals["l2_write_sectors"] += t.l2_write * scale
        for way, missed, unique in (("read", t.miss_read, t.unique_read), ("write", t.miss_write, t.unique_write)):
            if not missed:
                continue
            passes = 1.0 if fits else missed / max(unique, 1)
            most = (1.0 if fits else waves * passes) * t.bytes
            totals[f"dram_{way}_bytes"] += min(missed * scale * SECTOR_BYTES, max(most, SECTOR_BYTES))
    return totals


def launch_counters(
    code: KernelCode,
    counts: Sequence[tuple[int, int]],
    sites: Sequence[SiteCount],
    traffic: Sequence[BufferTraffic],
    *,
    blocks: int,
    blocks_run: int,
    warps_per_block: int,
    concurrent_blocks: int,
    l2_bytes: int,
) -> tuple[Counter, ...]:
    """All counters of one launch, scaled to the whole grid."""
    scale = blocks / max(blocks_run, 1)
    measured = instruction_counters(code, counts, blocks_run * warps_per_block) | memory_counters(code, sites)
    groups = measured.pop("load_groups")
    measured["independent_loads"] = max(1.0, measured.get("global_load_requests", 0.0) / groups) if groups else 1.0
    waves = ceil(blocks / max(concurrent_blocks, 1))
    modelled = dram_bytes(traffic, scale, waves, l2_bytes)
    found = [
        Counter(name, value if name in INTENSIVE else value * scale, "PTX") for name, value in sorted(measured.items())
    ]
    found += [Counter(name, value, "model") for name, value in sorted(modelled.items())]
    return tuple(counter for counter in found if counter.value)


def line_costs(
    code: KernelCode, counts: Sequence[tuple[int, int]], sites: Sequence[SiteCount], scale: float
) -> tuple[LineCost, ...]:
    """Warp instructions and global sectors by source line."""
    instructions: dict[int, float] = {}
    sectors: dict[int, float] = {}
    for block, (executions, _) in zip(code.blocks, counts, strict=True):
        for line, amount in block.lines.items():
            instructions[line] = instructions.get(line, 0.0) + amount * executions * scale
    for site, count in zip(code.sites, sites, strict=True):
        sectors[site.line] = sectors.get(site.line, 0.0) + count.sectors * scale
    return tuple(LineCost(line, n, sectors.get(line, 0.0)) for line, n in sorted(instructions.items()) if line)
