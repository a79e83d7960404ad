"""Softmax over the last dimension: which recipe takes it, its logarithm, and kernels that are right."""

from __future__ import annotations

from random import Random

import pytest
from expert_tasks import softmax_task

from cupilot.contracts import Brief, Device
from cupilot.expert import Expert
from cupilot.expert.render import render
from cupilot.records import Kernel, Strategy, Task
from cupilot.strategies import load_deck, parse
from cupilot.tasks.load import task_from_source
from evaluating import evaluator_on

EXPERT = Expert()
DECK = load_deck()
LOG = "aten.log_softmax.int"
SOURCE = """
import torch

ROWS = {rows}
COLUMNS = {columns}


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.{operator}(x, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""


def test_long_rows_have_a_recipe_of_their_own() -> None:
    recipes = [EXPERT.space(softmax_task(64, cols)).problem.recipe.name for cols in (1000, 32768, 32769, 393216)]
    assert recipes == ["softmax", "softmax", "softmax_long", "softmax_long"]


@pytest.mark.parametrize(
    "moves",
    [
        "", "block-per-row\nregister-cache", "block-per-row\nregister-cache\nonline-softmax",
        "block-per-row\nshared-cache", "warp-per-row\nwarp-shuffle\nonline-softmax",
    ],
)  # fmt: skip
def test_the_logarithm_takes_one_logarithm_per_row(moves: str) -> None:
    source = render(EXPERT.space(softmax_task(64, 512, target=LOG)), parse(moves, DECK)).source
    kernels = source.count("__global__")
    assert source.count("logf(") == kernels
    assert source.count("- peak - log_sum") == kernels
    assert "scale" not in source


@pytest.mark.parametrize("target", ["aten.softmax.int", LOG])
def test_sources_are_well_formed(target: str) -> None:
    for cols in (1000, 100000):
        space = EXPERT.space(softmax_task(64, cols, target=target))
        rng = Random(cols)
        for strategy in (Strategy(), *space.starts(""), *(space.draw(rng, lambda card: 0.5) for _ in range(8))):
            assert space.faults(strategy) == ()
            source = render(space, strategy).source
            assert max(map(len, source.splitlines())) <= 140
            assert source.count("{") == source.count("}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operator", "rows", "columns"),
    [("softmax", 37, 203), ("log_softmax", 40, 256), ("log_softmax", 3, 40001), ("softmax", 2, 65536)],
)
def test_random_strategies_are_right(device: Device, operator: str, rows: int, columns: int) -> None:
    space = EXPERT.space(made(operator, rows, columns))
    rng = Random(columns)
    drawn = [space.draw(rng, lambda card: 0.6) for _ in range(3)]
    assert_right(device, made(operator, rows, columns), Strategy(), *drawn)


@pytest.mark.slow
def test_a_row_that_no_cache_holds_is_right(device: Device) -> None:
    cached = "block-per-row\nwarp-shuffle\nonline-softmax\nregister-cache\nshared-cache\nvector-load(bytes=16)"
    assert_right(device, made("softmax", 3, 60001), parse(f"{cached}\nblock-size(threads=128)", DECK))


TEAM = "block-per-row\nwarp-shuffle\nrow-team(elements={elements})\nblock-size(threads={threads})"


def test_a_team_is_as_large_as_the_row_needs() -> None:
    space = EXPERT.space(softmax_task(64, 393216))
    source = render(space, parse(TEAM.format(elements=32768, threads=512), DECK)).source
    assert "constexpr int kTeam = 12;" in source
    assert "row_cache" not in source  # 64 floats for each of 512 threads
    source = render(space, parse(TEAM.format(elements=65536, threads=512), DECK)).source
    assert "constexpr int kTeam = 6;" in source
    assert "constexpr size_t bytes = 32768 * sizeof(float);" in source


@pytest.mark.slow
@pytest.mark.parametrize(
    "moves", ["online-softmax\nvector-load(bytes=16)", "vector-load(bytes=8)\nstreaming-store", ""]
)
def test_a_row_that_several_blocks_keep_is_right(device: Device, moves: str) -> None:
    team = TEAM.format(elements=16384, threads=128)
    assert_right(device, made("log_softmax", 3, 40001), parse(f"{team}\n{moves}", DECK))


def made(operator: str, rows: int, columns: int) -> Task:
    source = SOURCE.format(operator=operator, rows=rows, columns=columns)
    return task_from_source(source, operator, "fp32", where="test")


def assert_right(device: Device, task: Task, *strategies: Strategy) -> None:
    evaluator = evaluator_on(device, seed=5, timeout_s=300.0)
    for strategy in strategies:
        kernel = EXPERT.translate(Brief(task, device.spec), strategy)
        assert isinstance(kernel, Kernel), kernel
        evaluation = evaluator(task, kernel)
        assert evaluation.failure is None, (strategy, evaluation.failure)
