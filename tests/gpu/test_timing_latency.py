"""What warps wait for, against values worked out by hand and against measured latencies and bandwidths."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cupilot.gpu import load_spec
from cupilot.gpu.timing import GAP_S, launch_parts, model_time
from cupilot.gpu.timing.latency import (
    BARRIER_CYCLES,
    BLOCK_CYCLES,
    QUEUE,
    STORE_CYCLES,
    Waiting,
    load_latency_cycles,
    round_trips,
    waiting,
)
from cupilot.records import Counter, Launch, Profile, Resources

A100 = load_spec("a100-80gb")
CLOCK = A100.clock_hz
L1, L2, FAR, DRAM = (
    A100.l1_latency_cycles, A100.l2_latency_cycles, A100.l2_far_latency_cycles, A100.dram_latency_cycles,
)  # fmt: skip
NEAR_BYTES = A100.l2_near_bytes


def make_launch(blocks: int = 108, threads: int = 32, resources: Resources | None = None, **counters: float) -> Launch:
    found = tuple(Counter(name, value, "PTX") for name, value in counters.items())
    return Launch("kernel", (blocks, 1, 1), (threads, 1, 1), 0, resources or Resources(32), blocks, found)


def make_loads(trips: float, sectors: float, l2: float = 0.0, dram: float = 0.0, **more: float) -> Launch:
    """Sectors that loads ask for, and how many of them the L2 and DRAM are asked for."""
    return make_launch(
        sass_instructions=1.0, round_trips=trips, global_load_sectors=sectors, l2_read_sectors=l2,
        dram_read_bytes=32 * dram, **more,
    )  # fmt: skip


# --- the length of a round trip ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("l2", "dram", "cycles"),
    [
        # one sector per trip: as long as the mean of its sectors
        (0, 0, L1),
        (100, 0, L2),
        (100, 100, DRAM),
        (50, 0, (L1 + L2) / 2),
        (100, 25, 0.75 * L2 + 0.25 * DRAM),
        (50, 25, 0.5 * L1 + 0.25 * L2 + 0.25 * DRAM),
    ],
)
def test_a_trip_goes_to_the_level_that_has_the_data(l2, dram, cycles):
    assert load_latency_cycles(make_loads(100, 100, l2, dram), A100) == pytest.approx(cycles)


def test_a_trip_is_as_long_as_its_furthest_sector():
    """Four sectors per trip: with one of four missing, each trip has one that does; with one of eight, half of them."""
    assert load_latency_cycles(make_loads(100, 400, 100), A100) == pytest.approx(L2)
    assert load_latency_cycles(make_loads(100, 400, 50), A100) == pytest.approx((L1 + L2) / 2)
    assert load_latency_cycles(make_loads(100, 400, 400, 100), A100) == pytest.approx(DRAM)
    assert load_latency_cycles(make_loads(100, 400, 400, 400), A100) == pytest.approx(DRAM)


def test_without_loads_there_is_nothing_to_wait_for():
    assert load_latency_cycles(make_launch(), A100) == 0.0
    assert load_latency_cycles(make_loads(0, 100), A100) == 0.0
    assert load_latency_cycles(make_loads(100, 0), A100) == 0.0
    assert waiting(make_launch(warp_instructions=1e6), A100).memory_s == 0.0


@pytest.mark.parametrize(("over", "share"), [(-0.1, 0.0), (0.15, 0.5), (0.4, 1.0), (5.0, 1.0)])
def test_the_far_partition_is_further(over, share):
    footprint = NEAR_BYTES * (1 + over)
    found = load_latency_cycles(make_loads(100, 100, 100, footprint_bytes=footprint), A100)
    assert found == pytest.approx(L2 + share * (FAR - L2))
    # what DRAM is asked for takes as long as ever, and what the L1 has
    assert load_latency_cycles(make_loads(100, 100, 100, 100, footprint_bytes=footprint), A100) == pytest.approx(DRAM)
    assert load_latency_cycles(make_loads(100, 100, footprint_bytes=footprint), A100) == pytest.approx(L1)


def test_the_far_partition_is_never_further_than_dram():
    """At a low clock DRAM is few cycles away: 211 and a fifth of 360."""
    slow = A100.at_clock(CLOCK / 5)
    assert slow.dram_latency_cycles == pytest.approx(L2 + (DRAM - L2) / 5)
    assert slow.dram_latency_cycles < FAR
    launch = make_loads(100, 100, 100, footprint_bytes=2 * NEAR_BYTES)
    assert load_latency_cycles(launch, slow) == pytest.approx(slow.dram_latency_cycles)


# --- round trips and what covers them ------------------------------------------------------------


def test_machine_code_says_how_often_a_warp_waits():
    """216 warps with three trips each, 50 cycles of their own to each trip."""
    launch = make_launch(
        108, 64, sass_instructions=1.0, round_trips=648.0, covered_cycles=648 * 50.0, global_load_requests=1e6
    )
    assert round_trips(launch) == (3.0, 150.0)


def test_the_ptx_says_how_many_loads_are_waited_for_together():
    launch = make_launch(
        108, 64, global_load_requests=216 * 12.0, independent_loads=4.0, round_trips=1e6, covered_cycles=1e6
    )
    assert round_trips(launch) == (3.0, 0.0)
    alone = make_launch(108, 64, global_load_requests=216 * 12.0)
    assert round_trips(alone) == (12.0, 0.0)


@pytest.mark.parametrize(("covered", "left"), [(0.0, 3 * DRAM), (500.0, 3 * DRAM - 500), (3 * DRAM, 0.0), (1e6, 0.0)])
def test_what_a_warp_does_meanwhile_shortens_its_wait(covered, left):
    launch = make_loads(324, 324, 324, 324, covered_cycles=108 * covered)
    assert waiting(launch, A100).memory_s == pytest.approx(left / CLOCK)


def test_the_heaviest_block_of_a_single_wave_waits_longest():
    loads = {"global_load_requests": 108.0, "global_load_sectors": 432.0, "l2_read_sectors": 432.0}
    even, uneven = (
        waiting(make_launch(**loads, warp_instructions=1080.0, heaviest_block=most), A100) for most in (10.0, 20.0)
    )
    assert even.memory_s > 0
    assert uneven.memory_s == pytest.approx(2 * even.memory_s)
    assert uneven.fixed_s == even.fixed_s


def test_independent_loads_are_waited_for_once():
    counters = {"global_load_requests": 108 * 8.0, "global_load_sectors": 108 * 32.0, "l2_read_sectors": 108 * 32.0}
    one, four = (waiting(make_launch(**counters, independent_loads=n), A100).memory_s for n in (1.0, 4.0))
    assert one == pytest.approx(4 * four)
    assert four == pytest.approx(2 * L2 / CLOCK)


# --- blocks, stores, barriers, waves -------------------------------------------------------------


def test_a_block_takes_time_to_start_and_stores_to_leave():
    assert waiting(make_launch(), A100) == Waiting(BLOCK_CYCLES / CLOCK, 0.0)
    assert waiting(make_launch(global_load_requests=1.0), A100).fixed_s == BLOCK_CYCLES / CLOCK
    stored = waiting(make_launch(global_store_requests=1.0), A100)
    assert stored.fixed_s == pytest.approx((BLOCK_CYCLES + STORE_CYCLES) / CLOCK)
    # once, however many there are
    assert waiting(make_launch(global_store_requests=1e6), A100) == stored


def test_each_barrier_lengthens_the_path_of_a_warp():
    """Eight warps in each of 108 blocks meet ten times."""
    launch = make_launch(108, 256, barriers=108 * 8 * 10.0)
    assert waiting(launch, A100).fixed_s == pytest.approx((BLOCK_CYCLES + 10 * BARRIER_CYCLES) / CLOCK)


@pytest.mark.parametrize(("registers", "sets"), [(32, 4), (64, 8), (128, 16)])
def test_sets_of_resident_blocks_wait_one_after_another(registers, sets):
    """64 warps fit into an SM with 32 registers each, and fewer with more of them."""
    blocks = 108 * 32
    launch = make_launch(
        blocks, 256, Resources(registers), sass_instructions=1.0, round_trips=blocks * 8.0,
        global_load_sectors=blocks * 8.0, l2_read_sectors=blocks * 8.0,
    )  # fmt: skip
    found = waiting(launch, A100)
    assert (found.fixed_s, found.memory_s) == pytest.approx((sets * BLOCK_CYCLES / CLOCK, sets * L2 / CLOCK))


# --- busy memory ---------------------------------------------------------------------------------


def test_busy_dram_lengthens_round_trips_and_nothing_else():
    waits = Waiting(3.0, 5.0)
    assert waits.seconds(0.0) == 8.0
    assert waits.seconds(1.0) == pytest.approx(3.0 + 5.0 * (1.0 + QUEUE))
    assert waits.seconds(0.5) == pytest.approx((waits.seconds(0.0) + waits.seconds(1.0)) / 2)
    assert 0.0 < QUEUE < 2.0


def test_a_pointer_chase_takes_the_latency_of_each_level():
    """A lone warp makes 10,000 dependent loads of one sector, with six cycles of its own to each."""
    far = {"footprint_bytes": 1.5 * NEAR_BYTES}
    levels = [(L1, 0, 0, {}), (L2, 1e4, 0, {}), (FAR, 1e4, 0, far), (DRAM, 1e4, 1e4, far)]
    for cycles, l2, dram, more in levels:
        launch = make_launch(
            1, 32, sass_instructions=2e4, path_cycles=6e4, round_trips=1e4, global_load_requests=1e4,
            global_load_sectors=1e4, l2_read_sectors=l2, dram_read_bytes=32 * dram, **more,
        )  # fmt: skip
        timed = model_time(Profile("test", (launch,)), A100, "test")
        assert timed.limit == "latency"
        assert timed.time_s * CLOCK / 1e4 == pytest.approx(cycles, rel=0.15)


def make_stream(elements: int, outputs: int, block: int = 64, per_thread: int = 1, shared_bytes: int = 0) -> Launch:
    """A pass over doubles as PTX tells it: one load per thread, and a store of what was made of it."""
    blocks = elements // (block * per_thread)
    warps = blocks * block / 32
    sectors = warps * per_thread * 8
    return make_launch(
        blocks, block, Resources(16, static_shared_bytes=shared_bytes),
        warp_instructions=warps * (16 + 2 * per_thread), instructions_fp64=warps * per_thread,
        instructions_int=warps * 9, instructions_control=warps * 3, independent_loads=1.0,
        global_load_requests=warps, global_load_sectors=sectors, l2_read_sectors=sectors,
        global_store_requests=outputs * warps, global_store_sectors=outputs * sectors,
        l2_write_sectors=outputs * sectors, dram_read_bytes=sectors * 32, dram_write_bytes=outputs * sectors * 32,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("outputs", "resident", "measured_gb_per_s"),
    [(0, 1, 85), (0, 8, 619), (0, 16, 1122), (0, 32, 1769), (1, 1, 157), (1, 8, 1026), (1, 16, 1577), (1, 32, 1732)],
)
def test_bandwidth_grows_with_occupancy_as_measured(outputs, resident, measured_gb_per_s):
    """STREAM's read and scale on an A100; shared memory holds the number of resident blocks down."""
    elements = 1 << 27
    launch = make_stream(elements, outputs, shared_bytes=164 * 1024 // resident // 128 * 128 - 1024)
    time_s = sum(launch_parts(launch, A100).values())
    gb_per_s = (1 + outputs) * elements * 8 / time_s / 1e9
    assert 1 / 1.25 < gb_per_s / measured_gb_per_s < 1.25, f"{gb_per_s:.0f} GB/s"


@pytest.mark.parametrize(("elements", "measured_gb_per_s"), [(1042953, 2421), (328786, 1327), (22657553, 1711)])
def test_small_kernels_reach_the_measured_bandwidth(elements, measured_gb_per_s):
    """Scale of two doubles per thread, launched again and again; up to 40 MB all of it stays in the L2."""
    launch = make_stream(elements, 1, block=256, per_thread=2)
    if elements * 16 < A100.l2_bytes:
        launch = replace(launch, counters=tuple(c for c in launch.counters if not c.name.startswith("dram_")))
    time_s = sum(launch_parts(launch, A100).values()) + GAP_S
    assert 1 / 1.3 < elements * 16 / time_s / 1e9 / measured_gb_per_s < 1.3
