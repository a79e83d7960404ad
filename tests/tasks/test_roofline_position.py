"""Zones of kernels by what was counted, and points on the roofline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cupilot.gpu import load_spec
from cupilot.gpu.roofline import LEVELS, launch_work, profile_work, roof_of
from cupilot.records import Counter, Evaluation, Launch, MemoryOperation, Profile, Resources, Timing
from cupilot.tasks.flop import task_flop
from cupilot.tasks.roofline_position import WHOLE, roofline_point, roofline_points, roofline_position, shown_points
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


def test_a_task_without_a_profile_is_placed_by_its_least_bytes():
    at = roofline_position(TASK, evaluated(None), A100)
    assert (at.task_zone, at.zone, at.limit) == ("memory-bound", "memory-bound", "dram")
    assert at.intensity == task_flop(TASK) / TASK.minimal_bytes == 0.125
    assert at.headroom == float("inf")
    assert at.least.datasheet.time_s == TASK.minimal_bytes / A100.dram_bytes_per_s
    assert at.bound_s == pytest.approx(A100.dram_s(TASK.input_bytes, TASK.output_bytes))


def test_headroom_is_the_time_over_the_bound():
    at = roofline_position(TASK, evaluated(2.3 * A100.dram_s(TASK.input_bytes, TASK.output_bytes)), A100)
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
    assert roofline_position(TASK, evaluated(time_s), A100).zone == "latency-bound"
    busy, idle = (Profile("d", (make_launch(**{counter: share * per_second * time_s}),)) for share in (0.8, 0.05))
    assert roofline_position(TASK, evaluated(time_s, busy), A100).zone == "memory-bound"
    assert roofline_position(TASK, evaluated(time_s, idle), A100).zone == "latency-bound"


def test_a_point_has_three_levels():
    launch = make_launch(flop_fp32=1e9, global_load_sectors=1e9 / 32, l2_read_sectors=5e8 / 32, dram_read_bytes=1e8)
    at = roofline_point(ROOF, "k", launch_work(launch), timing(1e-4, "l1"))
    assert [level.level for level in at.levels] == list(LEVELS)
    assert [level.intensity for level in at.levels] == [1.0, 2.0, 10.0]
    assert [level.share for level in at.levels] == [
        pytest.approx(1e13 / ROOF.l1_bytes_per_s), pytest.approx(5e12 / 5.411e12), pytest.approx(1e12 / 2.039e12),
    ]  # fmt: skip
    assert (at.flop_per_s, at.zone, at.limit) == (1e13, "between", "l1")
    assert roofline_point(ROOF, "k", launch_work(launch), timing(1.0)).zone == "latency-bound"


def test_each_launch_has_a_point_and_the_whole_call_the_last():
    one, two = make_launch(flop_fp32=1e6, dram_read_bytes=1e6), make_launch(dram_read_bytes=2e6)
    profile = Profile("d", (one, two))
    found = roofline_points(ROOF, TASK, profile, timing(3e-6, "dram"), ["one", "two"], [timing(1e-6), timing(2e-6)])
    assert [at.label for at in found] == ["one", "two", WHOLE]
    assert found[1].levels[2].intensity is None
    assert found[2].flop == profile_work(profile).flop == 1e6
    assert {at.flop_source for at in found} == {"counted"}


def test_where_the_kernel_has_no_counted_operations_the_task_s_count_is_used():
    profile = Profile("d", (make_launch(dram_read_bytes=8e6),))
    launch, whole = roofline_points(ROOF, TASK, profile, timing(5e-6), ["relu"], [timing(4e-6)])
    assert (launch.flop, launch.flop_source) == (0.0, "counted")
    assert (whole.flop, whole.flop_source) == (task_flop(TASK), "task")


@pytest.mark.parametrize(
    ("part", "limit"),
    [("dependency", "latency"), ("tensor", "tensor"), ("fp16", "fp32"), ("dram", "dram"), ("l1", "l1")],
)
def test_the_limit_is_one_that_strategies_know(part, limit):
    evaluation = replace(Evaluation("k", "relu", "virtual:a100-80gb"), timing=timing(1e-3, part))
    assert roofline_position(TASK, evaluation, load_spec("a100-80gb")).limit == limit


def test_the_only_launch_is_shown_as_the_whole_call():
    launch = make_launch(dram_read_bytes=8e6)
    other = MemoryOperation("fill", 4096)
    alone, more = (Profile("d", (launch,), operations) for operations in ((), (other,)))
    (point,) = shown_points(roofline_points(ROOF, TASK, alone, timing(5e-6), ["relu"], [timing(4e-6)]))
    assert (point.label, point.flop, point.time_s) == ("relu", task_flop(TASK), 5e-6)
    points = roofline_points(ROOF, TASK, more, timing(5e-6), ["relu"], [timing(4e-6)])
    assert [point.label for point in shown_points(points)] == ["relu", WHOLE]
