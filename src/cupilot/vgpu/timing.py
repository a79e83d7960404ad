"""Time on a real GPU, modelled from the counters of a run.

A launch is a few *parts*, each the time one resource alone would need:

====================  ===============================================================================
issue                 warp instructions over the schedulers, one each per cycle
fp32 fp64 fp16 int    warp instructions of a pipe times 32 over its lanes
sfu tensor
l1, shared            one path: wavefronts of global and shared requests, one per cycle and SM
l2                    sectors over the chip's L2 bandwidth, or over one SM's port to it
dram                  bytes read and written over the bandwidths that streaming kernels reach
latency               what resident warps cannot hide (below)
====================  ===============================================================================

SM parts are those of the busiest SM: it runs ``ceil(blocks / SMs)`` blocks.  The parts overlap, but
not perfectly: together they take their `NORM`-norm, and each part's share of that time goes into
the breakdown, which therefore sums to the time.

*Latency* is Little's law told from the side of a warp.  A warp makes ``loads / independent_loads``
round trips, each as long as the furthest level that any of its sectors has to go to; resident warps
do this at the same time, and ``waves`` sets of them one after another.  Time follows as
``waves * path``, which is the same as bytes over (bytes in flight / latency).  The longest warp
(``critical_loads``) is charged once, in the tail.

PTX is not SASS: address arithmetic, moves, conversions and loop control largely vanish in
ptxas, so they take only a share of an issue slot.

Not covered: contention of atomics on one address, instruction cache misses, TLB misses, tensor
instructions of different shapes and types (all count as one fp16 16x16x16 product), dependency
stalls other than loads, clocks that drop under load, and blocks of unequal work.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from cupilot.gpu.occupancy import WARP, occupancy
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Launch, MemoryOperation, Profile, Timing

# Fitted constants; none belongs to a kernel.  Fitted on: STREAM bandwidth against occupancy, small-kernel
# times, L1 cycles per warp load (all A100), and PTX against SASS instruction counts of five SGEMM kernels.
# STREAM fixes only the sum of block start and loaded DRAM latency; how it is split, and that misses within a
# group of loads count as independent, was chosen with the measured SGEMM ladder in view.
NORM = 3.0
"""How parts overlap: infinity would be perfectly, one not at all (STREAM between half and full occupancy)."""
BOOKKEEPING = 0.5
"""Issue slots per PTX integer or control instruction (SASS of five SGEMM kernels: 0.3 to 0.7)."""
LOADED_LATENCY = 1.25
"""Latency in a busy memory system over that of a lone pointer chase (STREAM at low occupancy)."""
BLOCK_START_CYCLES = 200.0
"""Start and end of a warp: launch, indices, parameters, draining (STREAM at low occupancy)."""
PATH_CYCLES_PER_INSTRUCTION = 2.0
"""Issue distance within one warp: four cycles of arithmetic latency, about two independent instructions."""
BARRIER_CYCLES = 30.0
"""What a barrier adds to the path of each warp that arrives."""
RAMP_S = 1.5e-6
"""Fixed time of a kernel on the device: start, fill, drain (small-kernel times)."""
GAP_S = 1.0e-6
"""Idle time between one launch and the next of a stream (small-kernel times)."""

SECTOR_BYTES = 32
WAVEFRONT_BYTES = 128
L2_PORT_BYTES_PER_CYCLE = 64.0
WIDEST_SECTORS = 16.0
"""Sectors of the widest coalesced request: 16 bytes for each of 32 lanes."""
TENSOR_FLOP = 2 * 16 * 16 * 16

Parts = dict[str, float]


def model_time(profile: Profile, spec: GpuSpec, device: str) -> Timing:
    """Time of everything one call did: launches, fills and copies, and the gaps between them."""
    parts: Parts = {}
    steps = [launch_parts(launch, spec) for launch in profile.launches]
    steps += [operation_parts(operation, spec) for operation in profile.operations]
    for step in steps:
        for name, time_s in step.items():
            parts[name] = parts.get(name, 0.0) + time_s
    parts["launch"] = parts.get("launch", 0.0) + GAP_S * max(0, len(steps) - 1)
    if not steps:
        parts["launch"] = spec.launch_overhead_s
    breakdown = tuple(sorted(((n, t) for n, t in parts.items() if t > 0), key=lambda item: -item[1]))
    note = "counters scaled up from sampled blocks" if profile.sampled else ""
    return Timing(sum(t for _, t in breakdown), "modelled", device, breakdown[0][0], breakdown, note)


def launch_parts(launch: Launch, spec: GpuSpec) -> Parts:
    """Where one launch's time goes; sums to its time on the device, which has a minimum."""
    cycles = {
        "issue": issue_cycles(launch, spec),
        **pipe_cycles(launch, spec),
        "lsu": l1_cycles(launch, spec) + shared_cycles(launch, spec),
        "latency": latency_cycles(launch, spec),
    }
    times = {name: value / spec.clock_hz for name, value in cycles.items()}
    times["l2"] = l2_s(launch, spec)
    times["dram"] = spec.dram_s(launch.counter("dram_read_bytes"), launch.counter("dram_write_bytes"))
    parts = combine(times)
    lsu = parts.pop("lsu")
    if lsu > 0:
        share = l1_cycles(launch, spec) / cycles["lsu"]
        parts |= {"l1": lsu * share, "shared": lsu * (1.0 - share)}
    return with_minimum(parts, spec)


