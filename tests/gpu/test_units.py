"""How busy a launch keeps each unit, and where the numbers come from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cupilot.gpu import load_spec
from cupilot.gpu.units import sources_of, units
from cupilot.records import Counter, Launch, Resources

A100 = load_spec("a100-80gb")


def make_launch(**counters: float) -> Launch:
    found = tuple(Counter(name, value, "PTX") for name, value in counters.items())
    return Launch("k", (8, 1, 1), (64, 1, 1), 0, Resources(32), 8, found)


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
