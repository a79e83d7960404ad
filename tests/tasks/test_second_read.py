"""What must be read twice: by how much data shares a statistic, and what the chip can hold."""

from __future__ import annotations

import pytest

from cupilot.gpu import load_spec
from cupilot.records import Task
from cupilot.tasks.load import task_from_source
from cupilot.tasks.lower_bound import task_limit
from cupilot.tasks.second_read import second_read_bytes

A100, T4 = load_spec("a100-80gb"), load_spec("t4")
SOURCE = """
import torch

ROWS = {rows}
COLUMNS = {columns}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(COLUMNS)

    def forward(self, x):
        return {expression}


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""


def task(expression: str, rows: int = 16384, columns: int = 16384) -> Task:
    source = SOURCE.format(expression=expression, rows=rows, columns=columns)
    return task_from_source(source, "given", "fp32", where="test")


@pytest.mark.parametrize("expression", ["x / torch.norm(x)", "x * torch.rsqrt((x * x).mean() + 1e-5)"])
def test_a_norm_of_everything_is_read_twice_but_for_what_stays(expression: str) -> None:
    given = task(expression)
    size = 16384 * 16384 * 4
    assert second_read_bytes(given, A100) == pytest.approx(size - A100.on_chip_bytes)
    assert second_read_bytes(given, T4) > second_read_bytes(given, A100)
    assert task_limit(A100, given, 0.0).time_s == pytest.approx(
        A100.dram_s(2 * size - A100.on_chip_bytes, size), rel=1e-3
    )


@pytest.mark.parametrize(
    "expression",
    [
        "torch.softmax(x, dim=1)",  # a row stays
        "x / x.norm(dim=1, keepdim=True)",
        "torch.relu(x)",
        "torch.norm(x)",  # nothing is needed again
        "x.cumsum(1) / torch.norm(x)",  # not read
        "self.norm(x)",
    ],
)
def test_what_stays_is_read_once(expression: str) -> None:
    assert second_read_bytes(task(expression), A100) == 0


def test_rows_beyond_the_chip_are_read_twice() -> None:
    size = 4 * 64 * 1024 * 1024
    assert second_read_bytes(task("torch.softmax(x, dim=1)", 2, size // 4), A100) == pytest.approx(
        2 * (size - A100.on_chip_bytes)
    )
    assert second_read_bytes(task("self.norm(x)", size // 4, 3), A100) == pytest.approx(3 * (size - A100.on_chip_bytes))
