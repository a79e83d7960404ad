"""Zones of kernels by what was counted, positions on the roofline, and how busy units were."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cupilot.gpu import load_spec, task_flop
from cupilot.gpu.roofline import LEVELS, launch_work, profile_work, roof_of
from cupilot.gpu.standing import WHOLE, position, positions, stand
from cupilot.gpu.units import sources_of, units
from cupilot.records import Counter, Evaluation, Launch, Profile, Resources, Timing
from cupilot.testing.samples import TASK

A100 = load_spec("a100-80gb")
ROOF = roof_of(A100)


def make_launch(**counters: float) -> Launch:
    found = tuple(Counter(name, value, "PTX") for name, value in counters.items())
    return Launch("k", (8, 1, 1), (64, 1, 1), 0, Resources(32), 8, found)


def timing(time_s: float, limit: str = "") -> Timing:
    return Timing(time_s, "modelled", "virtual:a100-80gb", limit)


def evaluated(time_s: float | None, profile: Profile | None = None) -> Evaluation:
    return Evaluation("k", "relu", "virtual:a100-80gb", timing=time_s and timing(time_s), profile=profile)


def test_a_task_without_a_profile_stands_by_its_least_bytes():
    at = stand(TASK, evaluated(None), A100)
    assert (at.task_zone, at.zone, at.limit) == ("memory-bound", "memory-bound", "dram")
    assert at.intensity == task_flop(TASK) / TASK.minimal_bytes == 0.125
    assert at.headroom == float("inf")
    assert at.bound_s == at.bound.time_s == TASK.minimal_bytes / A100.dram_bytes_per_s


def test_headroom_is_the_time_over_the_bound():
    at = stand(TASK, evaluated(2.3 * TASK.minimal_bytes / A100.dram_bytes_per_s), A100)
    assert at.headroom == pytest.approx(2.3)
    assert at.zone == "memory-bound"


@pytest.mark.parametrize(
    ("counter", "per_second"),
    [
        ("dram_read_bytes", A100.dram_bytes_per_s), ("l2_read_sectors", A100.l2_bytes_per_s / 32),
        ("global_load_sectors", ROOF.l1_bytes_per_s / 32), ("flop_fp32", A100.fp32_flop_per_s),
        ("flop_tensor_tf32", A100.tf32_tensor_flop_per_s),
    ],
)  # fmt: skip
def test_a_kernel_that_keeps_any_level_busy_is_not_latency_bound(counter, per_second):
    """Ten times slower than the task's bytes allow; what it does in that time is waste, or not."""
    time_s = 10 * TASK.minimal_bytes / A100.dram_bytes_per_s
    assert stand(TASK, evaluated(time_s), A100).zone == "latency-bound"
    busy, idle = (Profile("d", (make_launch(**{counter: share * per_second * time_s}),)) for share in (0.8, 0.05))
    assert stand(TASK, evaluated(time_s, busy), A100).zone == "memory-bound"
    assert stand(TASK, evaluated(time_s, idle), A100).zone == "latency-bound"


def test_a_position_has_three_levels():
    launch = make_launch(flop_fp32=1e9, global_load_sectors=1e9 / 32, l2_read_sectors=5e8 / 32, dram_read_bytes=1e8)
    at = position(ROOF, "k", launch_work(launch), timing(1e-4, "l1"))
    assert [level.level for level in at.levels] == list(LEVELS)
    assert [level.intensity for level in at.levels] == [1.0, 2.0, 10.0]
    assert [level.share for level in at.levels] == [
        pytest.approx(1e13 / ROOF.l1_bytes_per_s), pytest.approx(5e12 / 5.411e12), pytest.approx(1e12 / 2.039e12),
    ]  # fmt: skip
    assert (at.flop_per_s, at.zone, at.limit) == (1e13, "between", "l1")
    assert position(ROOF, "k", launch_work(launch), timing(1.0)).zone == "latency-bound"


