"""What must move at least: no more of an argument than the operators on it need."""

from __future__ import annotations

import pytest

from cupilot.evaluation.speed_of_light import least_bytes
from cupilot.tasks.load import task_from_source

TASK = """
import torch
N = 64
class Model(torch.nn.Module):
    def forward(self, x):
        return {result}
def get_inputs():
    return [torch.rand(N, N)]
"""
ALL = 64 * 64 * 4


@pytest.mark.parametrize(
    ("result", "read", "written"),
    [
        ("torch.relu(x)", ALL, ALL),
        ("torch.tril(x).sum(1)", ALL // 2, 64 * 4),
        ("torch.relu(x[:8])", ALL // 8, ALL // 8),
        ("torch.triu(x) + x", ALL, ALL),
        ("torch.triu(torch.relu(x))", ALL, ALL),
    ],
)
def test_parts_of_an_argument(result: str, read: int, written: int) -> None:
    task = task_from_source(TASK.format(result=result), "parts", "fp32", where="parts")
    assert least_bytes(task) == read + written
