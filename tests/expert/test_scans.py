from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_reductions import DECK, check_drawn, problem_of, rendered, task_of

from cupilot.contracts import Device
from cupilot.errors import UnmatchedTask
from cupilot.expert.matching import match
from cupilot.expert.recipe import load_recipes
from cupilot.expert.space import Space
from cupilot.records import Argument, TensorSpec
from cupilot.strategies import parse

EXCLUSIVE = "torch.cumsum(torch.cat((torch.zeros_like(a[:, :1]), a), dim=1)[:-1], dim=1)"
SHIFTED = "torch.cumsum(torch.cat((torch.zeros_like(a[:, :1]), a[:, :-1]), dim=1), dim=1)"
REVERSE = "torch.cumsum(a.flip(1), dim=1).flip(1)"


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("torch.cumsum(a, dim=1)", {"operation": "sum", "outer": 6, "taken": 40, "stored": 40, "rows": True}),
        ("torch.cumprod(a, dim=0)", {"operation": "product", "outer": 1, "taken": 6, "inner": 40, "rows": False}),
        (REVERSE, {"read_mirrored": True, "write_mirrored": True, "lead": 0}),
        ("torch.cumsum(a.flip(1), dim=1)", {"read_mirrored": True, "write_mirrored": False}),
        (EXCLUSIVE, {"outer": 5, "taken": 40, "stored": 41, "lead": 1, "cut": False}),
        (SHIFTED, {"outer": 6, "taken": 39, "stored": 40, "lead": 1, "cut": True}),
    ],
)
def test_scans_match_with_what_moves_elements_around_them(body: str, wanted: dict[str, Any]) -> None:
    problem = problem_of(body, (6, 40))
    assert problem.recipe.name == "scan"
    assert {name: problem.facts[name] for name in wanted} == wanted


def test_masks_are_read_as_they_are() -> None:
    task = task_of("torch.cumsum(a * b, dim=1)", (6, 40), (6, 40))
    masked = replace(task, arguments=(task.arguments[0], Argument("b", "input", TensorSpec((6, 40), "bool"))))
    form = match(masked, load_recipes()).form
    assert [operand.c_type for operand in form.code["operands"]] == ["float", "bool"]
    assert form.code["before"].formula == "mul"


@pytest.mark.parametrize(
    "body",
    [
        "torch.cumsum(a.flip(0), dim=1)",
        "torch.cumsum(torch.cat((torch.ones_like(a[:, :1]), a), dim=1), dim=1)",  # not neutral
        "torch.cumsum(a[:, 1:], dim=1)",
        "torch.cumsum(a[:, :7], dim=1)",  # another number of elements for other shapes
        "torch.cumsum(a, dim=1) + a",
    ],
)
def test_what_is_arranged_otherwise_is_left_alone(body: str) -> None:
    with pytest.raises(UnmatchedTask):
        problem_of(body, (6, 40))


def test_many_blocks_share_a_line_only_where_lines_are_few() -> None:
    moves = parse("block-per-row\nwarp-scan\ndecoupled-look-back", DECK)
    assert not Space(problem_of("torch.cumsum(a, dim=1)", (2, 100_000)), DECK).faults(moves)
    assert Space(problem_of("torch.cumsum(a, dim=1)", (100_000, 2000)), DECK).faults(moves)


def test_sums_are_exact_where_single_precision_is_asked_for() -> None:
    assert "using Sum = double;" in rendered("torch.cumsum(a, dim=1)", (6, 40))


def test_a_line_of_the_result_may_be_longer_than_what_is_read() -> None:
    text = rendered(EXCLUSIVE, (8, 64), moves="warp-scan\nblocked-arrangement(items=8)\nvector-load(bytes=16)")
    assert "torch::empty({x.size(0) - 1, stored}" in text
    assert "scan<kWidth, 1>" in text


SHAPES = [(7, 1000), (8, 1024), (3, 5), (33, 256)]
BODIES = [
    "torch.cumsum(a, dim=1)",
    "torch.cumprod(a, dim=0)",
    REVERSE,
    EXCLUSIVE,
    SHIFTED,
    "torch.relu(torch.cumsum(a * a, -1))",
]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(18))
def test_drawn_strategies_are_right(device: Device, number: int) -> None:
    body, shape = BODIES[number % len(BODIES)], SHAPES[(number + number // len(BODIES)) % len(SHAPES)]
    check_drawn(device, task_of(body, shape), number)
