"""What each resource alone would need for a launch, in seconds.

Parts of an SM are those of the busiest one, which runs ``ceil(blocks / SMs)`` blocks, or less work beside the heaviest
of them (`cupilot.vgpu.uneven`).  What a block needs for itself is the way of its slowest warp.  Instructions are those
of the machine code where it is known.  Of the PTX otherwise: there, address arithmetic, moves and loop control largely
vanish in ptxas, so they take a share of a slot only.
"""

from __future__ import annotations

from math import ceil

from cupilot.gpu.occupancy import WARP, occupancy
from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.timing.aside import aside_path_cycles, clock_cycles, constant_cycles, idle_s
from cupilot.gpu.timing.local import local_traffic
from cupilot.records import Launch

Parts = dict[str, float]

BOOKKEEPING = 0.5
"""Issue slots per PTX integer or control instruction, without machine code (SASS of five SGEMM kernels: 0.3 to 0.7)."""
PATH_CYCLES_PER_INSTRUCTION = 2.0
"""Issue distance within one warp, without machine code: four cycles of latency, about two independent instructions."""
SECTOR_BYTES = 32
WAVEFRONT_BYTES = 128
L2_PORT_BYTES_PER_CYCLE = 64.0
WIDEST_SECTORS = 16.0
"""Sectors of the widest coalesced request: 16 bytes for each of 32 lanes."""
FAR_FROM, FAR_TO = 0.9, 1.4
"""Sizes over that of the near L2 between which a chain of pointers moves to the far one (A100 and H100)."""


def busiest_sm(launch: Launch, spec: GpuSpec, of: str = "blocks") -> float:
    """The share of the grid's instructions (or ``wavefronts``, ``sectors``) of the SM that has most of them."""
    known = launch.counter(f"busiest_sm_{of}")
    if known > 0:
        return min(1.0, known / launch.blocks)
    return (ceil(launch.blocks / spec.sms) - 1 + unevenness(launch, spec)) / launch.blocks


def unevenness(launch: Launch, spec: GpuSpec) -> float:
    """The heaviest block's work over the mean one's, where no SM can make up for it: in a single wave."""
    mean = launch.counter("warp_instructions") / launch.blocks
    if mean <= 0 or waves(launch, spec) > 1:
        return 1.0
    return max(1.0, launch.counter("heaviest_block") / mean)


def kept_waves(launch: Launch, spec: GpuSpec) -> float:
    """Mean blocks that follow each other until the last one has ended: as many as there are waves, if all are equal."""
    return launch.counter("kept_waves") or waves(launch, spec) * unevenness(launch, spec)


