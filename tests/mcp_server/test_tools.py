"""What tools answer, without the protocol: short, with sources of numbers and places of findings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cupilot.contracts import Device
from cupilot.errors import UserError
from cupilot.mcp.request import ToolRequest
from cupilot.mcp.tools import Tools
from cupilot.records import to_plain

TASK = """
import torch

ROWS = 1000

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(ROWS, 64)]
"""
KERNEL = """
#include <torch/extension.h>
__global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = (int)x.numel();
    relu<<<n / 256 + 1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""
PROGRAM = """
#include <cstdio>
#include <fstream>
__global__ void add(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) x[i] += 1.0f;
}
int main(int count, char** words) {
    float* x;
    cudaMalloc(&x, 100 * sizeof(float));
    cudaMemset(x, 0, 100 * sizeof(float));
    add<<<1, 128>>>(x, 100);
    cudaDeviceSynchronize();
    std::ofstream stolen("%s");
    std::printf("%%s: file %%d, input %%d\\n", words[1], (int)stolen.good(), std::getchar());
    return 0;
}
"""
ASKED = ToolRequest("evaluate", "virtual:a100-80gb", KERNEL, TASK)


@pytest.fixture(scope="module")
def tools(device: Device, cache: Path) -> Tools:
    return Tools(lambda name: device, cache, seed=5)


def ask(tools: Tools, request: ToolRequest) -> tuple[Any, list[str]]:
    steps: list[str] = []
    found = tools.answer(request, steps.append)
    assert len(json.dumps(to_plain(found))) < 6000
    return found, steps


def test_a_kernel_for_several_shapes(tools: Tools) -> None:
    task = (
        TASK.replace("get_inputs()", "get_inputs(rows)").replace("randn(ROWS", "randn(rows") + "\nSHAPES = [1000, 37]\n"
    )
    found, _ = ask(tools, replace(ASKED, task=task, task_name="relu"))
    assert found.correct
    assert found.verdict.startswith("correct for all 2 shapes; geometric mean ")
    assert [each.task for each in found.shapes] == ["relu 1000", "relu 37"]
    assert all(each.time_ms > 0 for each in found.shapes)
    wrong = KERNEL.replace("i < n", "i < n && n != 37 * 64")
    found, _ = ask(tools, replace(ASKED, task=task, task_name="relu", kernel=wrong))
    assert not found.correct
    assert found.verdict.startswith("rejected for 1 of 2 shapes, first relu 37: ")
    assert found.problem.kind == "unwritten"


def test_a_right_kernel(tools: Tools) -> None:
    found, steps = ask(tools, ASKED)
    assert steps[0] == "loading the task"
    assert any(step.startswith("making references: ") for step in steps)
    assert "building the kernel" in steps
    assert steps[-2:] == ["checking the kernel", "timing the kernel"]
    assert found.correct
    assert found.problem is None
    assert found.time.source == found.pytorch.source == "modelled"
    assert 0 < found.time.uncertainty < 1
    assert found.compared > 5
    assert found.standing.limit == "launch"
    assert found.cards


def test_findings_have_a_place(tools: Tools) -> None:
    found, _ = ask(tools, replace(ASKED, kernel=KERNEL.replace("i < n", "i <= n")))
    assert not found.correct
    assert found.time is None
    finding = found.problem.findings[0]
    assert (finding.kind, finding.kernel, finding.file, finding.line) == ("out-of-bounds", "relu", "kernel.cu", 5)
    assert finding.threads == 1
    assert finding.access.offset == finding.access.buffer_bytes
    assert found.problem.log == ""


def test_compiler_messages_are_kept(tools: Tools) -> None:
    found, _ = ask(tools, replace(ASKED, tool="profile", kernel=KERNEL.replace("int i", "itn i")))
    assert (found.problem.stage, found.problem.kind) == ("build", "compile-error")
    (finding, *_) = found.problem.findings
    assert (finding.kind, finding.file, finding.line) == ("compile-error", "kernel.cu", 4)
    assert finding.text == 'identifier "itn" is undefined'
    assert 'identifier "itn" is undefined' in found.problem.log


def test_a_profile_names_lines_and_limits(tools: Tools) -> None:
    found, _ = ask(tools, replace(ASKED, tool="profile"))
    (launch,) = found.launches
    assert (launch.kernel, launch.grid, launch.registers > 0) == ("relu", (251, 1, 1), True)
    assert launch.hottest_lines[0].line == 5
    assert launch.hottest_lines[0].text.startswith("if (i < n)")
    assert sum(part.share for part in launch.parts) == pytest.approx(1.0, abs=0.05)
    assert not found.verified


def test_the_roofline_with_and_without_a_kernel(tools: Tools) -> None:
    bound, _ = ask(tools, replace(ASKED, tool="roofline", kernel=""))
    assert bound.least_bytes == 2 * 1000 * 64 * 4
    assert bound.datasheet_ms == pytest.approx(bound.least_bytes / 2.039e12 * 1e3, rel=1e-3)
    assert bound.datasheet_ms < bound.bound_ms
    assert bound.dots == ()
    found, _ = ask(tools, replace(ASKED, tool="roofline"))
    assert [dot.label for dot in found.dots] == ["relu", "the whole call"]
    assert found.time.time_ms > found.bound_ms
    failed, _ = ask(tools, replace(ASKED, tool="roofline", kernel="no kernel\n"))
    assert failed.problem.stage == "build"
    assert failed.bound_ms == bound.bound_ms


def test_a_program_is_checked_and_confined(tools: Tools, tmp_path: Path) -> None:
    request = replace(ASKED, tool="run", kernel=PROGRAM % (tmp_path / "stolen"), words=("said",))
    found, steps = ask(tools, request)
    assert steps == ["compiling the program", "running the program"]
    assert found.output == "said: file 0, input -1\n"
    assert not (tmp_path / "stolen").exists()
    assert (found.status, found.clean, found.findings_in_all) == (0, False, 2)
    assert (found.findings[0].line, found.findings[0].thread) == (6, (100, 0, 0))


def test_requests_without_an_answer(tools: Tools) -> None:
    with pytest.raises(UserError, match="unknown tool 'dance'"):
        ask(tools, replace(ASKED, tool="dance"))
    with pytest.raises(UserError, match="precision 'fp1' is not one of"):
        ask(tools, replace(ASKED, precision="fp1"))
