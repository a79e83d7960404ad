"""Parts put together: how they join, what else a call costs, how sure a time is, and which lines it goes to."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupilot.gpu import GpuSpec, load_spec
from cupilot.gpu.timing import GAP_S, combine, launch_parts, line_seconds, model_time, operation_parts, uncertainty
from cupilot.gpu.timing.latency import BLOCK_CYCLES, waiting
from cupilot.gpu.timing.model import (
    CHIP_NORM,
    COPY_S,
    RAMP_S,
    SM_NORM,
    SPREAD,
    UNTRIED,
    WAIT_NORM,
    WAIT_S,
    WITHOUT_MACHINE_CODE,
)
from cupilot.gpu.timing.throughput import chip_times, sm_times
from cupilot.records import Counter, Launch, LineCost, MemoryOperation, Profile, Resources, Timing

A100 = load_spec("a100-80gb")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def make_launch(
    blocks: int = 108, threads: int = 32, lines: tuple[LineCost, ...] = (), spill_bytes: int = 0, **counters: float
) -> Launch:
    """A launch with machine code."""
    counters.setdefault("sass_instructions", 1e-9)
    found = tuple(Counter(name, value, "SASS") for name, value in counters.items())
    resources = Resources(32, spill_bytes=spill_bytes)
    return Launch("kernel", (blocks, 1, 1), (threads, 1, 1), 0, resources, blocks, found, lines)


def without_machine_code(launch: Launch) -> Launch:
    return replace(launch, counters=tuple(c for c in launch.counters if c.name != "sass_instructions"))


def timed(*launches: Launch, operations: tuple[MemoryOperation, ...] = (), sampled: bool = False) -> Timing:
    return model_time(Profile("test", launches, operations, sampled), A100, "virtual:test")


def work_s(launch: Launch, spec: GpuSpec = A100) -> float:
    """The launch's time without what belongs to launching."""
    return sum(time_s for part, time_s in launch_parts(launch, spec).items() if part != "launch")


def norm(times: Iterable[float], power: float) -> float:
    return math.fsum(time_s**power for time_s in times) ** (1 / power)


def joint_s(units: Iterable[float], chip: Iterable[float], waiting_s: float) -> float:
    return norm((norm((norm(units, SM_NORM), waiting_s), WAIT_NORM), *chip), CHIP_NORM)


STREAMING = make_launch(
    108 * 64, 256, sass_instructions=108 * 64 * 8 * 20.0, path_cycles=108 * 64 * 8 * 200.0,
    round_trips=108 * 64 * 8.0, global_load_requests=108 * 64 * 8.0, global_load_sectors=108 * 64 * 8 * 4.0,
    l2_read_sectors=108 * 64 * 8 * 4.0, dram_read_bytes=108 * 64 * 8 * 128.0,
)  # fmt: skip


# --- how parts join ------------------------------------------------------------------------------


def test_units_of_an_sm_overlap_most_of_the_way():
    """A million cycles of floats alone, and the same with half and with all of that of another unit."""
    floats = 108 * 2e6
    for sfu_s, expected in ((0.0, 1.0), (0.5, norm((1.0, 0.5), SM_NORM)), (1.0, 2 ** (1 / SM_NORM))):
        launch = make_launch(sass_fp32=floats, sass_sfu=floats * sfu_s / 4)
        assert work_s(launch) == pytest.approx(expected * 1e6 / A100.clock_hz, rel=0.01)


def test_waiting_overlaps_less_than_units_do_and_the_chips_memory_more():
    assert 1.0 < WAIT_NORM < min(SM_NORM, CHIP_NORM)
    cycles = 1e6
    trips = cycles / A100.l2_latency_cycles
    waits = {"round_trips": 108 * trips, "global_load_sectors": 108 * trips, "l2_read_sectors": 108 * trips}
    floats = {"sass_fp32": 108 * 2 * cycles}
    atomics = {"global_atomic_steps": cycles}
    unit_s = cycles / A100.clock_hz
    assert work_s(make_launch(**waits)) == pytest.approx(unit_s, rel=0.01)
    assert work_s(make_launch(**waits, **floats)) == pytest.approx(2 ** (1 / WAIT_NORM) * unit_s, rel=0.01)
    assert work_s(make_launch(**atomics, **floats)) == pytest.approx(2 ** (1 / CHIP_NORM) * unit_s, rel=0.01)