def operation_parts(operation: MemoryOperation, spec: GpuSpec) -> Parts:
    """A fill writes its bytes; a copy reads and writes them; one to or from the host goes over PCIe."""
    if operation.kind in ("host-to-device", "device-to-host"):
        # 25 GB/s is what pinned memory reaches in practice over x16 of the fourth generation, of 31.5 on the data sheet
        return with_minimum({"pcie": operation.bytes / getattr(spec, "pcie_bytes_per_s", 25e9)}, spec)
    read = 0.0 if operation.kind in ("fill", "memset") else float(operation.bytes)
    # what PyTorch computes, at the speed of the vendor's library
    times = {"dram": spec.dram_s(read, operation.bytes), "fp32": operation.flop / spec.sgemm_flop_per_s}
    return with_minimum(combine({name: time_s for name, time_s in times.items() if time_s > 0}), spec)


def with_minimum(parts: Parts, spec: GpuSpec) -> Parts:
    """Add the fixed time of a kernel, and fill up to the shortest interval at which a stream launches."""
    work_s = sum(parts.values())
    return parts | {"launch": max(RAMP_S, spec.launch_overhead_s - work_s)}


def combine(times: Mapping[str, float]) -> Parts:
    """The parts' shares of their joint time: the `NORM`-norm, divided in proportion to the powers."""
    longest = max(times.values(), default=0.0)
    if longest <= 0:
        return dict.fromkeys(times, 0.0)
    powers = {name: (value / longest) ** NORM for name, value in times.items()}
    total = sum(powers.values())
    return {name: longest * total ** (1.0 / NORM) * power / total for name, power in powers.items()}


def busiest_sm(launch: Launch, spec: GpuSpec) -> float:
    """The share of the grid that the SM with the most blocks has to do."""
    return ceil(launch.blocks / spec.sms) / launch.blocks


