"""Zones and places on the roofline."""

from __future__ import annotations

import pytest

from cupilot.gpu import ZONES, achieved_fraction, load_spec, place, zone_of

A100 = load_spec("a100-80gb")


@pytest.mark.parametrize(("intensity", "zone"), [(0.1, "memory-bound"), (9.0, "memory-bound"), (10.0, "between"),
                                                 (76.0, "between"), (77.0, "compute-bound")])  # fmt: skip
def test_zones_of_fp32(intensity, zone):
    """A100-80GB: 19.5e12 / 2039e9 = 9.56 and 156e12 / 2039e9 = 76.5 operations per byte."""
    found = place(A100, intensity * 1e9, 1e9, "fp32")
    assert found.zone == zone
    assert found.intensity == pytest.approx(intensity)
    assert (found.ridge_low, found.ridge_high) == (pytest.approx(9.56, rel=0.01), pytest.approx(76.5, rel=0.01))


def test_attainable_speed_is_the_lower_roof():
    assert place(A100, 1e9, 1e9).attainable_flop_per_s == A100.dram_bytes_per_s
    assert place(A100, 1e12, 1e9).attainable_flop_per_s == A100.fp32_flop_per_s
    assert place(A100, 1e9, 0).zone == "compute-bound"


def test_half_precision_has_its_own_ridges():
    assert place(A100, 30e9, 1e9, "fp32").zone == "between"
    assert place(A100, 30e9, 1e9, "fp16").zone == "memory-bound"
    assert place(A100, 30e9, 1e9, "fp64").zone == "compute-bound"


def test_far_from_every_ceiling_is_latency_bound():
    found = place(A100, 1e9, 8e9)
    fast, slow = 8e9 / A100.dram_read_bytes_per_s, 10 * 8e9 / A100.dram_read_bytes_per_s
    assert zone_of(A100, found, achieved_fraction(A100, found, 1e9, 8e9, fast)) == "memory-bound"
    assert zone_of(A100, found, achieved_fraction(A100, found, 1e9, 8e9, slow)) == "latency-bound"
    assert {"memory-bound", "between", "compute-bound", "latency-bound"} == set(ZONES)


def test_achieved_fraction_takes_the_nearer_ceiling():
    found = place(A100, 1e12, 1e6)
    assert achieved_fraction(A100, found, 1e12, 1e6, 0.1) == pytest.approx(1e13 / A100.fp32_flop_per_s)