def test_a_joint_time_lies_between_its_longest_part_and_the_sum():
    parts = combine({"a": 3.0, "b": 2.0, "c": 0.0})
    assert 3.0 < sum(parts.values()) < 5.0
    assert sum(parts.values()) == pytest.approx(norm((3.0, 2.0), CHIP_NORM))
    assert parts["a"] / parts["b"] == pytest.approx(1.5**CHIP_NORM)
    assert parts["c"] == 0.0
    assert combine({"a": 3.0, "b": 0.0}) == {"a": pytest.approx(3.0), "b": 0.0}
    assert combine({"a": 0.0}) == {"a": 0.0}
    assert combine({}) == {}


def test_l1_and_shared_memory_share_one_path():
    """300 wavefronts of one and 100 of the other take 400 cycles, of which three quarters are the first's."""
    launch = make_launch(global_load_wavefronts=108 * 3e6, shared_load_wavefronts=108 * 1e6)
    parts = launch_parts(launch, A100)
    assert parts["l1"] == pytest.approx(3 * parts["shared"])
    assert parts["l1"] + parts["shared"] == pytest.approx(4e6 / A100.clock_hz, rel=0.01)
    assert "lsu" not in parts


@pytest.mark.parametrize(
    ("limit", "counters"),
    [
        ("issue", {"sass_instructions": 1e10}), ("dependency", {"path_cycles": 1e10}), ("fp32", {"sass_fp32": 1e10}),
        ("int", {"sass_int": 1e10}), ("fp64", {"sass_fp64": 1e10}), ("fp16", {"sass_fp16": 1e10}),
        ("sfu", {"sass_sfu": 1e10}), ("tensor", {"flop_tensor_tf32": 1e13}), ("l1", {"opcodes_warp": 1e10}),
        ("shared", {"shared_store_wavefronts": 1e10}), ("l2", {"l2_write_sectors": 1e10}),
        ("atomic", {"global_atomic_steps": 1e10}), ("dram", {"dram_write_bytes": 1e12}), ("latency", {"barriers": 1e9}),
    ],
)  # fmt: skip
def test_the_largest_part_is_the_limit(limit, counters):
    found = timed(make_launch(**counters))
    assert found.limit == found.breakdown[0][0] == limit
    assert found.breakdown[0][1] > 0.99 * found.time_s
    assert (found.source, found.device) == ("modelled", "virtual:test")


def test_the_breakdown_is_of_everything_a_call_did():
    launches = (STREAMING, make_launch(sass_fp32=1e9, shared_load_wavefronts=1e8))
    operations = (MemoryOperation("fill", 1 << 28), MemoryOperation("host-to-device", 1 << 20))
    found = timed(*launches, operations=operations)
    assert math.fsum(time_s for _, time_s in found.breakdown) == pytest.approx(found.time_s)
    steps = [launch_parts(launch, A100) for launch in launches]
    steps += [operation_parts(operation, A100) for operation in operations]
    for part, time_s in found.breakdown:
        gaps_s = 3 * GAP_S if part == "launch" else 0.0
        assert time_s == pytest.approx(sum(step.get(part, 0.0) for step in steps) + gaps_s)
    assert [time_s for _, time_s in found.breakdown] == sorted((t for _, t in found.breakdown if t > 0), reverse=True)