def warps(launch: Launch) -> int:
    return launch.blocks * -(-launch.threads // WARP)


def waves(launch: Launch, spec: GpuSpec) -> int:
    """Sets of blocks that run one after another, at the kernel's occupancy."""
    resident = occupancy(spec, launch.threads, launch.resources, launch.dynamic_shared_bytes).blocks_per_sm
    return ceil(launch.blocks / (spec.sms * max(resident, 1)))


def sm_times(launch: Launch, spec: GpuSpec) -> Parts:
    """Issue slots, pipes, the path through L1 and shared memory, and a warp's own path, on the busiest SM."""
    share = busiest_sm(launch, spec)
    cycles = {"issue": issue_slots(launch) / spec.schedulers_per_sm, **pipe_cycles(launch, spec)}
    cycles["lsu"] = l1_cycles(launch, spec) + shared_cycles(launch, spec)
    cycles["const"] = constant_cycles(launch)
    times = {name: value * share / spec.clock_hz for name, value in cycles.items()}
    times["lsu"] = cycles["lsu"] * busiest_sm(launch, spec, "wavefronts") / spec.clock_hz
    # resident warps go their ways at the same time, the next ones after them
    path = kept_waves(launch, spec) * path_cycles(launch)
    sets = waves(launch, spec)
    times["dependency"] = max(path, clock_cycles(launch, sets)) / spec.clock_hz + idle_s(launch, sets)
    return times


def has_machine_code(launch: Launch) -> bool:
    return launch.counter("sass_instructions") > 0


def issue_slots(launch: Launch) -> float:
    """Warp instructions; of the PTX, bookkeeping counts a share, merged loads and stores not at all."""
    if has_machine_code(launch):
        return launch.counter("sass_instructions")
    bookkeeping = launch.counter("instructions_int") + launch.counter("instructions_control")
    merged = launch.counter("merged_requests")
    return max(0.0, launch.counter("warp_instructions") - merged - (1.0 - BOOKKEEPING) * bookkeeping)


def pipe_cycles(launch: Launch, spec: GpuSpec) -> Parts:
    """The arithmetic pipes of all SMs together, each on its own."""
    prefix = "sass" if has_machine_code(launch) else "instructions"

    def cycles(lanes: int, *names: str) -> float:
        return sum(launch.counter(f"{prefix}_{name}") for name in names) * WARP / lanes

    integer = cycles(spec.int32_lanes_per_sm, "int")
    found = {
        # products of integers are made beside those of fp32; where integer lanes are fp32 lanes, everything is
        "fp32": cycles(spec.fp32_lanes_per_sm, "fp32", "imad", *(("int",) if spec.int32_shares_fp32 else ())),
        "int": max(integer, cycles(spec.int32_lanes_per_sm, "imad")),
        "fp64": cycles(spec.fp64_lanes_per_sm, "fp64"),
        "fp16": cycles(spec.fp16_lanes_per_sm, "fp16"),
        "sfu": cycles(spec.sfu_lanes_per_sm, "sfu"),
    }
    return found | {"tensor": tensor_s(launch, spec) * spec.sms * spec.clock_hz}


def tensor_s(launch: Launch, spec: GpuSpec) -> float:
    """Matrix products by type, with the whole chip at work."""
    total = 0.0
    for counter in launch.counters:
        if counter.name.startswith("flop_tensor_"):
            peak = tensor_peak(spec, counter.name.removeprefix("flop_tensor_"))
            # a type that the GPU has no unit for is made by others, slowly
            total += counter.value / (spec.mma_share * peak if peak else spec.fp32_flop_per_s)
    return total


def tensor_peak(spec: GpuSpec, kind: str) -> float:
    """Operations per second of the tensor cores for factors of a type."""
    peaks = {
        "fp16": spec.fp16_tensor_flop_per_s,
        "bf16": spec.bf16_tensor_flop_per_s,
        "tf32": spec.tf32_tensor_flop_per_s,
        "fp64": spec.fp64_tensor_flop_per_s,
        "fp8": spec.fp8_tensor_flop_per_s,
        "int8": spec.int8_tensor_op_per_s,
        "int4": 2.0 * spec.int8_tensor_op_per_s,
        "int1": 8.0 * spec.int8_tensor_op_per_s,
    }
    return peaks.get(kind, spec.fp16_tensor_flop_per_s)


def path_cycles(launch: Launch) -> float:
    """Cycles that a block's slowest warp needs for its own instructions, without waiting for global memory."""
    beside = aside_path_cycles(launch)
    if has_machine_code(launch):
        known = launch.counter("critical_path_cycles") / launch.blocks
        return (known or launch.counter("path_cycles") / warps(launch)) + beside
    return issue_slots(launch) * slowest_share(launch) * PATH_CYCLES_PER_INSTRUCTION + beside


def slowest_share(launch: Launch) -> float:
    """The share of all instructions that one slowest warp has, of the mean block."""
    known = launch.counter("critical_instructions") / max(launch.counter("warp_instructions"), 1.0)
    return (known or 1.0 / (warps(launch) / launch.blocks)) / launch.blocks


def request_wavefronts(requests: float, sectors: float) -> float:
    """L1 cycles of global requests, from their sectors, where the engine has not counted them.

    Four neighbouring sectors are one wavefront, and a request is at least one.  A mean of more sectors
    than the widest coalesced request has means scattered lanes; those mostly walk rows whose length is
    a multiple of 128 bytes, hit one bank, and take a wavefront per sector (A100: 32 cycles at such
    strides, 8 to 9 at odd ones).
    """
    dense = max(requests, sectors * SECTOR_BYTES / WAVEFRONT_BYTES)
    scattered = min(1.0, max(0.0, sectors / requests / WIDEST_SECTORS - 1.0)) if requests > 0 else 0.0
    return dense + scattered * (sectors - dense)


def l1_cycles(launch: Launch, spec: GpuSpec) -> float:
    """Global, atomic and local requests; shuffles and votes take the same path."""
    total = launch.counter("global_atomic_requests") + local_traffic(launch, spec).wavefronts
    total += launch.counter("opcodes_warp")
    for kind in ("load", "store"):
        requests, sectors = launch.counter(f"global_{kind}_requests"), launch.counter(f"global_{kind}_sectors")
        total += launch.counter(f"global_{kind}_wavefronts") or request_wavefronts(requests, sectors)
    return total * WARP / spec.lsu_lanes_per_sm


def shared_cycles(launch: Launch, spec: GpuSpec) -> float:
    """Shared-memory wavefronts."""
    total = launch.counter("shared_load_wavefronts") + launch.counter("shared_store_wavefronts")
    total += launch.counter("shared_atomic_steps")
    return total * WARP / spec.lsu_lanes_per_sm


def chip_times(launch: Launch, spec: GpuSpec) -> Parts:
    """L2, atomics in it, DRAM, and PCIe for memory of the host."""
    local = local_traffic(launch, spec).dram_bytes / 2
    hosts = launch.counter("host_read_bytes") + launch.counter("host_write_bytes")
    return {
        "l2": l2_s(launch, spec),
        "atomic": launch.counter("global_atomic_steps") / spec.clock_hz,
        "dram": spec.dram_s(launch.counter("dram_read_bytes") + local, launch.counter("dram_write_bytes") + local),
        "pcie": hosts / spec.pcie_bytes_per_s,
    }


def l2_s(launch: Launch, spec: GpuSpec) -> float:
    """L2 traffic over the chip's bandwidth, or over the busiest SM's port."""
    sectors = launch.counter("l2_read_sectors") + launch.counter("l2_write_sectors")
    moved = sectors * SECTOR_BYTES + local_traffic(launch, spec).l2_bytes
    port_s = moved * busiest_sm(launch, spec, "sectors") / L2_PORT_BYTES_PER_CYCLE / spec.clock_hz
    return max(moved / spec.l2_bytes_per_s, port_s)


def far_share(launch: Launch, spec: GpuSpec) -> float:
    """The share of L2 hits in the partition at the other end of the chip, for what does not fit into the near one.

    It makes the way longer, not the path narrower: what all SMs read, both partitions keep a copy of (see
    `cupilot.vgpu.counters.overflow`).
    """
    if spec.l2_near_bytes >= spec.l2_bytes:
        return 0.0
    size = launch.counter("footprint_bytes") / spec.l2_near_bytes
    return min(1.0, max(0.0, (size - FAR_FROM) / (FAR_TO - FAR_FROM)))
