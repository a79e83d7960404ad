"""What kernels do beside computing in the GPU's own memory: constants, sleep, clocks, printing, the heap, PCIe."""

from __future__ import annotations

from math import ceil

from cupilot.gpu.occupancy import WARP
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Launch

CONST_PASS_CYCLES = 4.0
"""Of an SM, for each further address in a request to constant memory.  That addresses come one after the other is
documented (CUDA C++ Best Practices Guide, "Constant Memory"); the cycles are judgement, from the rate of LDC."""
CONST_MISS_CYCLES, CONST_MISS_LATENCY = 8.0, 64.0
"""Of an SM, and of the warp, when the 2 KB beside the SM's pipes do not have a line (judgement: the cache behind them
answers in about 90 cycles, they in 28)."""
SYSTEM_FENCE_CYCLES = 1000.0
"""Of the warp, for a fence whose effect the host must see too (judgement)."""
PRINT_S = 0.5e-6
"""A line through the buffer of printf, which the host formats and writes one after the other (judgement)."""
HEAP_S = 0.1e-6
"""A call of malloc or free of device code, of which the heap serves one after the other (judgement; millions per second
are reported for CUDA's allocator by surveys of such heaps: Gelado and Garland 2019, Winter et al. 2021)."""
PCIE_LATENCY_S = 1.3e-6
"""A round trip to the host's memory (judgement: PCIe reads take 1 to 1.5 us)."""
MIGRATION_S, MIGRATION_BYTES = 20e-6, 2 << 20
"""What a fault on managed memory costs, and the most that one moves (tens of microseconds are reported)."""


def constant_cycles(launch: Launch) -> float:
    """Of all SMs together: addresses beyond the first of each request, and misses."""
    further = max(0.0, launch.counter("const_passes") - launch.counter("const_requests"))
    return CONST_PASS_CYCLES * further + CONST_MISS_CYCLES * launch.counter("const_misses")


def aside_path_cycles(launch: Launch) -> float:
    """On the way of the mean warp: constants, and fences that the host must see."""
    further = max(0.0, launch.counter("const_passes") - launch.counter("const_requests"))
    constants = CONST_PASS_CYCLES * further + CONST_MISS_LATENCY * launch.counter("const_misses")
    return (constants + SYSTEM_FENCE_CYCLES * launch.counter("system_fences")) / _warps(launch)


def idle_s(launch: Launch, waves: int) -> float:
    """Sleep, and time that loops saw pass on a clock: of the warp or block with most, or of all waves in a row."""
    ns = max(launch.counter("longest_sleep_ns"), waves * launch.counter("sleep_ns") / _warps(launch))
    seen_ns = max(launch.counter("longest_clock_ns"), waves * launch.counter("clock_ns") / launch.blocks)
    return max(ns, seen_ns) * 1e-9


def clock_cycles(launch: Launch, waves: int) -> float:
    """The same for clocks that count cycles."""
    return max(launch.counter("longest_clock_cycles"), waves * launch.counter("clock_cycles") / launch.blocks)


def serial_parts(launch: Launch, spec: GpuSpec) -> dict[str, float]:
    """What happens one after the other, while nothing else does."""
    migrated = launch.counter("migrated_bytes")
    faults = ceil(migrated / MIGRATION_BYTES)
    parts = {
        "print": PRINT_S * launch.counter("prints"),
        "heap": HEAP_S * launch.counter("heap_calls"),
        # to the device, and back when the host next looks
        "migration": 2 * migrated / spec.pcie_bytes_per_s + MIGRATION_S * faults,
    }
    return {name: time_s for name, time_s in parts.items() if time_s > 0}


def _warps(launch: Launch) -> int:
    return launch.blocks * -(-launch.threads // WARP)
