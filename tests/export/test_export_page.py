"""What docs/export.md shows, typed and run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from cupilot.cli import main
from cupilot.contracts import Device
from cupilot.evolution.result import evaluation_report, repeat_report, to_json
from cupilot.records import Kernel
from cupilot.tasks import load_task
from evaluating import evaluator_on
from snippets import blocks, write_files

KERNEL = """
#include <torch/extension.h>
__global__ void scale(const float* x, const float* w, float* y, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * w[i % columns];
}
torch::Tensor forward(torch::Tensor x, torch::Tensor weight) {
    auto y = torch::empty_like(x);
    int n = (int)x.numel();
    scale<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(), n,
                                    (int)x.size(1));
    return y;
}
"""


def test_the_page_runs(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_files("export.md", tmp_path)
    Path("rows.cu").write_text(KERNEL)
    task, kernel = load_task(Path("rows.py")), Kernel(KERNEL)
    evaluation = evaluator_on(device)(task, kernel)
    Path("runs/rows-1").mkdir(parents=True)
    report = evaluation_report(evaluation) | repeat_report(task, kernel, 60.0)
    Path("runs/rows-1/result.json").write_text(to_json({"best": report}))
    commands = [line for block in blocks("export.md") if block.language == "sh" for line in block.text.splitlines()]
    assert len(commands) == 5
    for command in commands:
        program, *words = shlex.split(command)
        assert (program, main(words)) == ("cupilot", 0), command
    (code,) = (block.text for block in blocks("export.md") if block.language == "python" and not block.title)
    monkeypatch.syspath_prepend("rows-library")
    exec(compile(code, "docs/export.md", "exec"), {"__name__": "page"})
