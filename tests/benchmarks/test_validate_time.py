"""Predicted against measured times: what the benchmark says of good and of bad pairs, and how it counts."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from cupilot.records import Timing

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "validate_time.py"
KEYS = ["n", "failed", "within_1.1", "within_1.25", "within_1.5", "within_2", "median_ratio", "spearman"]
DEVICE = "virtual:a100-80gb"

TASK = """
import torch

N = 4096


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 3.0


def get_inputs():
    print("a task may print")
    return [torch.rand(N)]
"""
KERNEL = """
#include <torch/extension.h>

__global__ void scale(const float* x, float* out, float factor, int count) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) out[at] = factor * x[at];
}

torch::Tensor scaled(torch::Tensor x, double factor) {
    auto out = torch::empty_like(x);
    scale<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), factor, x.numel());
    return out;
}
"""


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("validate_time", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["validate_time"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def write_pairs(folder: Path, *lines: str) -> Path:
    path = folder / "pairs.csv"
    path.write_text("\n".join(("kernel,task,entry,args,device,measured_ms", *lines)) + "\n")
    return path


def test_bad_pairs_do_not_hinder_the_others(
    benchmark: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "kernels" / "good.cu").write_text(KERNEL)
    (tmp_path / "broken.cu").write_text(KERNEL.replace("int count", "integer count"))
    call = 'scaled,"inputs[0], 3.0"'
    pairs = write_pairs(
        tmp_path,
        f"missing.cu,task.py,{call},{DEVICE},1",
        f"broken.cu,task.py,{call},{DEVICE},1",
        f"kernels/good.cu,task.py,{call},{DEVICE},1000",
        f"kernels/good.cu,task.py,{call},virtual:abacus,1",
        f"kernels/good.cu,no_task.py,{call},{DEVICE},1",
        f"kernels/good.cu,task.py,{call},{DEVICE},fast",
        f"kernels/good.cu,task.py,scaled,inputs[0], 3.0,{DEVICE},1",
    )
    report = tmp_path / "report.json"
    assert benchmark.main([str(pairs), "--json", str(report)]) == 0

    captured = capsys.readouterr()
    *lines, last = captured.out.splitlines()
    reasons = (
        "missing.cu cannot be read: No such file", "compile-error", "launch", "unknown GPU 'abacus'",
        "no_task.py: there is no such task file", "'fast' is not a positive number",
        "arguments with commas need quotes",
    )  # fmt: skip
    assert len(lines) == len(reasons)
    for line, reason in zip(lines, reasons, strict=True):
        assert reason in line, captured.out
        assert ("failed: " in line) == (reason != "launch")
    summary = json.loads(last)
    assert list(summary) == KEYS
    assert (summary["n"], summary["failed"], summary["within_2"], summary["spearman"]) == (7, 6, 0.0, None)

    good = json.loads(report.read_text())["pairs"][2]
    assert good["ratio"] == pytest.approx(good["predicted_ms"] / 1000)
    assert f"predicted {good['predicted_ms']:.5g} ms" in lines[2]
    assert sum(time_s for _, time_s in good["timing"]["breakdown"]) == pytest.approx(good["predicted_ms"] / 1e3)
    assert "7 of 7 pairs" in captured.err
    assert "a task may print" not in captured.out


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "cannot be read: No such file"), ("kernel,task\n", "has no column device, measured_ms")],
    ids=["no file", "no column"],
)
def test_a_file_that_cannot_be_used_is_one_sentence(
    benchmark: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str
) -> None:
    path = tmp_path / "pairs.csv"
    if text is not None:
        path.write_text(text)
    assert benchmark.main([str(path)]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_an_interrupt_keeps_what_is_done(
    benchmark: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def predict(pair: object, folder: Path) -> object:
        if "slow" in str(pair):
            over.wait()
        return predicted(benchmark, 1.0, 1.0)

    looked = []

    def wait(futures: object, return_when: str) -> object:
        if looked:
            monkeypatch.setattr(sys, "stdout", sys.stderr)  # as while another thread runs a task file
            raise KeyboardInterrupt
        looked.append(futures)
        return real(futures, return_when=return_when)

    real = benchmark.wait
    monkeypatch.setattr(benchmark, "predict", predict)
    monkeypatch.setattr(benchmark, "wait", wait)
    names = ("slow.cu", "left_out.cc", "quick.cu", "slow.cu")
    pairs = write_pairs(tmp_path, *(f"{name},t.py,,,d,1" for name in names))
    try:
        assert benchmark.main([str(pairs), "--jobs", "2", "--only", ".cu"]) == 130
    finally:
        over.set()
    captured = capsys.readouterr()
    *lines, last = captured.out.splitlines()
    assert "1 of 3 pairs" in captured.err
    assert len(lines) == 1
    assert json.loads(last)["n"] == 1


def predicted(benchmark: ModuleType, measured_ms: float, predicted_ms: float | None) -> object:
    pair = benchmark.Pair("kernel.cu", measured_ms=measured_ms)
    if predicted_ms is None:
        return benchmark.Result(pair, problem="it failed")
    return benchmark.Result(pair, Timing(predicted_ms / 1e3, "modelled", DEVICE, "dram"))


def test_the_summary_counts_failed_pairs_as_not_within(benchmark: ModuleType) -> None:
    # ratios 1.0, 1.2, 0.6 (a factor of 1.67) and none; order as measured but for the last two
    results = [predicted(benchmark, *pair) for pair in ((1.0, 1.0), (10.0, 12.0), (30.0, 18.0), (20.0, None))]
    assert benchmark.summary(results) == {
        "n": 4, "failed": 1, "within_1.1": 0.25, "within_1.25": 0.5, "within_1.5": 0.5, "within_2": 0.75,
        "median_ratio": 1.0, "spearman": 1.0,
    }  # fmt: skip
    assert list(benchmark.summary([]).values()) == [0, 0] + [None] * 6


def test_a_factor_is_the_same_both_ways(benchmark: ModuleType) -> None:
    results = [predicted(benchmark, 1.0, 1.99), predicted(benchmark, 1.99, 1.0), predicted(benchmark, 1.0, 0.49)]
    summary = benchmark.summary(results)
    assert summary["within_2"] == pytest.approx(2 / 3, abs=1e-4)
    assert summary["within_1.5"] == 0.0
    assert summary["median_ratio"] == pytest.approx(1 / 1.99, abs=1e-4)


def test_ranks_that_are_shared_are_in_the_middle(benchmark: ModuleType) -> None:
    assert benchmark.ranks([5.0, 1.0, 5.0, 9.0, 5.0]) == [3.0, 1.0, 3.0, 5.0, 3.0]
    # ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4: products of deviations sum to 4.5, squares to 4.5 and 5
    assert benchmark.spearman([1, 2, 2, 4], [1, 3, 2, 4]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5, abs=1e-4)
    assert benchmark.spearman([3, 2, 1], [10, 200, 3000]) == -1.0
    assert benchmark.spearman([1, 2], [1, 2]) is None
    assert benchmark.spearman([1, 1, 1], [1, 2, 3]) is None
