"""Whoever looks on sees an evaluation go from stage to stage, and end."""

from __future__ import annotations

from pathlib import Path

from cupilot.contracts import DONE, REFERENCE, Device, Step
from cupilot.records import Kernel
from cupilot.tasks import load_task
from evaluating import evaluator_on

TASK = """
import torch

ROWS, COLUMNS = 64, 256

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]

def get_init_inputs():
    return []
"""
KERNEL = """
#include <torch/extension.h>
__global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > 0 ? x[i] : 0;
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = (int)x.numel();
    relu<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""


def stages(device: Device, folder: Path, source: str) -> tuple[list[str], list[Step]]:
    """Of the kernel, and the steps of the references."""
    (folder / "relu.py").write_text(TASK)
    seen: list[Step] = []
    kernel = Kernel(source)
    evaluator_on(device, watch=seen.append)(load_task(folder / "relu.py"), kernel)
    own = [step.stage for step in seen if step.stage != REFERENCE]
    assert {step.who for step in seen if step.stage != REFERENCE} == {kernel.digest}
    return own, [step for step in seen if step.stage == REFERENCE]


def test_a_kernel_goes_through_all_stages(device: Device, tmp_path: Path) -> None:
    own, references = stages(device, tmp_path, KERNEL)
    assert own == ["waiting", "building", "waiting", "checking", "timing", DONE]
    assert references[0].what
    assert [bool(step.what) for step in references] == [True, False] * (len(references) // 2), "each ends"
    assert "relu, true shape, normal inputs" in {step.what for step in references}


def test_one_that_does_not_compile_ends_there(device: Device, tmp_path: Path) -> None:
    # references may be made meanwhile
    own, _ = stages(device, tmp_path, KERNEL.replace("int n =", "integer n ="))
    assert own == ["waiting", "building", DONE]