def test_each_launch_has_a_position_and_the_whole_call_the_last():
    one, two = make_launch(flop_fp32=1e6, dram_read_bytes=1e6), make_launch(dram_read_bytes=2e6)
    profile = Profile("d", (one, two))
    found = positions(ROOF, TASK, profile, timing(3e-6, "dram"), ["one", "two"], [timing(1e-6), timing(2e-6)])
    assert [at.label for at in found] == ["one", "two", WHOLE]
    assert found[1].levels[2].intensity is None
    assert found[2].flop == profile_work(profile).flop == 1e6
    assert {at.flop_source for at in found} == {"counted"}


def test_where_nothing_counts_as_an_operation_the_task_s_stand_for_them():
    profile = Profile("d", (make_launch(dram_read_bytes=8e6),))
    launch, whole = positions(ROOF, TASK, profile, timing(5e-6), ["relu"], [timing(4e-6)])
    assert (launch.flop, launch.flop_source) == (0.0, "counted")
    assert (whole.flop, whole.flop_source) == (task_flop(TASK), "task")


def test_units_against_their_ceilings():
    launch = make_launch(
        flop_fp32=1e9, flop_tensor_fp16=2e9, warp_instructions=3e6, global_load_wavefronts=1e6,
        shared_load_wavefronts=2e6, shared_store_wavefronts=1e6, l2_read_sectors=1e6, l2_write_sectors=1e6,
        dram_read_bytes=3e7, dram_write_bytes=1e7,
    )  # fmt: skip
    found = {unit.name: unit for unit in units(launch, A100, 1e-4)}
    assert list(found) == ["fp32", "tensor fp16", "issue", "L1", "shared", "L2", "DRAM"]
    share = {name: unit.share for name, unit in found.items()}
    cycles = 1e-4 * 1.41e9
    assert share["fp32"] == pytest.approx(1e13 / A100.fp32_flop_per_s)
    assert share["tensor fp16"] == pytest.approx(2e13 / 312e12)
    assert share["issue"] == pytest.approx(3e6 / (108 * 4 * cycles))
    assert share["L1"] == pytest.approx(1e6 / (108 * cycles))
    assert share["shared"] == pytest.approx(3e6 / (108 * cycles))
    assert share["L2"] == pytest.approx(64e6 / 1e-4 / 5.411e12)
    assert share["DRAM"] == pytest.approx(4e7 / 1e-4 / 2.039e12)


def test_instructions_are_the_machine_code_s_where_they_are_known():
    launch = make_launch(warp_instructions=3e6)
    known = replace(launch, counters=(*launch.counters, Counter("sass_instructions", 2e6, "SASS")))
    found = [{unit.name: unit for unit in units(x, A100, 1e-4)}["issue"] for x in (launch, known)]
    assert [(unit.rate, unit.source) for unit in found] == [(3e10, "PTX"), (2e10, "SASS")]


def test_units_without_a_ceiling_are_not_divided_by_it():
    """A GPU without tensor cores for a type has the CUDA cores' peak for it."""
    launch = make_launch(flop_tensor_bf16=1e9)
    v100 = load_spec("v100")
    assert {unit.name: unit.ceiling for unit in units(launch, v100, 1e-3)}["tensor bf16"] == v100.fp32_flop_per_s


def test_sources_are_named_once():
    launch = make_launch(a=1.0, b=1.0)
    launch = replace(launch, counters=(*launch.counters, Counter("c", 1.0, "model"), Counter("d", 1.0, "SASS")))
    assert sources_of(launch, ("d", "c", "b", "a")) == "PTX, SASS, model"
    assert sources_of(launch, ("e",)) == ""


@pytest.mark.parametrize(
    ("part", "limit"),
    [("dependency", "latency"), ("tensor", "tensor"), ("fp16", "fp32"), ("dram", "dram"), ("l1", "l1")],
)
def test_the_limit_is_one_that_strategies_know(part, limit):
    evaluation = replace(Evaluation("k", "relu", "virtual:a100-80gb"), timing=timing(1e-3, part))
    assert stand(TASK, evaluation, load_spec("a100-80gb")).limit == limit
