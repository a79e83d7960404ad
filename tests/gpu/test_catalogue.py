"""Spec files: complete, every number with its origin, strict about their keys."""

from __future__ import annotations

from dataclasses import fields
from importlib.resources import files

import pytest

from cupilot.errors import DataError, DeviceError
from cupilot.gpu import GpuSpec, load_spec, spec_names
from cupilot.gpu.catalogue import ORIGINS, parse_spec

NAMES = (
    "a10", "a100-40gb", "a100-80gb", "a100-pcie-40gb", "a6000", "b200", "h100-pcie", "h100-sxm", "h200", "l4", "l40s",
    "rtx-3090", "rtx-3090-ti", "rtx-4090", "t4", "v100",
)  # fmt: skip


def text_of(name: str) -> str:
    return (files("cupilot.gpu") / "specs" / f"{name}.toml").read_text()


def test_the_known_gpus():
    assert spec_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_file_states_every_number_with_its_origin(name):
    spec = load_spec(name)
    assert spec.name == name
    assert set(dict(spec.origins)) == {f.name for f in fields(GpuSpec)} - {"name", "title", "architecture", "origins"}
    assert {origin for _, origin in spec.origins} <= set(ORIGINS)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_begins_with_what_its_derived_numbers_are_from(name):
    first, *_ = text_of(name).splitlines()
    assert first.startswith("# ")


def test_titles_tell_gpus_apart():
    assert len({load_spec(name).title for name in NAMES}) == len(NAMES)


def test_unknown_gpu_names_the_known_ones_and_the_nearest():
    with pytest.raises(DeviceError, match=r"did you mean 'rtx-4090'\?.*a100-40gb, a100-80gb, a100-pcie-40gb"):
        load_spec("RTX4080")
    with pytest.raises(DeviceError, match=r"unknown GPU '\.\./\.\./secret'"):
        load_spec("../../secret")


@pytest.mark.parametrize("clock", ["765mhz", "765MHz"])
def test_a_name_may_have_a_clock(clock):
    spec = load_spec(f"a100-pcie-40gb@{clock}")
    assert spec == load_spec("a100-pcie-40gb").at_clock(765e6)
    assert (spec.name, spec.clock_hz) == ("a100-pcie-40gb@765mhz", 765e6)
    assert load_spec(spec.name) == spec


@pytest.mark.parametrize(
    "clock", ["", "765", "mhz", "fast", "765 mhz", "-765mhz", "765.5mhz", "7mhz", "00mhz", "765mhz@800mhz"]
)
def test_what_is_no_clock_is_refused(clock):
    with pytest.raises(DeviceError, match=r"clock .* is not of the form 765mhz"):
        load_spec(f"a100-80gb@{clock}")


def test_an_unknown_gpu_with_a_clock_names_the_nearest_as_well():
    with pytest.raises(DeviceError, match=r"unknown GPU 'RTX4080'; did you mean 'rtx-4090'\?"):
        load_spec("RTX4080@765mhz")
    with pytest.raises(DeviceError, match=r"unknown GPU ''"):
        load_spec("@765mhz")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sms = {", "smz = {", "unknown key 'smz'"),
        ('sms = { value = 108, origin = "datasheet" }\n', "", "'sms' is missing"),
        ('pcie_bytes_per_s = { value = 2.5e10, origin = "derived" }\n', "", "'pcie_bytes_per_s' is missing"),
        ("value = 108,", "value = '108',", "sms.value"),
        ("value = 108,", "value = [108],", "expected int"),
        ("value = [0, 8192,", "value = [0, 8192.5,", "shared_carveouts"),
        ("value = 108,", "value = 108.5,", "expected int"),
        ('value = 108, origin = "datasheet"', 'value = 108, origin = "hearsay"', "origin 'hearsay'"),
        ('value = 108, origin = "datasheet"', "value = 108", "'origin' is missing"),
        ('sms = { value = 108, origin = "datasheet" }', "sms = 108", "expected a table"),
        ('name = "a100-80gb"', 'name = "a100"', "differ"),
        ('title = "', 'titel = "', "titel"),
        ("sms = {", "sms = = {", "GPU spec a100-80gb"),
    ],
)
def test_broken_files_are_refused(old, new, message):
    text = text_of("a100-80gb")
    assert old in text
    with pytest.raises(DataError, match=message):
        parse_spec(text.replace(old, new, 1), "a100-80gb")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("A100-80GB", "a100-80gb"), ("A100-SXM4-80GB", "a100-80gb"), ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("RTX A6000", "a6000"), ("H100-PCIe", "h100-pcie"), ("GeForce RTX 3090", "rtx-3090"), ("Tesla T4", "t4"),
        ("RTX A6000@1410MHz", "a6000@1410mhz"),
    ],
)  # fmt: skip
def test_a_gpu_is_known_by_its_title_too(written, name):
    assert load_spec(written).name == name
