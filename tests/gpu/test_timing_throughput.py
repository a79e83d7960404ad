"""What each resource alone needs for a launch, against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cupilot.gpu import GpuSpec, load_spec
from cupilot.gpu.timing.local import local_bytes
from cupilot.gpu.timing.throughput import (
    BOOKKEEPING,
    L2_PORT_BYTES_PER_CYCLE,
    PATH_CYCLES_PER_INSTRUCTION,
    busiest_sm,
    chip_times,
    far_share,
    issue_slots,
    l1_cycles,
    l2_s,
    path_cycles,
    pipe_cycles,
    request_wavefronts,
    shared_cycles,
    sm_times,
    tensor_s,
    warps,
    waves,
)
from cupilot.records import Counter, Launch, Resources

A100 = load_spec("a100-40gb")  # 108 SMs of four schedulers at 1.41 GHz
H100 = load_spec("h100-sxm")
MB = 1 << 20


def make_launch(blocks: int = 108, threads: int = 32, resources: Resources | None = None, **counters: float) -> Launch:
    found = tuple(Counter(name, value, "PTX") for name, value in counters.items())
    return Launch("kernel", (blocks, 1, 1), (threads, 1, 1), 0, resources or Resources(32), blocks, found)


def make_machine_launch(**counters: float) -> Launch:
    return make_launch(**{"sass_instructions": 1.0, **counters})


# --- blocks on SMs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "share"), [(1, 1.0), (54, 1 / 54), (108, 1 / 108), (109, 2 / 109), (216, 1 / 108), (1000, 10 / 1000)]
)
def test_the_busiest_sm_has_its_share_of_the_blocks(blocks, share):
    assert busiest_sm(make_launch(blocks), A100) == pytest.approx(share)


@pytest.mark.parametrize(
    ("blocks", "heaviest", "share"),
    # alone on its SM, with a mean one beside it, and in several waves, where others take over
    [(108, 30.0, 1.5 / 108), (216, 30.0, 2.5 / 216), (108, 0.0, 1 / 108), (108 * 33, 30.0, 1 / 108)],
)
def test_the_busiest_sm_of_a_single_wave_has_the_heaviest_block(blocks, heaviest, share):
    launch = make_launch(blocks, warp_instructions=20.0 * blocks, heaviest_block=heaviest)
    assert busiest_sm(launch, A100) == pytest.approx(share)


@pytest.mark.parametrize(
    ("part", "counter"),
    [("issue", "sass_instructions"), ("fp32", "sass_fp32"), ("tensor", "flop_tensor_fp16"),
     ("lsu", "shared_load_wavefronts")],
)  # fmt: skip
def test_one_block_more_than_there_are_sms_takes_twice_as_long(part, counter):
    one, full, over = (
        sm_times(make_launch(n, **{"sass_instructions": n * 1e6, counter: n * 1e6}), A100)[part] for n in (1, 108, 109)
    )
    assert over == pytest.approx(2 * full)
    # an idle machine does not help either
    assert one == pytest.approx(full)


def test_waves_follow_occupancy():
    """Eight blocks of 256 threads are resident, two with 128 registers, and one that fits nowhere is one."""
    assert waves(make_launch(108 * 8, 256), A100) == 1
    assert waves(make_launch(108 * 8 + 1, 256), A100) == 2
    assert waves(make_launch(108 * 8, 256, Resources(128)), A100) == 4
    dynamic = replace(make_launch(108 * 8, 256), dynamic_shared_bytes=80 * 1024)
    assert waves(dynamic, A100) == 4
    assert waves(replace(dynamic, dynamic_shared_bytes=1 << 20), A100) == 8


def test_warps_are_whole():
    assert [warps(make_launch(10, threads)) for threads in (1, 32, 33, 1024)] == [10, 10, 20, 320]


# --- issue and a warp's own path -----------------------------------------------------------------


def test_machine_code_takes_a_slot_per_instruction():
    launch = make_launch(sass_instructions=108 * 4e3, warp_instructions=1e9, instructions_int=1e9)
    assert issue_slots(launch) == 108 * 4e3
    assert sm_times(launch, A100)["issue"] == pytest.approx(1e3 / 1.41e9)


def test_of_the_ptx_bookkeeping_takes_a_share_of_a_slot_and_what_is_merged_none():
    launch = make_launch(warp_instructions=1000, instructions_int=200, instructions_control=100, merged_requests=50)
    assert issue_slots(launch) == pytest.approx(1000 - 50 - 300 * (1 - BOOKKEEPING))
    assert sm_times(launch, A100)["issue"] == pytest.approx(issue_slots(launch) / 4 / 108 / 1.41e9)
    assert issue_slots(make_launch(warp_instructions=10, merged_requests=20)) == 0.0


def test_a_warps_path_is_that_of_the_machine_code():
    """108 blocks of two warps: 216 paths of 500 cycles; 256 times as many blocks run in eight sets of 32 per SM."""
    launch = make_launch(108, 64, sass_instructions=1.0, path_cycles=216 * 500.0, warp_instructions=1e9)
    assert path_cycles(launch) == 500.0
    assert sm_times(launch, A100)["dependency"] == pytest.approx(500 / 1.41e9)
    many = make_launch(108 * 256, 64, sass_instructions=1.0, path_cycles=256 * 216 * 500.0)
    assert sm_times(many, A100)["dependency"] == pytest.approx(8 * 500 / 1.41e9)


def test_without_machine_code_a_path_follows_from_the_instructions():
    launch = make_launch(108, 64, warp_instructions=216 * 100.0, path_cycles=1e9)
    assert path_cycles(launch) == pytest.approx(100 * PATH_CYCLES_PER_INSTRUCTION)


# --- pipes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["sass", "instructions"])
@pytest.mark.parametrize(
    ("spec", "pipe", "cycles"),
    # 32 over the lanes of an SM: 64, 32, 128, 64 and 16 on the A100, twice the floats on the H100
    [(A100, "fp32", 0.5), (A100, "fp64", 1.0), (A100, "fp16", 0.25), (A100, "int", 0.5), (A100, "sfu", 2.0),
     (H100, "fp32", 0.25), (H100, "fp64", 0.5), (H100, "int", 0.5)],
    ids=lambda value: getattr(value, "name", str(value)),
)  # fmt: skip
def test_pipes_have_the_throughput_of_their_lanes(prefix, spec, pipe, cycles):
    other = {"sass": "instructions", "instructions": "sass"}[prefix]
    counters = {f"{prefix}_{pipe}": 100.0, f"{other}_{pipe}": 1e9}
    found = pipe_cycles((make_machine_launch if prefix == "sass" else make_launch)(**counters), spec)
    assert found.pop(pipe) == pytest.approx(100 * cycles)
    assert set(found.values()) == {0.0}


def test_products_of_integers_are_made_beside_those_of_floats():
    """100 + 60 on 64 lanes; the integer lanes make sums, or products, at the same time."""
    found = pipe_cycles(make_machine_launch(sass_fp32=100, sass_imad=60, sass_int=80), A100)
    assert (found["fp32"], found["int"]) == (80.0, 40.0)
    found = pipe_cycles(make_machine_launch(sass_fp32=100, sass_imad=60, sass_int=20), A100)
    assert (found["fp32"], found["int"]) == (80.0, 30.0)
    # twice as many lanes of floats, as many of integers
    found = pipe_cycles(make_machine_launch(sass_fp32=100, sass_imad=60, sass_int=20), H100)
    assert (found["fp32"], found["int"]) == (40.0, 30.0)


@pytest.mark.parametrize("name", ["a6000", "rtx-3090", "l40s", "rtx-4090"])
def test_integers_take_lanes_of_floats_where_they_are_the_same(name):
    """128 lanes for 100 + 60 + 80 instructions, half of which do integers: 40 is their share, 60 the whole."""
    found = pipe_cycles(make_machine_launch(sass_fp32=100, sass_imad=60, sass_int=80), load_spec(name))
    assert (found["fp32"], found["int"]) == (60.0, 40.0)


@pytest.mark.parametrize(
    ("kind", "flop_per_cycle"),
    # 1024 multiply-adds of halves per SM and cycle; the other types by their bits, fp64 as twice the lanes
    [("fp16", 2048), ("bf16", 2048), ("tf32", 1024), ("fp64", 128), ("int8", 4096), ("int4", 8192), ("int1", 32768)],
)
def test_matrix_products_by_type(kind, flop_per_cycle):
    launch = make_launch(**{f"flop_tensor_{kind}": 108 * 1e6 * flop_per_cycle})
    wanted_s = 1e6 / 1.41e9 / A100.mma_share
    assert tensor_s(launch, A100) == pytest.approx(wanted_s, rel=0.01)
    assert sm_times(launch, A100)["tensor"] == pytest.approx(wanted_s, rel=0.01)


def test_matrix_products_of_several_types_add_up():
    halves, floats, both = (
        tensor_s(make_launch(**counters), A100)
        for counters in (
            {"flop_tensor_fp16": 2e9}, {"flop_tensor_tf32": 1e9}, {"flop_tensor_fp16": 2e9, "flop_tensor_tf32": 1e9},
        )
    )  # fmt: skip
    assert both == pytest.approx(halves + floats)
    assert tensor_s(make_launch(flop_fp16=1e9), A100) == 0.0


@pytest.mark.parametrize("name", ["h100-sxm", "a100-80gb", "l40s", "b200"])
def test_products_sustain_a_share_of_the_peak(name):
    spec = load_spec(name)
    launch = make_launch(flop_tensor_fp16=1e12)
    assert tensor_s(launch, spec) == pytest.approx(1e12 / spec.fp16_tensor_flop_per_s / spec.mma_share)
    assert 0.5 < spec.mma_share < 1.0


@pytest.mark.parametrize(("name", "kind"), [("a100-40gb", "fp8"), ("v100", "bf16"), ("v100", "int8"), ("t4", "fp64")])
def test_a_type_without_a_unit_is_made_by_the_lanes_of_floats(name, kind):
    spec = load_spec(name)
    launch = make_launch(**{f"flop_tensor_{kind}": 1e12})
    assert tensor_s(launch, spec) == pytest.approx(1e12 / spec.fp32_flop_per_s)


# --- L1 and shared memory ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sectors", "cycles"),
    # measured on an A100: broadcast, floats, float2 or a stride of two, float4 or four, a line for each lane
    [(1, 1), (4, 1), (8, 2), (16, 4), (32, 32)],
)
def test_wavefronts_of_a_request_follow_from_its_sectors(sectors, cycles):
    assert request_wavefronts(1.0, sectors) == cycles
    assert request_wavefronts(50.0, 50.0 * sectors) == 50 * cycles


def test_counted_wavefronts_win_over_the_estimate():
    """Loads and stores are each as they are known: 9 counted for the loads, 32 estimated for the stores."""
    load = {"global_load_requests": 1.0, "global_load_sectors": 32.0}
    store = {"global_store_requests": 1.0, "global_store_sectors": 32.0}
    assert l1_cycles(make_launch(**load, **store), A100) == 64.0
    assert l1_cycles(make_launch(**load, **store, global_load_wavefronts=9.0), A100) == 41.0
    assert l1_cycles(make_launch(**load, **store, global_store_wavefronts=9.0), A100) == 41.0


def test_atomics_and_shuffles_take_the_same_path():
    assert l1_cycles(make_launch(global_atomic_requests=3.0, global_atomic_steps=96.0), A100) == 3.0
    assert l1_cycles(make_launch(opcodes_warp=5.0), A100) == 5.0
    launch = make_launch(opcodes_warp=5.0, shared_load_wavefronts=7.0)
    assert sm_times(launch, A100)["lsu"] == pytest.approx(12 / 108 / 1.41e9)


def test_bank_conflicts_cost_their_wavefronts():
    launch = make_launch(shared_load_wavefronts=8.0, shared_store_wavefronts=1.0, shared_load_requests=2.0)
    assert shared_cycles(launch, A100) == 9.0
    assert l1_cycles(launch, A100) == 0.0


def test_atomics_in_shared_memory_cost_a_step_for_each_lane_at_one_address():
    assert shared_cycles(make_launch(shared_atomic_requests=2.0, shared_atomic_steps=33.0), A100) == 33.0


def test_half_the_lanes_take_twice_as_long():
    turing = load_spec("t4")
    launch = make_launch(global_load_wavefronts=10.0, shared_load_wavefronts=20.0)
    assert (l1_cycles(launch, turing), shared_cycles(launch, turing)) == (20.0, 40.0)


def test_local_memory_is_what_was_asked_for_and_spills_once():
    """100 blocks of 64 threads spill 16 bytes each: 102,400, which are 800 wavefronts."""
    spilled = make_launch(100, 64, Resources(32, spill_bytes=16))
    assert local_bytes(spilled) == 102_400
    assert l1_cycles(spilled, A100) == 800.0
    asked = make_launch(100, 64, local_load_bytes=1280.0, local_store_bytes=2560.0)
    assert local_bytes(asked) == 3840
    assert l1_cycles(asked, A100) == 30.0
    # stores go on to the L2, loads mostly hit
    assert l2_s(spilled, A100) == pytest.approx(51_200 / A100.l2_bytes_per_s)


# --- L2, atomics, DRAM ---------------------------------------------------------------------------


def test_l2_is_bound_by_the_chip_or_by_one_port():
    wide = make_launch(1080, 256, l2_read_sectors=6e8, l2_write_sectors=4e8)
    assert l2_s(wide, A100) == pytest.approx(32e9 / A100.l2_bytes_per_s)
    narrow = make_launch(1, 256, l2_read_sectors=1e6)
    assert l2_s(narrow, A100) == pytest.approx(32e6 / L2_PORT_BYTES_PER_CYCLE / 1.41e9)
    # two blocks have two ports
    assert l2_s(make_launch(2, 256, l2_read_sectors=1e6), A100) == pytest.approx(l2_s(narrow, A100) / 2)


@pytest.mark.parametrize(
    ("spec", "footprint", "share"),
    # the A100's L2 has 20 MB near an SM, the H100's 25; the other two are one partition
    [(A100, 0, 0.0), (A100, 18, 0.0), (A100, 20.5, 0.25), (A100, 23, 0.5), (A100, 28, 1.0), (A100, 400, 1.0),
     (H100, 22.5, 0.0), (H100, 28.75, 0.5), (load_spec("l40s"), 400, 0.0), (load_spec("v100"), 400, 0.0)],
    ids=lambda value: getattr(value, "name", str(value)),
)  # fmt: skip
def test_what_does_not_fit_beside_an_sm_is_far(spec: GpuSpec, footprint, share):
    launch = make_launch(1080, 256, l2_read_sectors=1e9, footprint_bytes=footprint * MB)
    assert far_share(launch, spec) == pytest.approx(share)
    # further, but no narrower
    assert l2_s(launch, spec) == pytest.approx(32e9 / spec.l2_bytes_per_s)


def test_atomics_at_one_address_follow_each_other():
    assert chip_times(make_launch(global_atomic_steps=1.41e6), A100)["atomic"] == pytest.approx(1e-3)


def test_dram_is_the_specs_mix_of_reads_and_writes():
    launch = make_launch(dram_read_bytes=2e9, dram_write_bytes=1e9)
    expected = {"l2": 0.0, "atomic": 0.0, "dram": A100.dram_s(2e9, 1e9), "pcie": 0.0}
    assert chip_times(launch, A100) == expected
