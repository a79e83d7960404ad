"""A GPU as data: the numbers that occupancy, the roofline and the time model need."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuSpec:
    """One GPU in SI units; ``origins`` says for each number where it is from.

    ``dram_bytes_per_s`` is the datasheet's peak, ``dram_read_bytes_per_s`` and
    ``dram_copy_bytes_per_s`` what streaming kernels reach; ``sgemm_flop_per_s`` is what the
    vendor's library reaches on large fp32 products.
    """

    name: str
    title: str
    architecture: str
    capability: float
    sms: int
    clock_hz: float
    schedulers_per_sm: int
    fp32_lanes_per_sm: int
    fp64_lanes_per_sm: int
    int32_lanes_per_sm: int
    sfu_lanes_per_sm: int
    lsu_lanes_per_sm: int
    fp16_tensor_flop_per_s: float
    tf32_tensor_flop_per_s: float
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
    l1_bytes_per_sm: int
    l2_bytes: int
    l2_bytes_per_s: float
    dram_bytes: int
    dram_bytes_per_s: float
    dram_read_bytes_per_s: float
    dram_copy_bytes_per_s: float
    l1_latency_cycles: float
    l2_latency_cycles: float
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
    def fp16_lanes_per_sm(self) -> int:
        """Lanes of packed half arithmetic (two numbers each): the data-centre chips have twice those of the others."""
        return 128 if self.capability in (8.0, 9.0, 10.0) else 64

    @property
    def fp16_flop_per_s(self) -> float:
        """Peak of packed half arithmetic without tensor cores: four operations per lane and cycle."""
        return 4.0 * self.fp16_lanes_per_sm * self.sms * self.clock_hz

    @property
    def dram_write_bytes_per_s(self) -> float:
        """What the writing half of a copy reaches, given what reading alone and a one-to-one copy reach."""
        return 1.0 / (2.0 / self.dram_copy_bytes_per_s - 1.0 / self.dram_read_bytes_per_s)

    def dram_s(self, read_bytes: float, write_bytes: float) -> float:
        """Time to move the bytes at achieved rather than peak bandwidth."""
        return read_bytes / self.dram_read_bytes_per_s + write_bytes / self.dram_write_bytes_per_s
