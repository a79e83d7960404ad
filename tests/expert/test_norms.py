"""Norms: what is read off graphs, which recipe takes them, and kernels that are right for odd and even shapes."""

from __future__ import annotations

from random import Random

import pytest
from expert_tasks import brief, softmax_task

from cupilot.contracts import Brief, Device
from cupilot.expert import Expert
from cupilot.expert.form import Form, Graph
from cupilot.expert.forms import norm
from cupilot.expert.render import render
from cupilot.records import Kernel, Strategy, Task
from cupilot.strategies import load_deck, parse
from cupilot.tasks.load import task_from_source
from evaluating import evaluator_on

EXPERT = Expert()
DECK = load_deck()
SOURCE = """
import torch

A = {sizes[0]}
B = {sizes[1]}
C = {sizes[2]}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return []
"""
CENTRED = "(x - x.mean(-1, keepdim=True))"
RMS = "x / torch.sqrt(torch.mean(x ** 2, dim={dim}, keepdim=True) + 1e-5)"


def task(result: str, sizes: tuple[int, int, int], made: str = "pass", shape: str = "A, B, C") -> Task:
    source = SOURCE.format(sizes=sizes, made=made, result=result, shape=shape)
    return task_from_source(source, "norm", "fp32", where="test")


def member(attribute: str) -> str:
    return f"self.norm = torch.nn.{attribute}"


def read(of: Task) -> Form:
    form = norm.read(Graph(of))
    assert isinstance(form, Form), form
    return form


