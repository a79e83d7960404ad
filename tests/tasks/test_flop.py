"""Counting the operations of a graph."""

from __future__ import annotations

import pytest
from made_tasks import make_task

from cupilot.tasks.flop import RULES, task_flop
from cupilot.tasks.operators import FLOP_RULES


@pytest.mark.parametrize(
    ("task", "flop"),
    [
        (make_task([(8, 32), (32, 16)], ("aten.mm", ("x0", "x1"), (8, 16))), 2 * 8 * 16 * 32),
        (make_task([(3, 8, 32), (3, 32, 16)], ("aten.matmul.default", ("x0", "x1"), (3, 8, 16))), 2 * 3 * 8 * 16 * 32),
        (make_task([(8, 32), (16, 32), (16,)], ("aten.linear", ("x0", "x1", "x2"), (8, 16))), 2 * 8 * 16 * 32),
        (make_task([(16,), (8, 32), (32, 16)], ("aten.addmm", ("x0", "x1", "x2"), (8, 16))), 2 * 8 * 16 * 32),
        (make_task([(4, 10)], ("aten.relu", ("x0",), (4, 10))), 40),
        (make_task([(4, 10)], ("aten.softmax.int", ("x0",), (4, 10))), 200),
        (make_task([(4, 10)], ("aten.sum.dim_IntList", ("x0",), (4,))), 40),
        (make_task([(4, 10)], ("aten.view", ("x0",), (40,)), ("aten.gelu", ("op0",), (40,))), 40),
        (make_task([(1, 3, 8, 8), (5, 3, 3, 3)], ("aten.conv2d", ("x0", "x1"), (1, 5, 6, 6))), 2 * 180 * 27),
    ],
)
def test_task_flop(task, flop):
    assert task_flop(task) == flop


def test_every_rule_of_the_catalogue_is_implemented():
    assert set(RULES) == set(FLOP_RULES)
