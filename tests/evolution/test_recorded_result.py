"""What is read of a result file: one kernel, or one kernel at several shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cupilot.errors import UserError
from cupilot.evolution.recorded_result import read_recorded_result, read_recorded_results


def report(name: str, time_s: float) -> dict[str, Any]:
    kernel = {"source": "text", "entry": "forward", "arguments": "", "language": "cuda", "options": []}
    return {
        "device": "virtual:a100-80gb",
        "timing": {"time_s": time_s, "source": "modelled", "device": "virtual:a100-80gb", "limit": "dram",
                   "breakdown": []},
        "proof": {"source": "0" * 64, "task": "0" * 64, "tools": [["cupilot", "0.1.0"]], "seed": 1, "checks": 1,
                  "worst": 0.1, "image": "0", "baseline": ""},
        "repeat": {"task": {"name": name, "source": "", "precision": "fp32"}, "kernel": kernel, "timeout_s": 5.0},
        "speedup": 2.0,
    }  # fmt: skip


def write(path: Path, data: object) -> Path:
    path.write_text(json.dumps(data))
    return path


def test_each_shape_is_a_result(tmp_path: Path) -> None:
    parts = [report("relu 64", 1e-6), report("relu 100", 2e-6)]
    path = write(tmp_path / "result.json", {"task": "relu", "correct": True, "shapes": parts})
    found = read_recorded_results(path)
    assert [(each.task, each.timing.time_s) for each in found] == [("relu 64", 1e-6), ("relu 100", 2e-6)]
    with pytest.raises(UserError, match=r"holds 2 shapes, where the result of one is wanted"):
        read_recorded_result(path)


def test_a_run_and_an_evaluation_have_one(tmp_path: Path) -> None:
    for data in (report("relu", 1e-6), {"best": report("relu", 1e-6)}, {"shapes": [report("relu", 1e-6)]}):
        path = write(tmp_path / "result.json", data)
        assert read_recorded_result(path).task == "relu"
        assert len(read_recorded_results(path)) == 1


@pytest.mark.parametrize("shapes", [[7], [report("relu", 1e-6), {}], [report("relu", 1e-6), None], [[]]])
def test_a_shape_without_a_proof_is_none(shapes: object, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no proof"):
        read_recorded_results(write(tmp_path / "result.json", {"shapes": shapes}))
