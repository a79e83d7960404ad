"""The time model against measured kernels, from counters derived by hand, and part by part."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest

from cupilot.gpu import GpuSpec, load_spec
from cupilot.records import Counter, Launch, MemoryOperation, Profile, Resources
from cupilot.vgpu import timing

A100_40 = load_spec("a100-40gb")
A100_80 = load_spec("a100-80gb")
N = 4096
MATRIX_BYTES = 4.0 * N * N


def make_launch(grid: int, block: int, resources: Resources | None = None, **counters: float) -> Launch:
    found = tuple(Counter(name, value, "PTX") for name, value in counters.items())
    return Launch("kernel", (grid, 1, 1), (block, 1, 1), 0, resources or Resources(32), grid, found)


def seconds(launch: Launch, spec: GpuSpec = A100_40) -> float:
    return timing.model_time(Profile("test", (launch,)), spec, "test").time_s


# --- SGEMM, M = N = K = 4096, A100-SXM4-40GB ------------------------------------------------------


@dataclass(frozen=True)
class Gemm:
    """One step of the ladder: what a warp does per step of K, read off the kernel's inner loop in PTX.

    ``ffma`` is outputs per thread, ``wavefronts`` shared loads with their bank conflicts, ``integer`` and
    ``control`` address arithmetic and loop.  ``loads`` are global load requests with ``sectors`` in all;
    ``group`` of them are issued before one is waited for.  ``tile`` is the block's tile of C and ``depth``
    its K, zero without shared memory; ``passes`` is how often A or B comes from DRAM.
    """

    measured_ms: float
    tile: int
    threads: int
    registers: int
    ffma: float
    loads: float
    sectors: float
    group: float
    integer: float
    control: float
    passes: float
    depth: int = 0
    shared_loads: float = 0.0
    wavefronts: float = 0.0
    store_wavefronts: float = 0.0

    @property
    def launch(self) -> Launch:
        blocks = (N // self.tile) ** 2
        warps = blocks * self.threads / 32
        steps = warps * N
        # each block reads a strip of A and one of B once through the L1 (from the L2), C once
        l2_read = blocks * 2 * self.tile * N * 4 / 32 + MATRIX_BYTES / 32
        barriers = 2 * N / self.depth * warps if self.depth else 0.0
        shared_stores = self.loads if self.depth else 0.0
        outputs = N * N / 32
        mix = self.ffma + self.loads + self.shared_loads + shared_stores + self.integer + self.control
        return make_launch(
            blocks,
            self.threads,
            Resources(self.registers, static_shared_bytes=2 * self.tile * self.depth * 4),
            warp_instructions=steps * mix + barriers,
            instructions_fp32=steps * self.ffma + 2 * outputs,
            instructions_int=steps * self.integer,
            instructions_control=steps * self.control + barriers,
            global_load_requests=steps * self.loads + outputs,
            global_load_sectors=steps * self.sectors + 4 * outputs,
            global_store_requests=outputs,
            global_store_sectors=4 * outputs,
            l2_read_sectors=l2_read,
            l2_write_sectors=MATRIX_BYTES / 32,
            dram_read_bytes=(self.passes + 2) * MATRIX_BYTES,
            dram_write_bytes=MATRIX_BYTES,
            shared_load_requests=steps * self.shared_loads,
            shared_load_wavefronts=steps * self.wavefronts,
            shared_store_requests=steps * shared_stores,
            shared_store_wavefronts=steps * (self.store_wavefronts or shared_stores),
            barriers=barriers,
            independent_loads=self.group,
            critical_loads=N * self.loads / self.group,
        )


LADDER = {
    # lanes walk rows of A, 16 KB apart: 32 sectors; B is one broadcast sector.  ptxas and nvcc unroll by four:
    # 26 integer instructions per four steps.  216 blocks are resident: all of A passes once per wave.
    "naive": Gemm(470.52, 32, 1024, 32, ffma=1, loads=2, sectors=33, group=8, integer=6.5, control=0.5, passes=76),
    # A is the broadcast sector, B four neighbouring ones
    "coalesced": Gemm(44.065, 32, 1024, 32, ffma=1, loads=2, sectors=5, group=8, integer=2, control=0.5, passes=76),
    # per 32 steps: two coalesced loads and stores; per step: As broadcast, Bs consecutive, both scalar in PTX
    "shared": Gemm(25.209, 32, 1024, 32, ffma=1, loads=2 / 32, sectors=8 / 32, group=2, integer=0.1, control=0.1,
                   passes=76, depth=32, shared_loads=2, wavefronts=2),
    # 64x64 tile, 512 threads: per 8 steps one load of A (8 rows of one sector: 4 neighbouring rows of 32 bytes per
    # warp) and one of B; per step one Bs and eight broadcast As
    "1d": Gemm(13.255, 64, 512, 44, ffma=8, loads=2 / 8, sectors=8 / 8, group=2, integer=2, control=1,
               passes=19, depth=8, shared_loads=9, wavefronts=9),
    # 128x128, 256 threads as 16x16, so a warp is 2 rows of 16: As two addresses in one bank (2), Bs sixteen at a
    # stride of eight words (4 wavefronts); per 8 steps four loads of A and four of B
    "2d": Gemm(9.7095, 128, 256, 121, ffma=64, loads=8 / 8, sectors=32 / 8, group=8, integer=15, control=4,
               passes=5, depth=8, shared_loads=16, wavefronts=8 * 2 + 8 * 4),
    # As transposed: its two addresses are eight words apart (1); one float4 load each of A and B per 8 steps,
    # A's stores to shared memory scattered over rows of 128 words
    "vectorised": Gemm(8.985, 128, 256, 128, ffma=64, loads=2 / 8, sectors=32 / 8, group=2, integer=12, control=4,
                       passes=5, depth=8, shared_loads=16, wavefronts=8 * 1 + 8 * 4, store_wavefronts=12 / 8),
    # 128 threads, 64x64 per warp, 8x16 outputs per thread: As eight addresses at a stride of eight words (2), Bs
    # four neighbouring float4 (1); K = 16 per tile: four float4 loads each
    "warptile": Gemm(7.7184, 128, 128, 168, ffma=128, loads=8 / 16, sectors=128 / 16, group=8, integer=12, control=4,
                     passes=4, depth=16, shared_loads=24, wavefronts=8 * 2 + 16 * 1, store_wavefronts=24 / 16),
}  # fmt: skip


@pytest.mark.parametrize("step", LADDER)
def test_sgemm_step_is_near_the_measured_time(step):
    modelled_ms = seconds(LADDER[step].launch) * 1e3
    ratio = modelled_ms / LADDER[step].measured_ms
    assert 1 / 1.5 < ratio < 1.5, f"{step}: {modelled_ms:.2f} ms against {LADDER[step].measured_ms}"


def test_sgemm_ladder_is_in_order():
    times = [seconds(gemm.launch) for gemm in LADDER.values()]
    assert times == sorted(times, reverse=True)


# --- streaming kernels ---------------------------------------------------------------------------


def stream(
    elements: int,
    item_bytes: int,
    inputs: int,
    outputs: int = 0,
    *,
    per_load: int = 1,
    loads: int = 1,
    group: float = 0.0,
    block: int = 256,
    resources: Resources | None = None,
) -> Launch:
    """A pass over vectors: each thread makes ``loads`` loads of ``per_load`` neighbouring elements of each input."""
    blocks = elements // (block * per_load * loads)
    warps = blocks * block / 32
    requests = warps * loads
    sectors = requests * per_load * item_bytes
    return make_launch(
        blocks,
        block,
        resources,
        warp_instructions=warps * (12 + loads * (inputs * (per_load + 1) + outputs + 2)),
        instructions_fp32=requests * inputs * per_load,
        instructions_int=warps * (8 + loads),
        instructions_control=warps * (2 + loads),
        global_load_requests=inputs * requests,
        global_load_sectors=inputs * sectors,
        global_store_requests=outputs * requests,
        global_store_sectors=outputs * sectors,
        l2_read_sectors=inputs * sectors,
        l2_write_sectors=outputs * sectors,
        dram_read_bytes=float(inputs * elements * item_bytes),
        dram_write_bytes=float(outputs * elements * item_bytes),
        independent_loads=group or inputs,
    )


M32 = 32 * 1024 * 1024
STREAMING = {
    "a*b, a float per thread": (stream(M32, 4, 2, 1), 0.29846),
    "a*b, a float4 per thread": (stream(M32, 4, 2, 1, per_load=4), 0.284),
    "a*b, eight halves per thread": (stream(M32, 2, 2, 1, per_load=8), 0.14074),
    # 1024 blocks of 256, the tree at the end of each block is lost in the streaming
    "sum, 128 floats per thread, two at a time": (stream(M32, 4, 1, loads=128, group=2), 0.10547),
    "sum, 32 float4 per thread": (stream(M32, 4, 1, per_load=4, loads=32, group=1), 0.09971),
}


@pytest.mark.parametrize("name", STREAMING)
def test_streaming_kernel_is_near_the_measured_time(name):
    launch, measured_ms = STREAMING[name]
    timed = timing.model_time(Profile("test", (launch,)), A100_40, "test")
    assert timed.limit == "dram"
    assert 1 / 1.15 < timed.time_s * 1e3 / measured_ms < 1.15, f"{timed.time_s * 1e3:.4f} ms against {measured_ms}"


@pytest.mark.parametrize(
    ("outputs", "blocks_per_sm", "measured_gb_per_s"),
    [(0, 1, 85), (0, 4, 325), (0, 8, 619), (0, 16, 1122), (0, 24, 1490), (0, 32, 1769),
     (1, 1, 157), (1, 4, 581), (1, 8, 1026), (1, 16, 1577), (1, 32, 1732)],
)  # fmt: skip
def test_bandwidth_grows_with_occupancy_as_measured(outputs, blocks_per_sm, measured_gb_per_s):
    """STREAM read and scale of doubles on an A100-80GB; shared memory holds the number of blocks down."""
    elements = 1 << 27
    resources = Resources(16, static_shared_bytes=164 * 1024 // blocks_per_sm // 128 * 128 - 1024)
    launch = stream(elements, 8, 1, outputs, block=64, resources=resources)
    gb_per_s = (1 + outputs) * elements * 8 / seconds(launch, A100_80) / 1e9
    assert 1 / 1.15 < gb_per_s / measured_gb_per_s < 1.15, f"{gb_per_s:.0f} GB/s against {measured_gb_per_s}"


# --- parts ---------------------------------------------------------------------------------------


def test_breakdown_sums_to_the_time_and_names_the_limit():
    launches = (LADDER["2d"].launch, stream(M32, 4, 1, 1))
    profile = Profile("test", launches, (MemoryOperation("fill", 1 << 20),))
    timed = timing.model_time(profile, A100_40, "virtual:a100-40gb")
    assert sum(t for _, t in timed.breakdown) == timed.time_s
    assert all(t > 0 for _, t in timed.breakdown)
    assert timed.limit == timed.breakdown[0][0] == "shared"
    assert (timed.source, timed.device) == ("modelled", "virtual:a100-40gb")


def test_combination_lies_between_the_longest_part_and_the_sum():
    parts = timing.combine({"a": 3.0, "b": 2.0, "c": 0.0})
    assert 3.0 < sum(parts.values()) < 5.0
    assert parts["a"] > parts["b"] > parts["c"] == 0.0
    assert timing.combine({"a": 3.0, "b": 0.0}) == {"a": pytest.approx(3.0), "b": 0.0}
    assert timing.combine({"a": 0.0}) == {"a": 0.0}


def test_one_block_more_than_there_are_sms_takes_twice_as_long():
    full = make_launch(108, 256, instructions_fp32=108e6, warp_instructions=108e6)
    over = make_launch(109, 256, instructions_fp32=109e6, warp_instructions=109e6)
    assert timing.pipe_cycles(full, A100_40)["fp32"] == pytest.approx(1e6 * 32 / 64)
    assert timing.pipe_cycles(over, A100_40)["fp32"] == pytest.approx(2e6 * 32 / 64)
    # an idle machine does not help either
    one = make_launch(1, 256, instructions_fp32=1e6, warp_instructions=1e6)
    assert timing.pipe_cycles(one, A100_40) == timing.pipe_cycles(full, A100_40)


def test_issue_takes_a_slot_per_instruction_and_half_of_one_for_bookkeeping():
    launch = make_launch(108, 256, warp_instructions=108 * 4e3)
    assert timing.issue_cycles(launch, A100_40) == pytest.approx(1e3)
    launch = make_launch(
        108, 256, warp_instructions=108 * 4e3, instructions_int=108 * 2e3, instructions_control=108 * 2e3
    )
    assert timing.issue_cycles(launch, A100_40) == pytest.approx(0.5e3)


@pytest.mark.parametrize(
    ("pipe", "cycles"), [("fp32", 0.5), ("fp64", 1.0), ("fp16", 0.25), ("int", 0.5), ("sfu", 2.0), ("tensor", 4.0)]
)
def test_pipes_have_the_throughput_of_their_lanes(pipe, cycles):
    """A100: warp instructions per SM and cycle; a tensor instruction is 8192 operations at 2048 per cycle."""
    launch = make_launch(108, 256, **{f"instructions_{pipe}": 108.0})
    assert timing.pipe_cycles(launch, A100_40)[pipe] == pytest.approx(cycles, rel=0.01)


@pytest.mark.parametrize(
    ("sectors_per_request", "measured_cycles"),
    [(1, 1.02), (4, 1.02), (8, 2.0), (16, 4.0), (32, 32.0)],
)
def test_l1_cycles_per_request_as_measured(sectors_per_request, measured_cycles):
    """A100 L1: broadcast, float, float2 (or stride 2), float4 (or stride 4), stride of a line."""
    assert timing.request_wavefronts(1.0, sectors_per_request) == pytest.approx(measured_cycles, rel=0.03)


def test_counted_wavefronts_win_over_the_estimate():
    estimated = make_launch(108, 32, global_load_requests=108, global_load_sectors=108 * 32)
    counted = make_launch(
        108, 32, global_load_requests=108, global_load_sectors=108 * 32, global_load_wavefronts=108 * 9
    )
    assert timing.l1_cycles(estimated, A100_40) == pytest.approx(32.0)
    assert timing.l1_cycles(counted, A100_40) == pytest.approx(9.0)


def test_bank_conflicts_cost_their_wavefronts():
    launch = make_launch(108, 32, shared_load_wavefronts=108 * 8, shared_store_wavefronts=108)
    assert timing.shared_cycles(launch, A100_40) == pytest.approx(9.0)


def test_l2_is_bound_by_the_chip_or_by_one_port():
    wide = make_launch(1080, 256, l2_read_sectors=1e9)
    assert timing.l2_s(wide, A100_40) == pytest.approx(32e9 / A100_40.l2_bytes_per_s)
    narrow = make_launch(1, 256, l2_read_sectors=1e6)
    assert timing.l2_s(narrow, A100_40) == pytest.approx(32e6 / 64 / A100_40.clock_hz)


def test_spills_are_charged():
    clean = LADDER["2d"].launch
    spilled = replace(clean, resources=replace(clean.resources, spill_bytes=256))
    assert timing.l1_cycles(spilled, A100_40) > timing.l1_cycles(clean, A100_40)
    assert timing.l2_s(spilled, A100_40) > timing.l2_s(clean, A100_40)


def test_load_latency_depends_on_the_level_that_is_reached():
    def latency(l2_sectors: float, dram_bytes: float) -> float:
        launch = make_launch(
            108, 32, global_load_requests=1000, global_load_sectors=4000, l2_read_sectors=l2_sectors,
            dram_read_bytes=dram_bytes,
        )  # fmt: skip
        return timing.load_latency_cycles(launch, A100_40) / timing.LOADED_LATENCY

    assert latency(0, 0) == pytest.approx(A100_40.l1_latency_cycles)
    assert latency(4000, 0) == pytest.approx(A100_40.l2_latency_cycles)
    assert latency(4000, 4000 * 32) == pytest.approx(A100_40.dram_latency_cycles)
    assert timing.load_latency_cycles(make_launch(1, 32), A100_40) == 0.0


def test_dependent_loads_of_a_lone_warp_cost_their_latency():
    """A pointer chase: 10,000 loads that wait for each other, each from DRAM."""
    launch = make_launch(
        1, 32, global_load_requests=1e4, global_load_sectors=1e4, l2_read_sectors=1e4, dram_read_bytes=32e4,
        critical_loads=1e4, warp_instructions=3e4,
    )  # fmt: skip
    timed = timing.model_time(Profile("test", (launch,)), A100_80, "test")
    assert timed.limit == "latency"
    assert timed.time_s == pytest.approx(1e4 * A100_80.dram_latency_cycles / A100_80.clock_hz, rel=0.3)


def test_independent_loads_hide_latency():
    one, four = (stream(M32, 4, 1, loads=64, group=group) for group in (1, 4))
    assert timing.latency_cycles(one, A100_40) > 3 * timing.latency_cycles(four, A100_40)


def test_the_longest_warp_is_charged_once():
    even = stream(M32, 4, 1)
    odd = replace(even, counters=(*even.counters, Counter("critical_loads", 101.0, "PTX")))
    extra = timing.latency_cycles(odd, A100_40) - timing.latency_cycles(even, A100_40)
    assert extra == pytest.approx(100 * timing.load_latency_cycles(even, A100_40))


def test_barriers_lengthen_the_path():
    quiet = make_launch(108, 256, warp_instructions=1e5)
    fenced = make_launch(108, 256, warp_instructions=1e5, barriers=108 * 8 * 10)
    extra = timing.latency_cycles(fenced, A100_40) - timing.latency_cycles(quiet, A100_40)
    assert extra == pytest.approx(10 * timing.BARRIER_CYCLES)


def test_waves_follow_occupancy():
    assert timing.waves(make_launch(108 * 8, 256), A100_40) == 1
    assert timing.waves(make_launch(108 * 8 + 1, 256), A100_40) == 2
    assert timing.waves(make_launch(108 * 8, 256, Resources(128)), A100_40) == 4


def test_small_launches_cost_the_launch_interval_and_gaps():
    tiny = make_launch(1, 32, warp_instructions=10)
    single = timing.model_time(Profile("test", (tiny,)), A100_80, "test")
    triple = timing.model_time(Profile("test", (tiny,) * 3), A100_80, "test")
    assert single.limit == "launch"
    assert single.time_s == pytest.approx(A100_80.launch_overhead_s)
    assert triple.time_s == pytest.approx(3 * single.time_s + 2 * timing.GAP_S)


@pytest.mark.parametrize(("elements", "measured_gb_per_s"), [(1042953, 2421), (328786, 1327), (22657553, 1711)])
def test_small_kernels_reach_the_measured_bandwidth(elements, measured_gb_per_s):
    """Scale of doubles launched again and again; up to 40 MB all of it stays in the L2."""
    launch = stream(elements, 8, 1, 1, per_load=2)
    if elements * 16 < A100_80.l2_bytes:
        kept = tuple(c for c in launch.counters if not c.name.startswith("dram_"))
        launch = replace(launch, counters=kept)
    time_s = seconds(launch, A100_80) + timing.GAP_S
    assert 1 / 1.3 < elements * 16 / time_s / 1e9 / measured_gb_per_s < 1.3


def test_fills_write_and_copies_read_too():
    fill = timing.model_time(Profile("test", (), (MemoryOperation("fill", 1 << 30),)), A100_80, "test")
    copy = timing.model_time(Profile("test", (), (MemoryOperation("copy", 1 << 30),)), A100_80, "test")
    assert fill.limit == copy.limit == "dram"
    assert copy.time_s == pytest.approx(2 * 2**30 / A100_80.dram_copy_bytes_per_s, rel=0.01)
    assert fill.time_s < 0.6 * copy.time_s


def test_an_empty_call_still_has_a_time():
    assert timing.model_time(Profile("test", ()), A100_80, "test").time_s == A100_80.launch_overhead_s


def test_sampling_is_said():
    profile = Profile("test", (stream(M32, 4, 1),), sampled=True)
    assert "sampled" in timing.model_time(profile, A100_80, "test").note


def test_a_faster_gpu_is_faster():
    for gemm in LADDER.values():
        assert seconds(gemm.launch, load_spec("h100-sxm")) < seconds(gemm.launch, A100_80)
    assert math.isfinite(seconds(LADDER["2d"].launch, load_spec("rtx-4090")))
