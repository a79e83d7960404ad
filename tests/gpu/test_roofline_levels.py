"""The hierarchical roof of every GPU, what counters make of a launch, and the least possible time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cupilot.gpu import load_spec, place, spec_names
from cupilot.gpu.roofline import (
    LEVELS,
    ZONES,
    Bound,
    Work,
    ceilings,
    is_near,
    launch_work,
    operation_work,
    precision_in_use,
    profile_work,
    roof_of,
)
from cupilot.records import Counter, Launch, MemoryOperation, Profile, Resources

A100 = load_spec("a100-80gb")
PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4")
ROOFS = [roof_of(load_spec(name), precision) for name in spec_names() for precision in PRECISIONS]

roofs = st.sampled_from(ROOFS)
intensities = st.floats(1e-6, 1e9)


def make_launch(*counters: tuple[str, float]) -> Launch:
    return Launch("k", (8, 1, 1), (64, 1, 1), 0, Resources(32), 8, tuple(Counter(n, v, "PTX") for n, v in counters))


@given(roof=roofs, pair=st.tuples(intensities, intensities))
def test_zones_follow_each_other(roof, pair):
    low, high = sorted(pair)
    assert ZONES.index(roof.zone(low)) <= ZONES.index(roof.zone(high))
    assert roof.zone(roof.ridge_low * 0.999) == "memory-bound"
    assert roof.zone(roof.ridge_high * 1.001) == "compute-bound"
    assert ("between" in {roof.zone(low), roof.zone(high), roof.zone(roof.ridge_low)}) <= roof.has_tensor_cores


@given(roof=roofs, pair=st.tuples(intensities, intensities), level=st.sampled_from(LEVELS))
def test_no_speed_lies_above_the_roof(roof, pair, level):
    low, high = (roof.attainable_flop_per_s(intensity, level) for intensity in sorted(pair))
    assert 0 < low <= high <= roof.core_flop_per_s
    assert low <= min(pair) * roof.bytes_per_s(level)


@pytest.mark.parametrize("roof", ROOFS, ids=lambda roof: f"{roof.gpu} {roof.precision}")
def test_every_roof_is_sound(roof):
    assert 0 < roof.ridge_low <= roof.ridge_high
    assert all(isfinite(value) and value > 0 for value in (roof.core_flop_per_s, roof.tensor_flop_per_s))
    assert all(roof.bytes_per_s(near) > roof.bytes_per_s(far) for near, far in pairwise(LEVELS))
    assert roof.dram_reached_bytes_per_s < roof.dram_bytes_per_s


def test_without_tensor_cores_there_is_one_ridge():
    none = replace(A100, tf32_tensor_flop_per_s=0.0, bf16_tensor_flop_per_s=0.0)
    for precision in ("fp32", "tf32", "bf16"):
        roof = roof_of(none, precision)
        assert roof.ridge_low == roof.ridge_high
        assert not roof.has_tensor_cores
        assert {place(none, flop, 1.0, precision).zone for flop in (0.0, 1.0, 9.0, 50.0, 1e9)} <= {
            "memory-bound", "compute-bound",
        }  # fmt: skip


def test_ceilings_of_an_a100():
    """19.5 and 156, 78 and 312, 39 and 312, 9.7 and 19.5 Tflop/s, 78 and 624 Tops on the datasheet."""
    datasheet = {
        "fp32": (19.5, 156), "fp16": (78, 312), "bf16": (39, 312), "fp64": (9.7, 19.5), "int8": (78, 624),
    }  # fmt: skip
    for precision, (core, tensor) in datasheet.items():
        assert ceilings(A100, precision) == (
            pytest.approx(core * 1e12, rel=0.01),
            pytest.approx(tensor * 1e12, rel=0.01),
        )
    roof = roof_of(A100)
    assert roof.l1_bytes_per_s == 128 * 108 * 1.41e9
    assert roof.l2_bytes_per_s == A100.l2_bytes_per_s


def test_a_volta_has_no_bf16_and_computes_in_fp32():
    v100 = load_spec("v100")
    assert ceilings(v100, "bf16") == (v100.fp32_flop_per_s, v100.fp32_flop_per_s)


def test_work_of_a_launch_is_what_the_counters_say():
    launch = make_launch(
        ("flop_fp32", 100.0), ("flop_fp16", 20.0), ("flop_tensor_fp16", 4096.0), ("flop_tensor_tf32", 4.0),
        ("global_load_sectors", 10.0), ("global_store_sectors", 4.0), ("global_atomic_sectors", 1.0),
        ("l2_read_sectors", 6.0), ("l2_write_sectors", 4.0), ("dram_read_bytes", 96.0), ("dram_write_bytes", 128.0),
        ("shared_load_wavefronts", 1e9),
    )  # fmt: skip
    work = launch_work(launch)
    assert work == Work(120.0, 4100.0, 15 * 32.0, 10 * 32.0, 224.0)
    assert [work.intensity(level) for level in LEVELS] == [4220 / 480, 4220 / 320, 4220 / 224]
    assert precision_in_use((launch,), "fp32") == "fp16"
    assert precision_in_use((make_launch(("flop_fp16", 1.0)),), "fp32") == "fp32"


def test_nothing_moved_or_computed_has_no_intensity():
    assert Work(core_flop=1.0).intensity("DRAM") is None
    assert Work(dram_bytes=1.0).intensity("DRAM") is None


def test_fills_write_and_copies_do_both():
    assert operation_work(MemoryOperation("fill", 100)).dram_bytes == 100
    assert operation_work(MemoryOperation("copy", 100)).dram_bytes == 200
    assert operation_work(MemoryOperation("aten.mm", 100, 7.0)) == Work(7.0, 0.0, 0.0, 200.0, 200.0)
    launch = make_launch(("flop_fp32", 5.0), ("dram_read_bytes", 50.0))
    profile = Profile("d", (launch, launch), (MemoryOperation("fill", 100),))
    assert profile_work(profile) == Work(10.0, 0.0, 0.0, 100.0, 200.0)


@given(
    roof=roofs,
    parts=st.lists(st.floats(0, 1e15), min_size=5, max_size=5),
    time_s=st.floats(1e-7, 10.0),
    factor=st.floats(1.5, 100.0),
)
def test_nearness_falls_with_time_and_is_full_at_the_ceiling(roof, parts, time_s, factor):
    work = Work(*parts)
    assert work.nearest(roof, factor * time_s) == pytest.approx(work.nearest(roof, time_s) / factor)
    for level, only in zip(LEVELS, ("l1_bytes", "l2_bytes", "dram_bytes"), strict=True):
        full = Work(**{only: roof.bytes_per_s(level) * time_s})
        assert full.nearest(roof, time_s) == pytest.approx(1.0)
        assert is_near(roof, full.nearest(roof, time_s))
        assert not is_near(roof, full.nearest(roof, 100 * time_s))


def test_a_bound_has_its_arithmetic():
    bound = Bound(8388608, 2.039e12, 1e6, 1e12)
    assert bound.time_s == bound.bytes_s == 8388608 / 2.039e12
    assert bound.reason == "moving 8388608 bytes at 2039 GB/s"
    busy = Bound(1.0, 1e12, 2e12, 1e12)
    assert (busy.time_s, busy.reason) == (2.0, "2e+12 operations at 1 Tflop/s")
