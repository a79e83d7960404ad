"""Where a kernel stands on the roofline, and what the hardware allows a task at best.

Two compute ceilings, CUDA cores and tensor cores, over one DRAM ceiling give two ridge points and
three zones.  A kernel near none of the ceilings is ``latency-bound``; that takes a time to know,
so it is asked separately.  L1 and L2 ceilings are not covered.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.gpu.spec import GpuSpec
from cupilot.records import Task

MEMORY_BOUND, BETWEEN, COMPUTE_BOUND, LATENCY_BOUND = "memory-bound", "between", "compute-bound", "latency-bound"
ZONES = (MEMORY_BOUND, BETWEEN, COMPUTE_BOUND, LATENCY_BOUND)

NEAR = 0.25
"""A ceiling is near when at least this share of it is reached."""


@dataclass(frozen=True)
class Place:
    """A point on the roofline: intensity in operations per byte, ridges and ceilings of its precision."""

    zone: str
    intensity: float
    ridge_low: float
    ridge_high: float
    core_flop_per_s: float
    tensor_flop_per_s: float
    attainable_flop_per_s: float


def ceilings(spec: GpuSpec, precision: str) -> tuple[float, float]:
    """Peak of the CUDA cores and of the tensor cores; equal where there are no tensor cores for it."""
    if precision == "fp64":
        return spec.fp64_flop_per_s, spec.fp64_flop_per_s
    if precision in ("fp16", "bf16"):
        return spec.fp16_flop_per_s, spec.fp16_tensor_flop_per_s
    # fp32 values enter tensor cores as tf32
    return spec.fp32_flop_per_s, spec.tf32_tensor_flop_per_s


def place(spec: GpuSpec, flop: float, bytes: float, precision: str = "fp32") -> Place:
    """Place a kernel (or a task) by its operations and the bytes it moves through DRAM."""
    core, tensor = ceilings(spec, precision)
    low, high = core / spec.dram_bytes_per_s, tensor / spec.dram_bytes_per_s
    intensity = flop / bytes if bytes > 0 else float("inf")
    zone = MEMORY_BOUND if intensity < low else COMPUTE_BOUND if intensity >= high else BETWEEN
    attainable = core if intensity >= low else intensity * spec.dram_bytes_per_s
    return Place(zone, intensity, low, high, core, tensor, attainable)


def achieved_fraction(spec: GpuSpec, place: Place, flop: float, bytes: float, time_s: float) -> float:
    """The larger share of the two ceilings, DRAM and CUDA cores, that a kernel reaches."""
    return max(bytes / time_s / spec.dram_bytes_per_s, flop / time_s / place.core_flop_per_s)


def zone_of(spec: GpuSpec, place: Place, achieved_fraction: float) -> str:
    """The place's zone, or ``latency-bound`` when no ceiling is near.

    ``achieved_fraction`` is against peak; the bar is a quarter of what streaming kernels can reach.
    """
    reachable = spec.dram_read_bytes_per_s / spec.dram_bytes_per_s
    return LATENCY_BOUND if achieved_fraction < NEAR * reachable else place.zone


def limit_s(spec: GpuSpec, task: Task, flop: float) -> float:
    """Lower bound of a task's time: bytes that must move, operations that must be done, at peak.

    fp32 and fp64 count against the CUDA cores, half precisions against the tensor cores.  Data that
    is already in the L2 is not considered, nor fp32 results put together from several tf32 products.
    """
    return max(task.minimal_bytes / spec.dram_bytes_per_s, flop / _peak(spec, task))


def reachable_s(spec: GpuSpec, task: Task, flop: float) -> float:
    """The same with the bandwidth that streaming kernels reach: what a search may hope for."""
    return max(spec.dram_s(task.input_bytes, task.output_bytes), flop / _peak(spec, task))


def _peak(spec: GpuSpec, task: Task) -> float:
    core, tensor = ceilings(spec, task.precision)
    return tensor if task.precision in ("fp16", "bf16", "tf32") else core
