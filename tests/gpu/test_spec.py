"""The numbers of every GPU agree with each other and with what the datasheets state apart from them."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupilot.gpu import GpuSpec, load_spec, spec_names
from cupilot.gpu.spec import CLOCKED

SPECS = [load_spec(name) for name in spec_names()]
every_gpu = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)

# datasheet peaks: fp32, packed fp16 and fp64 operations per second
PEAKS = {
    "a10": (31.2e12, 31.2e12, 0.488e12),
    "a100-40gb": (19.5e12, 78e12, 9.7e12),
    "a100-80gb": (19.5e12, 78e12, 9.7e12),
    "a100-pcie-40gb": (19.5e12, 78e12, 9.7e12),
    "a6000": (38.7e12, 38.7e12, 0.605e12),
    "b200": (75e12, 150e12, 37e12),
    "h100-pcie": (51.2e12, 102.4e12, 25.6e12),
    "h100-sxm": (66.9e12, 133.8e12, 33.5e12),
    "h200": (66.9e12, 133.8e12, 33.5e12),
    "l4": (30.3e12, 30.3e12, 0.473e12),
    "l40s": (91.6e12, 91.6e12, 1.43e12),
    "rtx-3090": (35.6e12, 35.6e12, 0.556e12),
    "rtx-3090-ti": (40.0e12, 40.0e12, 0.625e12),
    "rtx-4090": (82.6e12, 82.6e12, 1.29e12),
    "t4": (8.1e12, 16.2e12, 0.254e12),
    "v100": (15.7e12, 31.4e12, 7.8e12),
}

# dense fp16 multiply-adds with fp32 accumulation per SM and cycle of the tensor cores: half as many on GeForce
TENSOR_FMA = {7.0: 512, 7.5: 512, 8.0: 1024, 8.6: 512, 8.9: 512, 9.0: 2048, 10.0: 4096}
GEFORCE = ("rtx-3090", "rtx-3090-ti", "rtx-4090")
# where the datasheet states tensor peaks at a clock of their own
TENSOR_HZ = {"h100-pcie": 1.62e9, "h100-sxm": 1.83e9, "h200": 1.83e9, "b200": 1.855e9}

# per capability: registers and threads of an SM, its blocks, KB of L1 and shared memory, KB for one block
LIMITS = {
    7.0: (65536, 2048, 32, 128, 96, 96),
    7.5: (65536, 1024, 16, 96, 64, 64),
    8.0: (65536, 2048, 32, 192, 164, 163),
    8.6: (65536, 1536, 16, 128, 100, 99),
    8.9: (65536, 1536, 24, 128, 100, 99),
    9.0: (65536, 2048, 32, 256, 228, 227),
    10.0: (65536, 2048, 32, 256, 228, 227),
}


# datasheet: GB and GB/s of memory, MB of L2 (from the driver for H200 and B200), generation of PCIe
MEMORY = {
    "a10": (24, 600, 6, 4),
    "a100-40gb": (40, 1555, 40, 4),
    "a100-80gb": (80, 2039, 40, 4),
    "a100-pcie-40gb": (40, 1555, 40, 4),
    "a6000": (48, 768, 6, 4),
    "b200": (180, 7672, 126.5, 5),
    "h100-pcie": (80, 2039, 50, 5),
    "h100-sxm": (80, 3352, 50, 5),
    "h200": (141, 4800, 60, 5),
    "l4": (24, 300, 48, 4),
    "l40s": (48, 864, 96, 4),
    "rtx-3090": (24, 936, 6, 4),
    "rtx-3090-ti": (24, 1008, 6, 4),
    "rtx-4090": (24, 1008, 72, 4),
    "t4": (16, 320, 4, 3),
    "v100": (32, 900, 6, 3),
}
PCIE_BYTES_PER_S = {3: 12e9, 4: 25e9, 5: 50e9}


@every_gpu
def test_lanes_and_clock_give_the_datasheet_peaks(spec: GpuSpec) -> None:
    assert (spec.fp32_flop_per_s, spec.fp16_flop_per_s, spec.fp64_flop_per_s) == pytest.approx(
        PEAKS[spec.name], rel=0.01
    )


@every_gpu
def test_tensor_peaks_are_multiples_of_the_sms_and_their_clock(spec: GpuSpec) -> None:
    fma = TENSOR_FMA[spec.capability] // (2 if spec.name in GEFORCE else 1)
    fp16 = 2.0 * fma * spec.sms * TENSOR_HZ.get(spec.name, spec.clock_hz)
    # the L40S' datasheet is 1.2 % below its own tf32
    assert spec.fp16_tensor_flop_per_s == pytest.approx(fp16, rel=0.013)
    ampere = spec.capability >= 8.0
    assert spec.bf16_tensor_flop_per_s == (spec.fp16_tensor_flop_per_s if ampere else 0.0)
    assert spec.tf32_tensor_flop_per_s == pytest.approx(fp16 / 2 if ampere else 0.0, rel=0.01)
    assert spec.fp8_tensor_flop_per_s == pytest.approx(2 * fp16 if spec.capability >= 8.9 else 0.0, rel=0.01)
    # integers do not care how floats are accumulated
    int8 = fp16 * (4 if spec.name in GEFORCE else 2) if spec.capability >= 7.5 else 0.0
    assert spec.int8_tensor_op_per_s == pytest.approx(int8, rel=0.01)


@every_gpu
def test_fp64_tensor_cores_double_the_lanes_or_are_not_there(spec: GpuSpec) -> None:
    share = {8.0: 2.0, 9.0: 2.0, 10.0: 1.0}.get(spec.capability, 0.0)
    assert spec.fp64_tensor_flop_per_s == pytest.approx(share * spec.fp64_flop_per_s, rel=0.01)


@every_gpu
def test_limits_are_those_of_the_compute_capability(spec: GpuSpec) -> None:
    found = (
        spec.registers_per_sm, spec.threads_per_sm, spec.blocks_per_sm, spec.l1_bytes_per_sm // 1024,
        spec.shared_bytes_per_sm // 1024, spec.shared_bytes_per_block_optin // 1024,
    )  # fmt: skip
    assert found == LIMITS[spec.capability]
    assert (spec.registers_per_thread, spec.threads_per_block, spec.shared_bytes_per_block) == (255, 1024, 48 * 1024)
    assert spec.threads_per_sm == 32 * spec.warps_per_sm
    reserved = 1024 if spec.capability >= 8.0 else 0
    assert spec.shared_bytes_per_block_optin == spec.shared_bytes_per_sm - reserved


@every_gpu
def test_units_of_an_sm(spec: GpuSpec) -> None:
    units = (spec.schedulers_per_sm, spec.int32_lanes_per_sm, spec.sfu_lanes_per_sm, spec.lsu_lanes_per_sm)
    # a Turing SM has half the others' way to L1 and shared memory
    assert units == (4, 64, 16, 16 if spec.capability == 7.5 else 32)


@every_gpu
def test_memory_is_the_datasheets(spec: GpuSpec) -> None:
    found = (spec.dram_bytes / 2**30, spec.dram_bytes_per_s / 1e9, spec.l2_bytes / 2**20)
    *expected, pcie = MEMORY[spec.name]
    assert found == pytest.approx(tuple(expected))
    assert spec.pcie_bytes_per_s == PCIE_BYTES_PER_S[pcie]


@every_gpu
def test_carveouts_rise_to_what_an_sm_has_and_leave_some_l1(spec: GpuSpec) -> None:
    assert list(spec.shared_carveouts) == sorted(set(spec.shared_carveouts))
    assert spec.shared_carveouts[-1] == spec.shared_bytes_per_sm < spec.l1_bytes_per_sm


@every_gpu
def test_bandwidths_fall_from_level_to_level(spec: GpuSpec) -> None:
    l1 = 4.0 * spec.lsu_lanes_per_sm * spec.sms * spec.clock_hz
    assert spec.pcie_bytes_per_s < spec.dram_bytes_per_s < spec.l2_bytes_per_s < l1
    assert spec.dram_copy_bytes_per_s > 0.65 * spec.dram_bytes_per_s
    assert spec.dram_copy_bytes_per_s < spec.dram_read_bytes_per_s < spec.dram_bytes_per_s
    assert spec.dram_write_bytes_per_s == spec.dram_read_bytes_per_s
    # the L2 gives an SM 64 bytes per cycle at best, and rarely much over half of that
    assert 14 < spec.l2_bytes_per_s / spec.sms / spec.clock_hz < 40


@every_gpu
def test_latencies_rise_from_level_to_level(spec: GpuSpec) -> None:
    assert 28 <= spec.l1_latency_cycles <= 40
    assert 5 < spec.l2_latency_cycles / spec.l1_latency_cycles < 9
    assert spec.l2_latency_cycles <= spec.l2_far_latency_cycles < spec.dram_latency_cycles
    assert 200e-9 < spec.dram_latency_cycles / spec.clock_hz < 450e-9
    assert 1.5e-6 < spec.launch_overhead_s < 3e-6


@every_gpu
def test_the_l2_is_one_partition_or_two_halves(spec: GpuSpec) -> None:
    halves = spec.capability in (8.0, 9.0, 10.0)
    assert spec.l2_near_bytes == (spec.l2_bytes // 2 if halves else spec.l2_bytes)
    further = spec.l2_far_latency_cycles - spec.l2_latency_cycles
    assert 205 <= further <= 215 if halves else further == 0


@every_gpu
def test_library_products_reach_a_share_of_the_peak(spec: GpuSpec) -> None:
    assert 0.4 < spec.sgemm_flop_per_s / spec.fp32_flop_per_s < 1.0


@every_gpu
def test_integers_share_lanes_with_floats_on_the_smaller_amperes_and_adas(spec: GpuSpec) -> None:
    assert spec.int32_shares_fp32 == (spec.name in (
        "a10", "a6000", "rtx-3090", "rtx-3090-ti", "l4", "l40s", "rtx-4090",
    ))  # fmt: skip


# --- DRAM ----------------------------------------------------------------------------------------

fixed = settings(derandomize=True, deadline=None, database=None)
bytes_moved = st.floats(0.0, 1e12)


@every_gpu
def test_a_copy_takes_the_measured_time_and_one_way_alone_that_of_reading(spec: GpuSpec) -> None:
    assert spec.dram_s(1e9, 1e9) == pytest.approx(2e9 / spec.dram_copy_bytes_per_s)
    assert spec.dram_s(1e9, 0) == spec.dram_s(0, 1e9) == pytest.approx(1e9 / spec.dram_read_bytes_per_s)
    assert spec.dram_s(0, 0) == 0.0


def test_a_quarter_of_writes_has_three_quarters_of_the_turns() -> None:
    """A byte takes 1 when all go one way and 2 in a copy; 4 x 1/4 x 3/4 of the difference are 3/4."""
    spec = replace(load_spec("a100-80gb"), dram_read_bytes_per_s=1.0, dram_copy_bytes_per_s=0.5)
    assert spec.dram_s(1, 1) == 4.0
    assert spec.dram_s(3, 1) == spec.dram_s(1, 3) == 4 * 1.75
    # a copy is never faster than reading
    assert replace(spec, dram_copy_bytes_per_s=2.0).dram_s(1, 1) == 2.0


@fixed
@given(st.sampled_from(SPECS), bytes_moved, bytes_moved, st.floats(1.0, 1e12))
def test_more_bytes_take_longer_at_a_rate_between_copying_and_reading(
    spec: GpuSpec, read: float, written: float, more: float
) -> None:
    time_s = spec.dram_s(read, written)
    moved = read + written
    assert time_s >= (1 - 1e-9) * moved / spec.dram_read_bytes_per_s
    assert time_s <= (1 + 1e-9) * moved / spec.dram_copy_bytes_per_s
    assert spec.dram_s(written, read) == pytest.approx(time_s)
    assert spec.dram_s(read + more, written) > time_s
    assert spec.dram_s(read, written + more) > time_s


@fixed
@given(st.sampled_from(SPECS), st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_the_nearer_to_a_copy_the_slower(spec: GpuSpec, one: float, other: float) -> None:
    fewer, more = sorted((one, other))
    assert spec.dram_s(1 - fewer, fewer) <= (1 + 1e-9) * spec.dram_s(1 - more, more)


@pytest.mark.parametrize(
    ("name", "triad", "reached"),
    # STREAM's triad, two reads per write, at full occupancy; eight ninths of a copy's turns are too many for the H200
    [("a100-80gb", 1759e9, 0.03), ("a100-40gb", 1360e9, 0.06), ("h100-pcie", 1832e9, 0.06), ("h200", 3534e9, 0.10),
     ("v100", 814e9, 0.03)],
)  # fmt: skip
def test_read_and_copy_rates_give_the_measured_triad(name: str, triad: float, reached: float) -> None:
    assert 3.0 / load_spec(name).dram_s(2.0, 1.0) == pytest.approx(triad, rel=reached)


# --- another clock -------------------------------------------------------------------------------


@every_gpu
def test_at_half_the_clock_sms_and_caches_have_half_the_speed(spec: GpuSpec) -> None:
    half = spec.at_clock(spec.clock_hz / 2)
    assert half.clock_hz == spec.clock_hz / 2
    for rate in ("fp32_flop_per_s", "fp64_flop_per_s", "fp16_flop_per_s", *CLOCKED):
        assert getattr(half, rate) == pytest.approx(getattr(spec, rate) / 2), rate
    assert half.dram_s(2.0, 1.0) == spec.dram_s(2.0, 1.0)


@every_gpu
def test_at_another_clock_the_way_from_l2_to_dram_takes_its_time(spec: GpuSpec) -> None:
    half = spec.at_clock(spec.clock_hz / 2)
    assert half.l2_latency_cycles == spec.l2_latency_cycles
    way_s, half_way_s = ((s.dram_latency_cycles - s.l2_latency_cycles) / s.clock_hz for s in (spec, half))
    assert half_way_s == pytest.approx(way_s)


@every_gpu
def test_a_clock_changes_nothing_else(spec: GpuSpec) -> None:
    other = spec.at_clock(1.2 * spec.clock_hz)
    changed = {f.name for f in fields(GpuSpec) if getattr(other, f.name) != getattr(spec, f.name)}
    there = {name for name in CLOCKED if getattr(spec, name)}
    assert changed == {"name", "clock_hz", "dram_latency_cycles", *there}
    # what runs at the clock of the SMs: all rates of arithmetic, and of the L2
    rates = {f.name for f in fields(GpuSpec) if f.name.endswith("_per_s") and not f.name.startswith(("dram", "pcie"))}
    assert set(CLOCKED) == rates


def test_its_own_clock_changes_the_name_only() -> None:
    spec = load_spec("v100")
    same = spec.at_clock(spec.clock_hz)
    assert same.name == "v100@1530mhz"
    assert replace(same, name="v100") == spec


def test_the_chip_holds_registers_shared_memory_and_l2() -> None:
    assert load_spec("a100-80gb").on_chip_bytes == 41943040 + 108 * (65536 * 4 + 196608)


@every_gpu
def test_no_board_holds_more_than_its_boost_clock(spec: GpuSpec) -> None:
    assert 0.5 < spec.sustained_clock_hz / spec.clock_hz <= 1.0
    assert spec.at_clock(spec.clock_hz / 2).sustained_clock_hz == spec.clock_hz / 2