CASES: dict[str, tuple[Task, str, dict[str, object]]] = {
    "layer": (
        task("self.norm(x)", (4, 6, 10), member("LayerNorm((B, C))")),
        "norm_rows", {"rows": 4, "cols": 60, "kind": "moments", "weights": 2},
    ),
    "layer-plain": (
        task("self.norm(x)", (4, 6, 10), member("LayerNorm(C, elementwise_affine=False)")),
        "norm_rows", {"rows": 24, "cols": 10, "weights": 0},
    ),
    "group": (
        task("self.norm(x)", (4, 6, 10), member("GroupNorm(3, B)")),
        "norm_rows", {"rows": 12, "cols": 20, "weights": 2},
    ),
    "instance": (
        task("self.norm(x)", (4, 6, 10), member("InstanceNorm1d(B)")),
        "norm_rows", {"rows": 24, "cols": 10, "weights": 0},
    ),
    "batch": (
        task("self.norm(x)", (4, 6, 10), member("BatchNorm1d(B)")),
        "norm_split", {"rows": 6, "cols": 10, "pieces": 4, "weights": 2},
    ),
    "batch-flat": (
        task("self.norm(x)", (40, 6, 10), member("BatchNorm1d(B)"), shape="A, B"),
        "norm_columns", {"rows": 6, "cols": 40, "inner": 6, "weights": 2},
    ),
    "rms": (
        task("self.norm(x)", (4, 6, 10), member("RMSNorm(C, eps=1e-3)")),
        "norm_rows", {"rows": 24, "cols": 10, "kind": "sum", "stages": 1, "weights": 1},
    ),
    "rms-by-hand": (
        task(RMS.format(dim=1), (4, 6, 10)), "norm_columns", {"rows": 40, "cols": 6, "inner": 10, "kind": "sum"},
    ),
    "rms-weighted": (
        task("self.w * (" + RMS.format(dim=-1) + ")", (4, 6, 10), "self.w = torch.nn.Parameter(torch.ones(C))"),
        "norm_rows", {"rows": 24, "cols": 10, "weights": 1},
    ),
    "frobenius": (task("x / torch.norm(x)", (4, 6, 10)), "norm_rows", {"rows": 1, "cols": 240, "stages": 1}),
    "l1": (
        task("x / torch.mean(torch.abs(x), dim=2, keepdim=True)", (4, 6, 10)), "norm_rows", {"rows": 24, "cols": 10},
    ),
    "normalize": (
        task("torch.nn.functional.normalize(x, dim=1)", (4, 6, 10)),
        "norm_columns", {"rows": 40, "cols": 6, "inner": 10},
    ),
    "by-hand": (
        task(f"{CENTRED} / torch.sqrt(({CENTRED} ** 2).mean(-1, keepdim=True) + 1)", (4, 6, 10)),
        "norm_rows", {"rows": 24, "cols": 10, "kind": "other"},
    ),
    "then": (
        task("torch.relu(self.norm(x))", (4, 6, 10), member("LayerNorm(C)")), "norm_rows", {"rows": 24, "weights": 2},
    ),
    "softmax": (softmax_task(4, 6, 10, dim=1), "norm_columns", {"rows": 40, "cols": 6, "inner": 10, "kind": "softmax"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_norm_is_told_by_its_layout_and_statistics(name: str) -> None:
    given, recipe, facts = CASES[name]
    found = read(given).facts
    assert {key: found[key] for key in facts} == facts
    assert EXPERT.space(given).problem.recipe.name == recipe


@pytest.mark.parametrize(
    "given",
    [
        task("x.mean(1, keepdim=True)", (4, 6, 10)),
        task("x / x.mean(1, keepdim=True).sum(2, keepdim=True)", (4, 6, 10)),
        task("x / x.mean((0, 2), keepdim=True)", (4, 6, 10)),
        task("self.norm(x.exp())", (4, 6, 10), member("LayerNorm(C)")),
        task("torch.relu(x)", (4, 6, 10)),
    ],
    ids=["only-the-statistic", "two-axes", "axes-apart", "operators-before", "no-statistic"],
)
def test_what_is_no_such_norm_is_left_alone(given: Task) -> None:
    assert norm.read(Graph(given)) == ""


def test_running_statistics_are_refused_with_a_reason() -> None:
    given = task("torch.nn.functional.batch_norm(x, self.m, self.v)", (4, 6, 10),
                 "self.m = torch.nn.Parameter(torch.ones(B)); self.v = torch.nn.Parameter(torch.ones(B))")  # fmt: skip
    assert norm.read(Graph(given)) == "batch_norm is known by the batch's own statistics only"


def test_few_long_rows_are_cut_into_chunks() -> None:
    assert EXPERT.space(task("x / torch.norm(x)", (64, 64, 64))).problem.recipe.name == "norm_split"


def test_teams_are_for_rows_that_few_blocks_can_keep() -> None:
    team = parse("warp-shuffle\nrow-team(elements=16384)", DECK)
    assert EXPERT.space(task("self.norm(x)", (4, 512, 512), member("LayerNorm((B, C))"))).faults(team) == ()
    far_too_long = task("x / torch.norm(x)", (64, 512, 512))
    assert EXPERT.space(far_too_long).faults(team) == ("teams are for rows that a few blocks can keep",)


def test_weights_come_under_their_own_names() -> None:
    given, _, _ = CASES["group"]
    assert sorted(read(given).names.values()) == ["bias", "weight", "x"]


@pytest.mark.parametrize("name", CASES)
def test_sources_are_well_formed(name: str) -> None:
    given, _, _ = CASES[name]
    space = EXPERT.space(given)
    rng = Random(name)
    for strategy in (Strategy(), *space.starts(""), *(space.draw(rng, lambda card: 0.5) for _ in range(6))):
        assert space.faults(strategy) == ()
        source = render(space, strategy).source
        assert max(map(len, source.splitlines())) <= 140
        assert "{%" not in source
        assert source.count("{") == source.count("}")


def evaluated(device: Device, given: Task, strategy: Strategy) -> None:
    kernel = EXPERT.translate(Brief(given, device.spec), strategy)
    assert isinstance(kernel, Kernel), kernel
    evaluation = evaluator_on(device, seed=5, timeout_s=300.0)(given, kernel)
    assert evaluation.failure is None, (strategy, evaluation.failure)


SLOW = {
    "group": task("self.norm(x)", (5, 12, 100), member("GroupNorm(4, B)")),
    "layer": task("self.norm(x)", (3, 7, 33), member("LayerNorm((B, C))")),
    "batch": task("self.norm(x)", (5, 6, 101), member("BatchNorm1d(B)")),
    "batch-flat": task("self.norm(x)", (40, 37, 10), member("BatchNorm1d(B)"), shape="A, B"),
    "rms-inner": task(RMS.format(dim=1), (3, 40, 66)),
    "frobenius": task("x / torch.norm(x)", (7, 64, 101)),
    "by-hand": CASES["by-hand"][0],
    "softmax-inner": task("torch.log_softmax(x, dim=1)", (3, 40, 34)),
}


TEAM = "warp-shuffle\nrow-team(elements=8192)\nblock-size(threads={threads})\n"
TEAMS = {
    # one weight for a block's part, or more; weights along the row, at packs or not; two meetings instead of one
    "group": (task("self.norm(x)", (2, 8, 16384), member("GroupNorm(2, B)")), "welford\nvector-load(bytes=16)", 128),
    "group-odd": (task("self.norm(x)", (2, 8, 10007), member("GroupNorm(2, B)")), "vector-load(bytes=16)", 64),
    "layer": (task("self.norm(x)", (3, 40, 1024), member("LayerNorm((B, C))")), "welford\nvector-load(bytes=16)", 128),
    "layer-odd": (task("self.norm(x)", (3, 41, 1023), member("LayerNorm((B, C))")), "vector-load(bytes=8)", 256),
    "plain": (task("x / torch.norm(x)", (7, 64, 101)), "streaming-store", 256),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", TEAMS)
def test_rows_that_several_blocks_keep_are_right(device: Device, name: str) -> None:
    given, moves, threads = TEAMS[name]
    evaluated(device, given, parse(TEAM.format(threads=threads) + moves, DECK))


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_random_strategies_are_right(device: Device, name: str) -> None:
    space = EXPERT.space(SLOW[name])
    rng = Random(f"seed {name}")
    for strategy in (Strategy(), *(space.draw(rng, lambda card: 0.6) for _ in range(4))):
        evaluated(device, SLOW[name], strategy)


def test_the_usual_names_are_offered() -> None:
    kernel = EXPERT.translate(brief(CASES["layer"][0]), Strategy())
    assert isinstance(kernel, Kernel)
    assert "torch::Tensor forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias)" in kernel.source
