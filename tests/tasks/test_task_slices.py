"""Slices: what is found out about a task on a small version holds for a large one."""

from __future__ import annotations

import numpy as np
import pytest

from cupilot.arrays import Tiled
from cupilot.places import Runs
from cupilot.records import Task
from cupilot.tasks import SlicedCase, draw_case, find_slicing, make_case, scaled_tasks
from cupilot.tasks.load import task_from_source

FORM = """
import torch
from torch import nn
{sizes}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x, y=None):
        return {result}
def get_inputs():
    return [{inputs}]
"""
ROWS = {"sizes": "R, C = 512, 1024", "inputs": "torch.rand(R, C)"}
PAIR = {"sizes": "R, C = 512, 1024", "inputs": "torch.rand(R, C), torch.rand(R, C)"}
PRODUCT = {"sizes": "M, K, N = 512, 1024, 640", "inputs": "torch.rand(M, K), torch.rand(K, N)"}


def task_of(result: str, init: str = "pass", **parts: str) -> Task:
    source = FORM.format(result=result, init=init, **parts)
    return task_from_source(source, "sample", "fp32", where="sample")


TASKS = {
    "softmax": (task_of("torch.softmax(x, 1)", **ROWS), ("slices", 0, (0,))),
    "column sums": (task_of("x.sum(0)", **ROWS), ("slices", 0, (1,))),
    "product": (task_of("x @ y", **PRODUCT), ("slices", 0, (0, None))),
    "transposed": (task_of("x.T @ y", **PRODUCT | {"inputs": "torch.rand(K, M), torch.rand(K, N)"}),
                   ("slices", 0, (1, None))),
    "batch norm": (task_of("self.norm(x)", "self.norm = nn.BatchNorm2d(C)", sizes="B, C, H = 64, 128, 96",
                           inputs="torch.rand(B, C, H, 40)"), ("slices", 1, (1,))),
    "mean": (task_of("((x - y) ** 2).mean()", **PAIR), ("mean", -1, (0, 0))),
    "sum": (task_of("(x * y).sum()", **PAIR), ("sum", -1, (0, 0))),
    "shifted": (task_of("torch.cat((x[:1] * 0, x))[:-1].cumsum(1)", **ROWS), ("prefix", -1, (0,))),
    "arg": (task_of("x.argmax(1)", **ROWS), ("slices", 0, (0,))),
    "two results": (task_of("(x.exp(), x.sum(1))", **ROWS), ("slices", 0, (0,))),
}  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_slices_are_found_and_give_the_whole_results(name: str) -> None:
    task, (rule, axis, inputs) = TASKS[name]
    slicing = find_slicing(scaled_tasks(task)[-1], 3)
    assert slicing is not None
    assert (slicing.rule, slicing.output_axis, slicing.inputs) == (rule, axis, inputs)
    whole, sliced = make_case(task, "normal", 9), SlicedCase(draw_case(task, "normal", 9), slicing)
    assert sliced.needs_all == (rule in ("mean", "sum"))
    rng = np.random.default_rng(1)
    for output, spec in enumerate(task.outputs):
        some = Runs.of(np.sort(rng.choice(spec.elements, min(500, spec.elements), replace=False)))
        for where in (None, *(() if sliced.needs_all else (some,))):
            wanted = sliced.expectation(output, where)
            at = slice(None) if wanted.positions is None else wanted.positions.positions
            assert where is None or set(at) <= set(where.positions)
            np.testing.assert_allclose(wanted.expected, whole.expected[output].reshape(-1)[at], rtol=1e-9, atol=1e-9)
            assert wanted.native.dtype == whole.native[output].dtype


INNER = {"softmax": None, "column sums": None, "product": 1, "transposed": 1, "mean": None, "shifted": None, "pair": 1}


@pytest.mark.parametrize("name", INNER)
def test_slices_are_cut_once_more_where_that_holds(name: str) -> None:
    task = task_of("(x - y) ** 2", **PAIR) if name == "pair" else TASKS[name][0]
    slicing = find_slicing(scaled_tasks(task)[-1], 3)
    assert slicing is not None
    assert (slicing.inner and slicing.inner.output_axis) == INNER[name]


def test_parts_of_slices_are_those_of_the_whole() -> None:
    task = task_of(
        "self.c(x)",
        "self.c = nn.Conv2d(C, D, 3)",
        sizes="B, C, D, H = 64, 24, 40, 40",
        inputs="torch.rand(B, C, H, 40)",
    )
    slicing = find_slicing(scaled_tasks(task)[-1], 3)
    assert slicing is not None
    assert slicing.inner is not None
    assert slicing.inner.state
    whole, sliced = make_case(task, "normal", 9), SlicedCase(draw_case(task, "normal", 9), slicing)
    rng = np.random.default_rng(1)
    for _ in range(3):
        firsts = np.sort(rng.choice(task.outputs[0].elements // 100, 200, replace=False)) * 100
        wanted = sliced.expectation(0, Runs(np.stack([firsts, np.full(200, 90)], axis=1)))
        assert wanted.positions is not None
        at = wanted.positions.positions
        np.testing.assert_allclose(wanted.expected, whole.expected[0].reshape(-1)[at], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(wanted.native, whole.native[0].reshape(-1)[at], rtol=1e-4, atol=1e-4)


def test_what_hangs_together_is_not_cut() -> None:
    assert find_slicing(scaled_tasks(task_of("x / x.norm()", **ROWS))[-1], 3) is None
    assert find_slicing(scaled_tasks(task_of("x.max()", **ROWS))[-1], 3) is None


def test_slices_come_from_every_quarter() -> None:
    task, _ = TASKS["softmax"]
    slicing = find_slicing(scaled_tasks(task)[-1], 3)
    assert slicing is not None
    sliced = SlicedCase(draw_case(task, "normal", 9), slicing)
    where = np.arange(0, task.outputs[0].elements, 1000)
    rows = sliced.expectation(0, Runs.of(where)).positions.positions // 1024
    assert set((rows * 4 // 512).tolist()) == {0, 1, 2, 3}


def test_a_task_larger_than_memory_costs_no_memory() -> None:
    task = task_of("torch.softmax(x, 1)", sizes="R, C = 65536, 65536", inputs="torch.rand(R, C)")
    slicing = find_slicing(scaled_tasks(task)[-1], 3)
    assert slicing is not None
    sliced = SlicedCase(draw_case(task, "normal", 9, (None,)), slicing)
    (x,) = sliced.arguments
    assert isinstance(x, Tiled)
    assert x.shape == (65536, 65536)
    wanted = sliced.expectation(0, Runs.of(np.arange(0, 1 << 32, 1 << 20)))
    assert wanted.positions is not None
    row, column = divmod(int(wanted.positions[-1]), 65536)
    powers = np.exp(x[row].astype(np.float64))
    assert wanted.expected[-1] == pytest.approx(powers[column] / powers.sum(), rel=1e-9)