# --- latency and busy DRAM agree -----------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.8, 1.0, 1.3, 3.0])
def test_latency_and_busy_dram_agree_on_the_time(share):
    """DRAM that is busy for a share of what the rest takes; written bytes, so that round trips stay what they are."""
    trips = 5e3 * 108
    launch = make_launch(
        sass_instructions=1e3 * 108, path_cycles=2e5 * 108, round_trips=trips, global_load_sectors=trips,
        l2_read_sectors=trips,
    )  # fmt: skip
    written = share * work_s(launch) * A100.dram_write_bytes_per_s
    launch = replace(launch, counters=(*launch.counters, Counter("dram_write_bytes", written, "model")))
    units, chip, waits = sm_times(launch, A100), chip_times(launch, A100), waiting(launch, A100)

    def at(busy: float) -> float:
        return joint_s(units.values(), chip.values(), waits.seconds(busy))

    found = work_s(launch)
    assert at(0.0) * (1 - 1e-12) <= found <= at(1.0) * (1 + 1e-12)
    assert found == pytest.approx(at(chip["dram"] / found), rel=1e-5)
    if 0.0 < share <= 1.0:
        assert found > 1.01 * at(0.0)
        assert found < at(1.0) / 1.0001


def test_time_grows_with_busy_dram_before_dram_is_the_limit():
    quiet, half, busy = (
        launch_parts(
            replace(STREAMING, counters=(*STREAMING.counters, Counter("dram_write_bytes", written, "model"))), A100
        )
        for written in (0.0, 4e6, 8e6)
    )
    assert quiet["latency"] > quiet["dram"]
    assert sum(quiet.values()) < sum(half.values()) < sum(busy.values())


# --- small launches, gaps, fills and copies ------------------------------------------------------


def test_small_launches_cost_the_launch_interval_and_gaps():
    tiny = make_launch(1, 32, sass_instructions=10)
    single, triple = timed(tiny), timed(tiny, tiny, tiny)
    assert single.limit == "launch"
    assert single.time_s == pytest.approx(A100.launch_overhead_s)
    assert triple.time_s == pytest.approx(3 * single.time_s + 2 * GAP_S)


def test_large_launches_cost_their_start_and_end():
    launch = make_launch(sass_fp32=1e9)
    assert launch_parts(launch, A100)["launch"] == RAMP_S
    assert timed(launch).time_s == pytest.approx(work_s(launch) + RAMP_S)
    # in between, what is left of the shortest interval
    assert 0 < RAMP_S < A100.launch_overhead_s
    between = make_launch(1, sass_fp32=2 * 0.5 * (A100.launch_overhead_s - RAMP_S) * A100.clock_hz)
    assert timed(between).time_s == pytest.approx(A100.launch_overhead_s)


def test_a_block_that_does_nothing_still_starts():
    assert launch_parts(make_launch(1), A100)["latency"] == pytest.approx(BLOCK_CYCLES / A100.clock_hz)


@pytest.mark.parametrize("kind", ["fill", "memset"])
def test_a_fill_writes(kind):
    found = timed(operations=(MemoryOperation(kind, 1 << 30),))
    assert found.limit == "dram"
    assert found.time_s == pytest.approx(2**30 / A100.dram_write_bytes_per_s + RAMP_S)


def test_a_copy_reads_and_writes():
    found = timed(operations=(MemoryOperation("copy", 1 << 30),))
    assert found.limit == "dram"
    assert found.time_s == pytest.approx(2 * 2**30 / A100.dram_copy_bytes_per_s + RAMP_S)


@pytest.mark.parametrize(("kind", "more_s"), [("host-to-device", COPY_S), ("device-to-host", COPY_S + WAIT_S)])
def test_copies_to_and_from_the_host_go_over_pcie(kind, more_s):
    found = timed(operations=(MemoryOperation(kind, 1 << 30),))
    assert found.limit == "pcie"
    assert found.time_s == pytest.approx(2**30 / A100.pcie_bytes_per_s + RAMP_S + more_s)


