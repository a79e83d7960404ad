"""What happens beside a kernel's own work, against values worked out by hand."""

from __future__ import annotations

import pytest

from cupilot.gpu import load_spec
from cupilot.gpu.timing import launch_parts
from cupilot.gpu.timing.aside import (
    CONST_MISS_CYCLES,
    CONST_PASS_CYCLES,
    HEAP_S,
    MIGRATION_S,
    PCIE_LATENCY_S,
    PRINT_S,
    clock_cycles,
    constant_cycles,
    idle_s,
    serial_parts,
)
from cupilot.gpu.timing.latency import waiting
from cupilot.gpu.timing.local import local_traffic, spilled_bytes
from cupilot.gpu.timing.throughput import chip_times
from cupilot.records import Counter, Launch, Resources

A100 = load_spec("a100-80gb")


def make_launch(blocks: int = 108, threads: int = 32, resources: Resources | None = None, **counters: float) -> Launch:
    found = tuple(Counter(name, value, "PTX") for name, value in counters.items())
    return Launch("kernel", (blocks, 1, 1), (threads, 1, 1), 0, resources or Resources(32), blocks, found)


def test_one_address_of_constant_memory_is_free_and_each_further_one_is_not() -> None:
    assert constant_cycles(make_launch(const_requests=10, const_passes=10)) == 0
    assert constant_cycles(make_launch(const_requests=10, const_passes=320)) == 310 * CONST_PASS_CYCLES
    assert constant_cycles(make_launch(const_requests=10, const_passes=10, const_misses=5)) == 5 * CONST_MISS_CYCLES


def test_the_longest_sleep_counts_and_the_mean_of_all_waves() -> None:
    once = make_launch(longest_sleep_ns=1000, sleep_ns=1000)
    assert idle_s(once, waves=50) == pytest.approx(1e-6)
    everywhere = make_launch(blocks=100, threads=64, longest_sleep_ns=1000, sleep_ns=200 * 1000)
    assert idle_s(everywhere, waves=50) == pytest.approx(50e-6)
    assert clock_cycles(make_launch(blocks=10, longest_clock_cycles=640, clock_cycles=6400), waves=2) == 1280


def test_sleep_makes_a_launch_longer() -> None:
    def time_s(**counters: float) -> float:
        return sum(launch_parts(make_launch(sass_instructions=1.0, **counters), A100).values())

    assert time_s(longest_sleep_ns=1e5) > time_s() + 0.9e-4
    assert time_s(longest_clock_cycles=1.41e5) > time_s() + 0.9e-4


def test_prints_heap_and_pages_come_one_after_the_other() -> None:
    assert serial_parts(make_launch(), A100) == {}
    found = serial_parts(make_launch(prints=10, heap_calls=20, migrated_bytes=3 << 20), A100)
    assert found["print"] == pytest.approx(10 * PRINT_S)
    assert found["heap"] == pytest.approx(20 * HEAP_S)
    assert found["migration"] == pytest.approx(2 * (3 << 20) / A100.pcie_bytes_per_s + 2 * MIGRATION_S)


def test_memory_of_the_host_is_as_far_and_as_narrow_as_pcie() -> None:
    launch = make_launch(host_read_bytes=1e9, host_write_bytes=1e9, sass_instructions=1.0)
    assert chip_times(launch, A100)["pcie"] == pytest.approx(2e9 / A100.pcie_bytes_per_s)
    assert waiting(launch, A100).memory_s == pytest.approx(PCIE_LATENCY_S)


def test_spills_count_as_often_as_the_machine_code_makes_them() -> None:
    spills = Resources(32, spill_bytes=8)
    assert spilled_bytes(make_launch(resources=spills)) == 8 * 32 * 108
    known = make_launch(resources=spills, sass_instructions=1.0, local_machine_bytes=5000.0, local_load_bytes=1000.0)
    assert spilled_bytes(known) == 4000
    # an array that only some lanes reach is no spill
    assert spilled_bytes(make_launch(sass_instructions=1.0, local_machine_bytes=5000.0, local_load_bytes=1000.0)) == 0


def test_scattered_lanes_take_a_line_each() -> None:
    together = make_launch(local_load_bytes=128.0, local_load_sectors=4.0, local_load_wavefronts=1.0)
    apart = make_launch(local_load_bytes=128.0, local_load_sectors=32.0, local_load_wavefronts=32.0)
    assert local_traffic(together, A100).wavefronts == 1
    assert local_traffic(apart, A100).wavefronts == 32


def test_frames_that_do_not_fit_go_to_l2_and_dram() -> None:
    def traffic(frame: float):
        return local_traffic(
            make_launch(10800, 1024, local_load_bytes=1e6, local_store_bytes=1e6, local_frame_bytes=frame), A100
        )

    assert traffic(16).l2_bytes == 1e6  # stores only
    assert traffic(16).dram_bytes == 0
    assert traffic(1024).l2_bytes == 2e6
    assert traffic(1024).dram_bytes == 2e6
