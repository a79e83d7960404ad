"""A GPU as data: the numbers that occupancy, the roofline and the time model need."""

from __future__ import annotations

from dataclasses import dataclass, replace

REGISTER_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class GpuSpec:
    """One GPU in SI units; ``origins`` says for each number where it is from.

    ``clock_hz`` is the boost clock; ``sustained_clock_hz`` is what the board holds under load, which is less where
    power limits it.  ``dram_bytes_per_s`` is the datasheet's peak, ``dram_read_bytes_per_s`` and
    ``dram_copy_bytes_per_s`` what streaming kernels reach; ``sgemm_flop_per_s`` is what the
    vendor's library reaches on large fp32 products.  Tensor-core peaks are dense, with fp32
    accumulation, and zero where there is no such unit.  ``fp16_lanes_per_sm`` are lanes of packed
    arithmetic, two numbers each.  ``l2_latency_cycles`` is that of the ``l2_near_bytes`` beside an
    SM; where the L2 is one partition, all of it is near.  ``l1_bytes_per_sm`` is shared by L1 and
    shared memory; ``shared_carveouts`` are the sizes in bytes that shared memory can have of it, and
    ``l1_kept_bytes_per_sm`` is what L1 keeps of a ring of pointers when shared memory has none.
    ``mma_share`` is what `mma.sync` sustains of the tensor cores' peak in large products.
    """

    name: str
    title: str
    architecture: str
    capability: float
    sms: int
    clock_hz: float
    sustained_clock_hz: float
    schedulers_per_sm: int
    fp32_lanes_per_sm: int
    fp64_lanes_per_sm: int
    fp16_lanes_per_sm: int
    int32_lanes_per_sm: int
    sfu_lanes_per_sm: int
    lsu_lanes_per_sm: int
    fp16_tensor_flop_per_s: float
    bf16_tensor_flop_per_s: float
    tf32_tensor_flop_per_s: float
    fp8_tensor_flop_per_s: float
    fp64_tensor_flop_per_s: float
    int8_tensor_op_per_s: float
    mma_share: float
    sgemm_flop_per_s: float
    registers_per_sm: int
    registers_per_thread: int
    threads_per_sm: int
    warps_per_sm: int
    blocks_per_sm: int
    threads_per_block: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    shared_bytes_per_block_optin: int
    shared_carveouts: tuple[int, ...]
    l1_bytes_per_sm: int
    l1_kept_bytes_per_sm: int
    l2_bytes: int
    l2_near_bytes: int
    l2_bytes_per_s: float
    dram_bytes: int
    dram_bytes_per_s: float
    dram_read_bytes_per_s: float
    dram_copy_bytes_per_s: float
    pcie_bytes_per_s: float
    l1_latency_cycles: float
    l2_latency_cycles: float
    l2_far_latency_cycles: float
    dram_latency_cycles: float
    launch_overhead_s: float
    origins: tuple[tuple[str, str], ...] = ()

    @property
    def fp32_flop_per_s(self) -> float:
        """Peak of the CUDA cores: two operations per lane and cycle (fused multiply-add)."""
        return 2.0 * self.fp32_lanes_per_sm * self.sms * self.clock_hz

    @property
    def fp64_flop_per_s(self) -> float:
        return 2.0 * self.fp64_lanes_per_sm * self.sms * self.clock_hz

    @property
    def fp16_flop_per_s(self) -> float:
        """Peak of packed half arithmetic without tensor cores: four operations per lane and cycle."""
        return 4.0 * self.fp16_lanes_per_sm * self.sms * self.clock_hz

    @property
    def int32_shares_fp32(self) -> bool:
        """Half of the fp32 lanes are the integer lanes as well."""
        return self.capability in (8.6, 8.9)

    @property
    def dram_write_bytes_per_s(self) -> float:
        """Writing alone is as fast as reading alone: what costs is to turn from one to the other."""
        return self.dram_read_bytes_per_s

    @property
    def on_chip_bytes(self) -> int:
        """What registers, L1 and shared memory, and L2 hold together."""
        return self.l2_bytes + self.sms * (self.registers_per_sm * REGISTER_BYTES + self.l1_bytes_per_sm)

    def dram_s(self, read_bytes: float, write_bytes: float) -> float:
        """Time to move the bytes at achieved rather than peak bandwidth, which is lowest for a one-to-one copy."""
        moved = read_bytes + write_bytes
        written = write_bytes / moved if moved > 0 else 0.0
        turning = max(0.0, self.dram_read_bytes_per_s / self.dram_copy_bytes_per_s - 1.0)
        return moved / self.dram_read_bytes_per_s * (1.0 + turning * 4.0 * written * (1.0 - written))

    def at_clock(self, clock_hz: float) -> GpuSpec:
        """The same GPU with its SMs at another clock; caches follow it, DRAM does not."""
        ratio = clock_hz / self.clock_hz
        scaled = {name: getattr(self, name) * ratio for name in CLOCKED}
        waits = self.dram_latency_cycles - self.l2_latency_cycles
        return replace(
            self, name=f"{self.name.partition('@')[0]}@{clock_hz / 1e6:g}mhz", clock_hz=clock_hz,
            sustained_clock_hz=min(clock_hz, self.sustained_clock_hz),
            dram_latency_cycles=self.l2_latency_cycles + waits * ratio, **scaled,
        )  # fmt: skip


CLOCKED = (
    "fp16_tensor_flop_per_s", "bf16_tensor_flop_per_s", "tf32_tensor_flop_per_s", "fp8_tensor_flop_per_s",
    "fp64_tensor_flop_per_s", "int8_tensor_op_per_s", "sgemm_flop_per_s", "l2_bytes_per_s",
)  # fmt: skip
"""Rates that follow the clock of the SMs."""
