"""The roofline: what the hardware allows a kernel at best, and how much of it a kernel reaches.

Two compute ceilings, CUDA cores and tensor cores, lie over three ceilings of bandwidth: L1, L2 and DRAM.  The ridge
points over DRAM divide intensities into three zones; a precision without tensor cores has one ridge, and no zone
between.  A kernel near none of the ceilings is ``latency-bound``; that takes a time to know, so it is asked separately.

Not covered: sparsity, products of four bits and fewer, and shared memory, which has the bandwidth of L1 (see
`cupilot.gpu.units`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cupilot.gpu.spec import GpuSpec
from cupilot.records import Launch, MemoryOperation, Profile

MEMORY_BOUND, BETWEEN, COMPUTE_BOUND, LATENCY_BOUND = "memory-bound", "between", "compute-bound", "latency-bound"
ZONES = (MEMORY_BOUND, BETWEEN, COMPUTE_BOUND, LATENCY_BOUND)
LEVELS = ("L1", "L2", "DRAM")

NEAR = 0.25
"""A ceiling is near when at least this share of it is reached."""
L1_BYTES_PER_CYCLE = 128
"""What the L1 of one SM hands out in a cycle."""
SECTOR_BYTES = 32
ROUNDING = 1.02
"""Peaks of datasheets are rounded: nearer ones are the same."""


@dataclass(frozen=True)
class Roof:
    """All ceilings of one GPU in one precision; ``tensor_flop_per_s`` is that of the cores where there is no other.

    ``dram_bytes_per_s`` is the peak, ``dram_reached_bytes_per_s`` what streaming kernels reach of it.
    """

    gpu: str
    precision: str
    core_flop_per_s: float
    tensor_flop_per_s: float
    l1_bytes_per_s: float
    l2_bytes_per_s: float
    dram_bytes_per_s: float
    dram_reached_bytes_per_s: float

    @property
    def has_tensor_cores(self) -> bool:
        """Whether they make a ceiling of their own."""
        return self.tensor_flop_per_s > self.core_flop_per_s

    @property
    def ridge_low(self) -> float:
        """Operations per byte of DRAM from which the CUDA cores bind."""
        return self.core_flop_per_s / self.dram_bytes_per_s

    @property
    def ridge_high(self) -> float:
        """The same of the tensor cores; equal where there are none."""
        return self.tensor_flop_per_s / self.dram_bytes_per_s

    def bytes_per_s(self, level: str) -> float:
        """The ceiling of one of `LEVELS`."""
        return (self.l1_bytes_per_s, self.l2_bytes_per_s, self.dram_bytes_per_s)[LEVELS.index(level)]

    def zone(self, intensity: float) -> str:
        """By operations per byte of DRAM."""
        if intensity < self.ridge_low:
            return MEMORY_BOUND
        return BETWEEN if intensity < self.ridge_high else COMPUTE_BOUND

    def attainable_flop_per_s(self, intensity: float, level: str = "DRAM") -> float:
        """The lower one of a level's ceiling and the CUDA cores'."""
        return min(self.core_flop_per_s, intensity * self.bytes_per_s(level))


def ceilings(spec: GpuSpec, precision: str) -> tuple[float, float]:
    """Peak of the CUDA cores and of the tensor cores; equal where there are no (faster) tensor cores for it."""
    tensor = {
        "fp64": spec.fp64_tensor_flop_per_s, "tf32": spec.tf32_tensor_flop_per_s, "fp16": spec.fp16_tensor_flop_per_s,
        "bf16": spec.bf16_tensor_flop_per_s, "fp8": spec.fp8_tensor_flop_per_s, "int8": spec.int8_tensor_op_per_s,
        # fp32 values enter tensor cores as tf32
        "fp32": spec.tf32_tensor_flop_per_s,
    }  # fmt: skip
    core, fastest = _core_flop_per_s(spec, precision), tensor.get(precision, 0.0)
    return core, fastest if fastest > ROUNDING * core else core


def _core_flop_per_s(spec: GpuSpec, precision: str) -> float:
    if precision == "fp64":
        return spec.fp64_flop_per_s
    if precision == "fp16":
        return spec.fp16_flop_per_s
    if precision == "bf16" and spec.capability >= 8.0:
        # packed bf16 has half the rate of packed fp16 on 8.0, and the same on all others that know it
        return spec.fp16_flop_per_s / (2.0 if spec.capability == 8.0 else 1.0)
    if precision == "int8":
        # dp4a: four products and four sums in each lane
        return 8.0 * spec.int32_lanes_per_sm * spec.sms * spec.clock_hz
    # narrower types than the cores know are computed with in fp32
    return spec.fp32_flop_per_s


def roof_of(spec: GpuSpec, precision: str = "fp32") -> Roof:
    """The roof of a GPU."""
    core, tensor = ceilings(spec, precision)
    return Roof(
        spec.name, precision, core, tensor, float(L1_BYTES_PER_CYCLE) * spec.sms * spec.clock_hz, spec.l2_bytes_per_s,
        spec.dram_bytes_per_s, spec.dram_read_bytes_per_s,
    )  # fmt: skip


# --- where work lies ---------------------------------------------------------------------------


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


def place(spec: GpuSpec, flop: float, bytes: float, precision: str = "fp32") -> Place:
    """Place a kernel (or a task) by its operations and the bytes it moves through DRAM."""
    roof = roof_of(spec, precision)
    intensity = flop / bytes if bytes > 0 else float("inf")
    attainable = roof.attainable_flop_per_s(intensity)
    return Place(
        roof.zone(intensity), intensity, roof.ridge_low, roof.ridge_high, roof.core_flop_per_s, roof.tensor_flop_per_s,
        attainable,
    )  # fmt: skip


def achieved_fraction(spec: GpuSpec, place: Place, flop: float, bytes: float, time_s: float) -> float:
    """The larger share of the two ceilings, DRAM and CUDA cores, that a kernel reaches."""
    return max(bytes / time_s / spec.dram_bytes_per_s, flop / time_s / place.core_flop_per_s)


def zone_of(spec: GpuSpec, place: Place, achieved_fraction: float) -> str:
    """The place's zone, or ``latency-bound`` when no ceiling is near.

    ``achieved_fraction`` is against peak; the bar is a quarter of what streaming kernels can reach.
    """
    return LATENCY_BOUND if not is_near(roof_of(spec), achieved_fraction) else place.zone


def is_near(roof: Roof, share: float) -> bool:
    """Whether such a share of some ceiling is enough to say that it binds."""
    return share >= NEAR * roof.dram_reached_bytes_per_s / roof.dram_bytes_per_s


@dataclass(frozen=True)
class Work:
    """What was counted: operations of the CUDA cores and of the tensor cores, and bytes that passed each level."""

    core_flop: float = 0.0
    tensor_flop: float = 0.0
    l1_bytes: float = 0.0
    l2_bytes: float = 0.0
    dram_bytes: float = 0.0

    @property
    def flop(self) -> float:
        return self.core_flop + self.tensor_flop

    def bytes(self, level: str) -> float:
        return (self.l1_bytes, self.l2_bytes, self.dram_bytes)[LEVELS.index(level)]

    def intensity(self, level: str) -> float | None:
        """Operations per byte of a level; None where one of the two is nothing and no picture has such a point."""
        moved = self.bytes(level)
        return self.flop / moved if moved > 0 and self.flop > 0 else None

    def nearest(self, roof: Roof, time_s: float) -> float:
        """The largest share of any ceiling that this work reaches in a time."""
        shares = [self.bytes(level) / roof.bytes_per_s(level) for level in LEVELS]
        shares += [self.core_flop / roof.core_flop_per_s, self.tensor_flop / roof.tensor_flop_per_s]
        return max(shares) / time_s

    def __add__(self, other: Work) -> Work:
        return Work(
            self.core_flop + other.core_flop, self.tensor_flop + other.tensor_flop, self.l1_bytes + other.l1_bytes,
            self.l2_bytes + other.l2_bytes, self.dram_bytes + other.dram_bytes,
        )  # fmt: skip


def launch_work(launch: Launch) -> Work:
    """From the counters (docs/counters.md); bytes of L1 are those of global memory."""
    flop = {c.name: c.value for c in launch.counters if c.name.startswith("flop_")}
    tensor = sum(value for name, value in flop.items() if name.startswith("flop_tensor"))
    l1 = sum(launch.counter(f"global_{kind}_sectors") for kind in ("load", "store", "atomic"))
    l2 = launch.counter("l2_read_sectors") + launch.counter("l2_write_sectors")
    dram = launch.counter("dram_read_bytes") + launch.counter("dram_write_bytes")
    return Work(sum(flop.values()) - tensor, tensor, l1 * SECTOR_BYTES, l2 * SECTOR_BYTES, dram)


def operation_work(operation: MemoryOperation) -> Work:
    """Fills write, copies over PCIe read or write, everything else reads and writes its bytes."""
    once = operation.kind in ("fill", "memset", "host-to-device", "device-to-host", "migration")
    moved = float(operation.bytes) * (1 if once else 2)
    return Work(core_flop=operation.flop, l2_bytes=moved, dram_bytes=moved)


def profile_work(profile: Profile) -> Work:
    """Of everything that a call did."""
    parts = [launch_work(launch) for launch in profile.launches]
    return sum((*parts, *map(operation_work, profile.operations)), Work())


def precision_in_use(launches: Sequence[Launch], precision: str) -> str:
    """The factors' type of most matrix products on tensor cores; the given one where there are none."""
    found: dict[str, float] = {}
    for launch in launches:
        for counter in launch.counters:
            if counter.name.startswith("flop_tensor_"):
                name = counter.name.removeprefix("flop_tensor_")
                found[name] = found.get(name, 0.0) + counter.value
    return max(found, key=lambda name: found[name]) if found else precision


# --- the least possible time -------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """A least possible time and its arithmetic: bytes over a bandwidth, operations over a peak."""

    bytes: float
    bytes_per_s: float
    flop: float
    flop_per_s: float

    @property
    def bytes_s(self) -> float:
        return self.bytes / self.bytes_per_s

    @property
    def flop_s(self) -> float:
        return self.flop / self.flop_per_s

    @property
    def time_s(self) -> float:
        return max(self.bytes_s, self.flop_s)

    @property
    def reason(self) -> str:
        """What takes the time, in words."""
        if self.bytes_s >= self.flop_s:
            return f"moving {self.bytes:.0f} bytes at {self.bytes_per_s / 1e9:.0f} GB/s"
        return f"{self.flop:.4g} operations at {self.flop_per_s / 1e12:.4g} Tflop/s"