def warps(launch: Launch) -> int:
    return launch.blocks * -(-launch.threads // WARP)


def issue_slots(launch: Launch) -> float:
    """Every warp instruction takes a slot, PTX bookkeeping a share of one, merged loads and stores none."""
    bookkeeping = launch.counter("instructions_int") + launch.counter("instructions_control")
    merged = launch.counter("merged_requests")
    return max(0.0, launch.counter("warp_instructions") - merged - (1.0 - BOOKKEEPING) * bookkeeping)


def issue_cycles(launch: Launch, spec: GpuSpec) -> float:
    """Issue slots of the busiest SM over its schedulers."""
    return issue_slots(launch) * busiest_sm(launch, spec) / spec.schedulers_per_sm


def pipe_cycles(launch: Launch, spec: GpuSpec) -> Parts:
    """The arithmetic pipes, each on its own."""
    lanes = {
        "fp32": spec.fp32_lanes_per_sm,
        "fp64": spec.fp64_lanes_per_sm,
        "fp16": spec.fp16_lanes_per_sm,
        "int": spec.int32_lanes_per_sm,
        "sfu": spec.sfu_lanes_per_sm,
    }
    share = busiest_sm(launch, spec)
    cycles = {name: launch.counter(f"instructions_{name}") * WARP / n * share for name, n in lanes.items()}
    tensor_flop_per_cycle = spec.fp16_tensor_flop_per_s / spec.sms / spec.clock_hz
    cycles["tensor"] = launch.counter("instructions_tensor") * TENSOR_FLOP / tensor_flop_per_cycle * share
    return cycles


def request_wavefronts(requests: float, sectors: float) -> float:
    """L1 cycles of global requests, from their sectors.

    Four neighbouring sectors are one wavefront, and a request is at least one.  A mean of more sectors
    than the widest coalesced request has means scattered lanes; those mostly walk rows whose length is
    a multiple of 128 bytes, hit one bank, and take a wavefront per sector (A100: 32 cycles at such
    strides, 8 to 9 at odd ones).  Means hide mixtures: the engine's own wavefronts, if counted, are better.
    """
    if sectors > requests * WIDEST_SECTORS:
        return sectors
    return max(requests, sectors * SECTOR_BYTES / WAVEFRONT_BYTES)


def l1_cycles(launch: Launch, spec: GpuSpec) -> float:
    """Global, atomic and local requests on the busiest SM."""
    total = launch.counter("global_atomic_requests") + local_bytes(launch) / WAVEFRONT_BYTES
    for kind in ("load", "store"):
        requests, sectors = launch.counter(f"global_{kind}_requests"), launch.counter(f"global_{kind}_sectors")
        total += launch.counter(f"global_{kind}_wavefronts") or request_wavefronts(requests, sectors)
    return total * WARP / spec.lsu_lanes_per_sm * busiest_sm(launch, spec)


def shared_cycles(launch: Launch, spec: GpuSpec) -> float:
    """Shared-memory wavefronts on the busiest SM."""
    total = launch.counter("shared_load_wavefronts") + launch.counter("shared_store_wavefronts")
    return total * WARP / spec.lsu_lanes_per_sm * busiest_sm(launch, spec)


def local_bytes(launch: Launch) -> float:
    """Local memory: what the PTX asks for, and ptxas' spills once per thread (loops are not known)."""
    asked = launch.counter("local_load_bytes") + launch.counter("local_store_bytes")
    return asked + float(launch.resources.spill_bytes) * launch.threads * launch.blocks


def l2_s(launch: Launch, spec: GpuSpec) -> float:
    """L2 traffic over the chip's bandwidth, or over the busiest SM's port; an atomic is one cycle of the L2.

    Half of the local bytes count: stores go through the L1, loads mostly hit in it.
    """
    sectors = launch.counter("l2_read_sectors") + launch.counter("l2_write_sectors")
    moved = sectors * SECTOR_BYTES + local_bytes(launch) / 2
    port_s = moved * busiest_sm(launch, spec) / L2_PORT_BYTES_PER_CYCLE / spec.clock_hz
    return max(moved / spec.l2_bytes_per_s, port_s) + launch.counter("global_atomic_requests") / spec.clock_hz


def waves(launch: Launch, spec: GpuSpec) -> int:
    """Sets of blocks that run one after another, at the kernel's occupancy."""
    resident = occupancy(spec, launch.threads, launch.resources, launch.dynamic_shared_bytes).blocks_per_sm
    return ceil(launch.blocks / (spec.sms * max(resident, 1)))


def load_latency_cycles(launch: Launch, spec: GpuSpec) -> float:
    """Mean length of a round trip: the furthest level that any sector of a group of loads has to go to.

    Takes misses as independent.  That is too long where a warp's lanes miss all at once and hit for a
    while (a thread per row), right where warps wait for a line that one of them has asked for.
    """
    requests, sectors = launch.counter("global_load_requests"), launch.counter("global_load_sectors")
    if requests <= 0 or sectors <= 0:
        return 0.0
    misses = launch.counter("l2_read_sectors") / sectors
    from_dram = launch.counter("dram_read_bytes") / SECTOR_BYTES / sectors
    group = independent_loads(launch) * sectors / requests
    reach_l2, reach_dram = min(1.0, group * misses), min(1.0, group * from_dram)
    cycles = spec.l1_latency_cycles + reach_l2 * (spec.l2_latency_cycles - spec.l1_latency_cycles)
    return LOADED_LATENCY * (cycles + reach_dram * (spec.dram_latency_cycles - spec.l2_latency_cycles))


def independent_loads(launch: Launch) -> float:
    return max(1.0, launch.counter("independent_loads"))


def latency_cycles(launch: Launch, spec: GpuSpec) -> float:
    """Paths of mean warps, wave after wave, and once the longest warp's remaining round trips."""
    number, latency = warps(launch), load_latency_cycles(launch, spec)
    trips = launch.counter("global_load_requests") / number / independent_loads(launch)
    path = BLOCK_START_CYCLES + trips * latency
    path += issue_slots(launch) / number * PATH_CYCLES_PER_INSTRUCTION
    path += launch.counter("barriers") / number * BARRIER_CYCLES
    return waves(launch, spec) * path + max(0.0, launch.counter("critical_loads") - trips) * latency
