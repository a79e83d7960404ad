"""Spec files: complete, consistent with the datasheets, strict about their keys."""

from __future__ import annotations

from dataclasses import fields
from importlib.resources import files

import pytest

from cupilot.errors import DataError, DeviceError
from cupilot.gpu import GpuSpec, load_spec, spec_names
from cupilot.gpu.catalogue import parse_spec

# datasheet peaks: fp32, packed fp16 and fp64 operations per second
PEAKS = {
    "a100-40gb": (19.5e12, 78e12, 9.7e12),
    "a100-80gb": (19.5e12, 78e12, 9.7e12),
    "h100-sxm": (66.9e12, 133.8e12, 33.5e12),
    "l40s": (91.6e12, 91.6e12, 1.4e12),
    "rtx-4090": (82.6e12, 82.6e12, 1.29e12),
}


def text_of(name: str) -> str:
    return (files("cupilot.gpu") / "specs" / f"{name}.toml").read_text()


def test_the_known_gpus():
    assert spec_names() == tuple(sorted(PEAKS))


@pytest.mark.parametrize("name", sorted(PEAKS))
def test_lanes_and_clock_give_the_datasheet_peaks(name):
    spec = load_spec(name)
    fp32, fp16, fp64 = PEAKS[name]
    assert spec.fp32_flop_per_s == pytest.approx(fp32, rel=0.01)
    assert spec.fp16_flop_per_s == pytest.approx(fp16, rel=0.01)
    assert spec.fp64_flop_per_s == pytest.approx(fp64, rel=0.08)


@pytest.mark.parametrize("name", sorted(PEAKS))
def test_numbers_are_consistent(name):
    spec = load_spec(name)
    assert spec.name == name
    assert spec.threads_per_sm == 32 * spec.warps_per_sm
    assert spec.shared_bytes_per_block <= spec.shared_bytes_per_block_optin == spec.shared_bytes_per_sm - 1024
    assert spec.shared_bytes_per_sm < spec.l1_bytes_per_sm
    assert spec.dram_copy_bytes_per_s < spec.dram_read_bytes_per_s < spec.dram_bytes_per_s < spec.l2_bytes_per_s
    assert spec.l1_latency_cycles < spec.l2_latency_cycles < spec.dram_latency_cycles
    assert 0.5 < spec.sgemm_flop_per_s / spec.fp32_flop_per_s < 1.0
    assert 1.9 < spec.fp16_tensor_flop_per_s / spec.tf32_tensor_flop_per_s < 2.1
    assert 1e-6 < spec.launch_overhead_s < 5e-6
    assert set(dict(spec.origins)) == {f.name for f in fields(GpuSpec)} - {"name", "title", "architecture", "origins"}


def test_a_copy_takes_the_measured_time():
    spec = load_spec("a100-80gb")
    assert spec.dram_s(1e9, 1e9) == pytest.approx(2e9 / spec.dram_copy_bytes_per_s)
    assert spec.dram_s(1e9, 0) == pytest.approx(1e9 / spec.dram_read_bytes_per_s)


def test_unknown_gpu_names_the_known_ones_and_the_nearest():
    with pytest.raises(DeviceError, match=r"did you mean 'rtx-4090'\?.*a100-40gb, a100-80gb, h100-sxm"):
        load_spec("RTX4090")
    with pytest.raises(DeviceError, match=r"unknown GPU '\.\./\.\./secret'"):
        load_spec("../../secret")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sms = {", "smz = {", "unknown key 'smz'"),
        ('sms = { value = 108, origin = "datasheet" }\n', "", "'sms' is missing"),
        ("value = 108,", "value = '108',", "sms.value"),
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