def test_waiting_for_the_host_takes_time():
    alone, waited, called = (
        timed(STREAMING, operations=more).time_s
        for more in ((), (MemoryOperation("synchronize", 0),), (MemoryOperation("host-function", 0),))
    )
    assert waited == pytest.approx(alone + GAP_S + WAIT_S)
    assert called == pytest.approx(alone + GAP_S + 2 * WAIT_S)


def test_what_pytorch_computes_runs_at_the_librarys_speed():
    small, large = (operation_parts(MemoryOperation("aten.mm", 1 << 10, flop), A100) for flop in (1e6, 1e13))
    assert large["fp32"] == pytest.approx(1e13 / A100.sgemm_flop_per_s)
    assert large["dram"] < large["fp32"]
    assert sum(small.values()) == pytest.approx(A100.launch_overhead_s)


def test_an_empty_call_still_has_a_time():
    assert (timed().time_s, timed().limit) == (A100.launch_overhead_s, "launch")


def test_sampling_is_said():
    assert timed(STREAMING).note == ""
    assert "sampled" in timed(STREAMING, sampled=True).note


# --- uncertainty ---------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [*SPREAD, "tensor", "atomic", "pcie"])
def test_a_time_is_as_sure_as_the_part_that_makes_it_up(part):
    assert uncertainty({part: 5.0}) == pytest.approx(SPREAD.get(part, UNTRIED))
    assert uncertainty({part: 5.0}, machine_code=False) == pytest.approx(
        SPREAD.get(part, UNTRIED) * WITHOUT_MACHINE_CODE
    )


def test_uncertainty_is_the_mean_of_the_parts():
    assert uncertainty({"dram": 3.0, "tensor": 1.0}) == pytest.approx(0.75 * SPREAD["dram"] + 0.25 * UNTRIED)
    assert 0.0 < min(SPREAD.values()) < max(SPREAD.values()) < UNTRIED < 1.0 < WITHOUT_MACHINE_CODE


def test_a_time_is_less_sure_without_machine_code():
    known, unknown = STREAMING, without_machine_code(STREAMING)
    sure = timed(known).uncertainty
    assert min(SPREAD.values()) < sure < max(SPREAD.values())
    assert timed(unknown).uncertainty > sure
    # one such launch is enough
    assert timed(known, unknown).uncertainty > timed(known, known).uncertainty
    dram = timed(operations=(MemoryOperation("fill", 1 << 30),))
    assert dram.uncertainty == pytest.approx(SPREAD["dram"], rel=0.05)


# --- source lines --------------------------------------------------------------------------------

LOAD = LineCost(3, 100.0, global_sectors=400.0)
SUM = LineCost(5, 900.0)
TILE = LineCost(7, 50.0, shared_wavefronts=200.0)
STORE = LineCost(8, 50.0, global_sectors=100.0)
UPDATE = LineCost(9, 50.0, atomic_requests=50.0)
LINES = (LOAD, SUM, TILE, STORE, UPDATE)


def test_lines_take_all_of_the_time_but_that_of_launching():
    counters = dict.fromkeys(
        ("sass_instructions", "sass_fp32", "path_cycles", "shared_load_wavefronts", "global_load_wavefronts",
         "l2_read_sectors", "round_trips", "global_load_sectors", "barriers"), 1e8,
    )  # fmt: skip
    launch = make_launch(lines=LINES, **counters, dram_read_bytes=5e9, global_atomic_steps=2e6)
    found = line_seconds(launch, A100)
    assert {line for line, _ in found} == {3, 5, 7, 8, 9}
    assert sum(time_s for _, time_s in found) == pytest.approx(work_s(launch))
    assert [time_s for _, time_s in found] == sorted((time_s for _, time_s in found), reverse=True)


