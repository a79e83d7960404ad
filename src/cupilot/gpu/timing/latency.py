"""What warps wait for: Little's law told from the side of a warp.

A warp starts, makes its round trips to memory one after another, stops at barriers and ends.  Resident warps do that
at the same time, and ``waves`` sets of them follow each other.  That is the same as bytes over (bytes in flight over
latency).  A round trip is as long as the furthest level that one of its sectors has to go to, longer when the memory
behind it is busy, and shorter by what the warp did since it asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.timing.aside import PCIE_LATENCY_S
from cupilot.gpu.timing.throughput import (
    SECTOR_BYTES,
    far_share,
    has_machine_code,
    kept_waves,
    slowest_share,
    warps,
    waves,
)
from cupilot.records import Launch

BLOCK_CYCLES = 320.0
"""Start and end of a block: launch, parameters, draining (STREAM at low occupancy)."""
STORE_CYCLES = 77.0
"""A block that stores ends when its last stores have left it (STREAM: stores only, against loads and stores)."""
BARRIER_CYCLES = 60.0
"""What a barrier adds to the path of each warp: the block meets, and starts again together (reductions)."""
QUEUE = 0.6
"""How much longer a round trip is when DRAM is as busy as it can be (STREAM from half to full occupancy)."""
TURNS = 2
"""Reads wait longer behind writes, by this power of how much slower DRAM moves both than reads alone (STREAM, H100)."""


@dataclass(frozen=True)
class Waiting:
    """Seconds of a launch in which its warps wait: for blocks and barriers, and for memory that is not busy."""

    fixed_s: float
    memory_s: float
    queue: float = QUEUE

    def seconds(self, busy: float) -> float:
        """In all, when DRAM is busy for this share of the time."""
        return self.fixed_s + self.memory_s * (1.0 + self.queue * busy)


def waiting(launch: Launch, spec: GpuSpec) -> Waiting:
    number = warps(launch)
    fixed = BLOCK_CYCLES + launch.counter("barriers") / number * BARRIER_CYCLES
    fixed += STORE_CYCLES if launch.counter("global_store_requests") > 0 else 0.0
    trips, cover = round_trips(launch)
    memory = max(0.0, trips * load_latency_cycles(launch, spec) - cover)
    if launch.counter("host_read_bytes"):  # the first to ask waits for all of it, and the others for the first
        memory = max(memory, PCIE_LATENCY_S * spec.clock_hz)
    longest = kept_waves(launch, spec) * memory
    return Waiting(waves(launch, spec) * fixed / spec.clock_hz, longest / spec.clock_hz, queue(launch, spec))


def queue(launch: Launch, spec: GpuSpec) -> float:
    """How much longer round trips are when DRAM is busy with this launch's reads and writes."""
    read, written = launch.counter("dram_read_bytes"), launch.counter("dram_write_bytes")
    reading_s = spec.dram_s(read + written, 0.0)
    if reading_s <= 0:
        return QUEUE
    slower = spec.dram_s(read, written) / reading_s
    return QUEUE * slower**TURNS


def round_trips(launch: Launch) -> tuple[float, float]:
    """Round trips of a block's slowest warp, and the cycles of its own that they overlap with."""
    if not has_machine_code(launch):
        return all_round_trips(launch) * slowest_share(launch), 0.0
    if launch.counter("critical_path_cycles") > 0:
        names = ("critical_round_trips", "critical_covered_cycles")
        trips, cover = (launch.counter(name) / launch.blocks for name in names)
        return trips, cover
    return launch.counter("round_trips") / warps(launch), launch.counter("covered_cycles") / warps(launch)


def all_round_trips(launch: Launch) -> float:
    """Of all warps together."""
    if has_machine_code(launch):
        return launch.counter("round_trips")
    return launch.counter("global_load_requests") / max(1.0, launch.counter("independent_loads"))


def load_latency_cycles(launch: Launch, spec: GpuSpec) -> float:
    """Mean length of a round trip: the furthest level that any sector of a group of loads has to go to.

    Takes misses as independent.  That is too long where a warp's lanes miss all at once and hit for a
    while (a thread per row), right where warps wait for a line that one of them has asked for.
    """
    sectors, trips = launch.counter("global_load_sectors"), all_round_trips(launch)
    if sectors <= 0 or trips <= 0:
        return 0.0
    group = sectors / trips
    reach_l2 = min(1.0, group * launch.counter("l2_read_sectors") / sectors)
    reach_dram = min(1.0, group * launch.counter("dram_read_bytes") / SECTOR_BYTES / sectors)
    far = far_share(launch, spec) * (spec.l2_far_latency_cycles - spec.l2_latency_cycles)
    l2 = min(spec.l2_latency_cycles + far, spec.dram_latency_cycles)
    cycles = spec.l1_latency_cycles + reach_l2 * (l2 - spec.l1_latency_cycles)
    cycles += reach_dram * (spec.dram_latency_cycles - l2)
    reach_host = min(1.0, group * launch.counter("host_read_bytes") / SECTOR_BYTES / sectors)
    return cycles + reach_host * max(0.0, PCIE_LATENCY_S * spec.clock_hz - cycles)
