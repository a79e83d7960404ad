"""What ``cupilot devices`` says: every GPU on a line of its own, and which one is the default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cupilot.devices
import cupilot.devices.cuda_probe
from cupilot.devices.cuda_probe import ATTRIBUTES, Found, Gpu
from cupilot.devices.virtual import names

Cli = Callable[..., Any]


def listed(cli: Cli, monkeypatch: pytest.MonkeyPatch, *devices: str) -> list[str]:
    monkeypatch.setattr(cupilot.devices, "device_names", lambda: devices)
    ran = cli("devices")
    assert (ran.status, ran.err) == (0, "")
    return ran.out.splitlines()  # type: ignore[no-any-return]


def test_one_line_for_each_device(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    head, *lines, _, default = listed(cli, monkeypatch, "virtual:a100-80gb", "virtual:b200", "virtual:t4")
    assert head.split() == ["device", "GPU", "SMs", "TFLOP/s", "GB/s", "L2", "memory"]
    assert [line.split() for line in lines] == [
        ["virtual:a100-80gb", "A100-SXM4-80GB", "108", "19.5", "2039", "40", "MB", "80", "GB"],
        ["virtual:b200", "B200", "148", "74.4", "7672", "126", "MB", "180", "GB"],
        ["virtual:t4", "Tesla", "T4", "40", "8.1", "320", "4", "MB", "16", "GB"],
    ]
    assert default == "The default is virtual:sample: no CUDA GPU was found."


def test_the_whole_list_fits_a_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    head, *lines, _, _ = listed(cli, monkeypatch, *names())
    assert [line.split()[0] for line in lines] == list(names())
    assert max(map(len, (head, *lines))) <= 80
    assert len(set(map(len, (head, *lines)))) == 1, "the columns are straight"


def test_a_real_gpu_that_is_not_in_the_catalogue(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    told = dict.fromkeys(ATTRIBUTES, 1) | {
        "COMPUTE_CAPABILITY_MAJOR": 8, "COMPUTE_CAPABILITY_MINOR": 0, "MULTIPROCESSOR_COUNT": 54,
        "CLOCK_RATE": 1_410_000, "L2_CACHE_SIZE": 20 << 20, "MEMORY_CLOCK_RATE": 1_000_000,
        "GLOBAL_MEMORY_BUS_WIDTH": 5120,
    }  # fmt: skip
    found = Found(gpus=(Gpu(3, "NVIDIA Half", "GPU-3", 24 << 30, tuple(told.items())),))
    monkeypatch.setattr(cupilot.devices.cuda_probe, "find_gpus", lambda: found)
    _, line, _, _ = listed(cli, monkeypatch, "cuda:3")
    assert line.split() == ["cuda:3", "Half", "54", "9.7", "1280", "20", "MB", "24", "GB"]