@pytest.mark.parametrize(
    ("counters", "shares"),
    [
        # memory by sectors, shared memory by wavefronts, atomics by requests, the rest by instructions
        ({"dram_read_bytes": 1e12}, {3: 0.8, 8: 0.2}),
        ({"l2_read_sectors": 1e10}, {3: 0.8, 8: 0.2}),
        ({"global_load_wavefronts": 1e10}, {3: 0.8, 8: 0.2}),
        ({"barriers": 1e9}, {3: 0.8, 8: 0.2}),
        ({"shared_load_wavefronts": 1e10}, {7: 1.0}),
        ({"global_atomic_steps": 1e10}, {9: 1.0}),
        ({"sass_fp32": 1e10}, {3: 100 / 1150, 5: 900 / 1150, 7: 50 / 1150, 8: 50 / 1150, 9: 50 / 1150}),
        ({"sass_instructions": 1e10}, {3: 100 / 1150, 5: 900 / 1150, 7: 50 / 1150, 8: 50 / 1150, 9: 50 / 1150}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_line_takes_its_share_of_what_it_uses(counters, shares):
    launch = make_launch(lines=LINES, **counters)
    found = dict(line_seconds(launch, A100))
    for line, share in shares.items():
        assert found[line] / work_s(launch) == pytest.approx(share, rel=0.01)


def test_lines_of_local_memory_count_by_sectors_too():
    launch = make_launch(1080, 256, lines=(LOAD, LineCost(4, 1.0, local_sectors=1200.0)), local_load_bytes=1e12)
    found = dict(line_seconds(launch, A100))
    assert found[4] == pytest.approx(3 * found[3], rel=0.01)


def test_what_belongs_to_no_line_is_left_out():
    assert line_seconds(make_launch(sass_fp32=1e9), A100) == ()
    assert line_seconds(make_launch(lines=(SUM,), dram_read_bytes=1e12), A100)[0][1] < 1e-6
    # of two equal lines, the first one comes first
    twice = make_launch(lines=(replace(SUM, line=6), SUM), sass_fp32=1e9)
    assert [line for line, _ in line_seconds(twice, A100)] == [5, 6]


# --- whatever the counters are -------------------------------------------------------------------

fixed = settings(derandomize=True, deadline=None, database=None)
amounts = st.one_of(st.just(0.0), st.floats(0.1, 1e4))
shares = st.floats(0.0, 1.0)
gpus = st.sampled_from([load_spec(name) for name in ("a100-80gb", "h100-sxm", "a6000", "v100", "t4")])
PIPES = ("fp32", "fp64", "fp16", "int", "imad", "sfu", "lsu", "control")
SHORTENING = ("covered_cycles", "independent_loads", "merged_requests")
"""More of these is less to wait for, or less to do."""


@st.composite
def launches(draw: st.DrawFn) -> Launch:
    """A launch that could be: parts are no more than the whole, and further levels see no more than nearer ones."""
    blocks, threads = draw(st.integers(1, 20_000)), draw(st.integers(1, 1024))
    prefix, total = draw(st.sampled_from([("sass", "sass_instructions"), ("instructions", "warp_instructions")]))
    found = {f"{prefix}_{pipe}": draw(amounts) for pipe in PIPES}
    for name in ("barriers", "opcodes_warp", "shared_load_wavefronts", "shared_atomic_steps", "global_atomic_requests",
                 "local_store_bytes", "flop_tensor_fp16", "flop_tensor_fp8"):  # fmt: skip
        found[name] = draw(amounts)
    found[total] = 1.0 + sum(found[f"{prefix}_{pipe}"] for pipe in PIPES)
    found["merged_requests"] = found[f"{prefix}_lsu"] * draw(shares)
    found["path_cycles"] = found[total] * draw(st.floats(1.0, 8.0))
    found["covered_cycles"] = found["path_cycles"] * draw(shares)
    for kind, way in (("load", "read"), ("store", "write")):
        requests = found[f"{prefix}_lsu"] * draw(shares)
        sectors = requests * draw(st.floats(1.0, 32.0))
        l2 = sectors * draw(shares)
        found |= {
            f"global_{kind}_requests": requests, f"global_{kind}_sectors": sectors,
            f"global_{kind}_wavefronts": max(requests, sectors * draw(shares)), f"l2_{way}_sectors": l2,
            f"dram_{way}_bytes": 32 * l2 * draw(shares),
        }  # fmt: skip
    found["round_trips"] = found["global_load_requests"] * draw(shares)
    warps = blocks * -(-threads // 32)
    found = {name: value * warps for name, value in found.items()}
    found["global_atomic_steps"] = found["global_atomic_requests"] * draw(st.floats(1.0, 32.0))
    found |= {"independent_loads": draw(st.floats(1.0, 16.0)), "footprint_bytes": draw(st.floats(0.0, 1e8))}
    counters = tuple(Counter(name, value, "PTX") for name, value in found.items() if value > 0)
    return Launch("k", (blocks, 1, 1), (threads, 1, 1), 0, Resources(draw(st.integers(16, 64))), blocks, counters)


def with_more(launch: Launch, name: str, factor: float) -> Launch:
    """More of a counter; an instruction of the PTX is an instruction there as well."""
    more = {name: (factor - 1.0) * launch.counter(name)}
    if name.startswith("instructions_"):
        more["warp_instructions"] = more[name]
    return replace(launch, counters=tuple(replace(c, value=c.value + more.get(c.name, 0.0)) for c in launch.counters))


@fixed
@given(launches(), gpus)
def test_the_breakdown_sums_to_a_time_no_shorter_than_any_part_alone(launch, spec):
    units, chip, waits = sm_times(launch, spec), chip_times(launch, spec), waiting(launch, spec)
    parts = launch_parts(launch, spec)
    found = work_s(launch, spec)
    assert all(time_s >= 0 for time_s in parts.values())
    assert found >= (1 - 1e-6) * max(*units.values(), *chip.values(), waits.seconds(chip["dram"] / found))
    assert found == pytest.approx(joint_s(units.values(), chip.values(), waits.seconds(chip["dram"] / found)), rel=1e-5)
    timing = model_time(Profile("test", (launch,)), spec, "test")
    assert sum(time_s for _, time_s in timing.breakdown) == pytest.approx(timing.time_s)
    assert timing.time_s == pytest.approx(max(found + RAMP_S, spec.launch_overhead_s))
    assert min(SPREAD.values()) <= timing.uncertainty <= UNTRIED * WITHOUT_MACHINE_CODE


@fixed
@given(launches(), gpus, st.data(), st.floats(1.0, 10.0))
def test_more_of_a_counter_is_never_faster(launch, spec, data, factor):
    name = data.draw(st.sampled_from([c.name for c in launch.counters if c.name not in SHORTENING]))
    assert work_s(with_more(launch, name, factor), spec) >= (1 - 1e-6) * work_s(launch, spec)


@fixed
@given(launches(), gpus)
def test_a_little_more_of_a_counter_is_a_little_more_time(launch, spec):
    time_s = work_s(launch, spec)
    assert work_s(launch, spec) == time_s
    for counter in launch.counters:
        assert work_s(with_more(launch, counter.name, 1.01), spec) == pytest.approx(time_s, rel=0.02), counter.name


@fixed
@given(launches(), gpus, st.floats(0.3, 1.2), st.floats(0.3, 1.2))
def test_a_faster_clock_is_never_slower(launch, spec, one, other):
    slow, fast = (spec.at_clock(ratio * spec.clock_hz) for ratio in sorted((one, other)))
    assert work_s(launch, fast) <= (1 + 1e-6) * work_s(launch, slow)


# --- the calibration -----------------------------------------------------------------------------


@pytest.mark.slow
def test_measured_kernels_are_within_a_quarter():
    """Both ladders and the streaming products, compiled and run: minutes rather than seconds."""
    command = (sys.executable, str(BENCHMARKS / "validate_time.py"), str(BENCHMARKS / "calibration" / "pairs.csv"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["n"] > 0
    assert found["failed"] == 0, done.stdout
    assert found["within_1.25"] == 1.0, done.stdout
