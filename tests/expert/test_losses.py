"""Losses: which form they have, what their kernels say, and that drawn kernels are right."""

from __future__ import annotations

import pytest
from family_tasks import drawn_kernels_are_right, small_task

from cupilot.contracts import Brief, Device
from cupilot.errors import UnmatchedTask
from cupilot.expert import Expert
from cupilot.expert.matching import match
from cupilot.expert.recipe import load_recipes
from cupilot.records import Kernel
from cupilot.strategies import load_deck, parse
from cupilot.testing.samples import SPEC

RECIPES = load_recipes()
TWO = "torch.randn(A, B), torch.randn(A, B)"
LABELLED = "torch.randn(A, B), torch.randint(0, B, (A,))"
THREE = "torch.randn(A, B), torch.randn(A, B), torch.randn(A, B)"


@pytest.mark.parametrize(
    ("result", "arguments", "inputs", "recipe", "has"),
    [
        ("torch.mean((p - t) ** 2)", "p, t", TWO, "total", ["v2 = v1 * v1", "double divisor = double(n)"]),
        ("F.mse_loss(p, t)", "p, t", TWO, "total", ["(p_in - t) * (p_in - t)", "double(n)"]),
        ("F.mse_loss(p, t, reduction='sum')", "p, t", TWO, "total", ["float(sum)"]),
        ("F.kl_div(torch.log(p), t, reduction='batchmean')", "p, t", TWO, "total", ["double(p_in.size(0))", "logf"]),
        ("(x * 2).sum() / x.shape[0]", "x", "torch.randn(A, B)", "total", ["double(x.size(0))"]),
        ("x.mean(dim=(0, 1), keepdim=True) * 3", "x", "torch.randn(A, B)", "total", ["finish", "torch::empty({1, 1}"]),
        ("torch.mean(torch.clamp(1 - p * t, min=0))", "p, t", "torch.randn(A, B), torch.randn(B)", "total", ["% d1"]),
        ("F.cross_entropy(p, t)", "p, t", LABELLED, "row_loss", ["kIgnored = -100", "sum / valid"]),
        ("F.cross_entropy(p, t, reduction='sum')", "p, t", LABELLED, "row_loss", ["float(sum)"]),
        ("F.triplet_margin_loss(a, p, n, margin=0.5)", "a, p, n", THREE, "row_loss", ["kMargin = 0.5f", "sqrtf"]),
        ("F.triplet_margin_loss(a, p, n, p=1.0, swap=True)", "a, p, n", THREE, "row_loss", ["fabsf", "swapped"]),
    ],
)
def test_forms_of_losses(result: str, arguments: str, inputs: str, recipe: str, has: list[str]) -> None:
    task = small_task(result, arguments, inputs)
    assert match(task, RECIPES).recipe.name == recipe
    source = Expert().generate(Brief(task, SPEC)).source
    for text in has:
        assert text in source


@pytest.mark.parametrize(
    ("result", "inputs"),
    [
        ("F.cross_entropy(p, t, label_smoothing=0.1)", LABELLED),
        ("F.cross_entropy(p, t)", TWO),
        ("F.cross_entropy(p, t, reduction='none')", LABELLED),
        ("torch.mean(p @ t.T)", TWO),
    ],
)
def test_losses_that_are_not_known_are_refused(result: str, inputs: str) -> None:
    with pytest.raises(UnmatchedTask):
        match(small_task(result, "p, t", inputs), RECIPES)


def test_the_last_block_finishes_without_a_second_launch() -> None:
    task = small_task("F.mse_loss(p, t)", "p, t", TWO)
    kernel = Expert().translate(Brief(task, SPEC), parse("two-stage-reduction\nlast-block-finish", load_deck()))
    assert isinstance(kernel, Kernel)
    assert kernel.source.count("<<<") == 1
    assert "__threadfence" in kernel.source


@pytest.mark.slow
@pytest.mark.parametrize(
    ("result", "arguments", "inputs", "seed"),
    [
        ("F.smooth_l1_loss(p, t, beta=0.5) * 2", "p, t", TWO, 1),
        ("torch.mean(torch.clamp(1 - p * t, min=0))", "p, t", "torch.randn(A, B), torch.randn(B)", 2),
        ("torch.mean(torch.abs(p - t))", "p, t", "torch.randn(A, B, C), torch.randn(A, 1, C)", 3),
        ("F.cross_entropy(p, t)", "p, t", LABELLED, 4),
        ("F.triplet_margin_loss(a, p, n, swap=True)", "a, p, n", THREE, 5),
    ],
)
def test_drawn_kernels_are_right(device: Device, result: str, arguments: str, inputs: str, seed: int) -> None:
    drawn_kernels_are_right(small_task(result, arguments, inputs), device, 3, seed)


def test_what_needs_something_excluded_is_given_up() -> None:
    space = Expert().space(small_task("F.cross_entropy(p, t)", "p, t", LABELLED))
    repaired = space.repair(parse("block-per-row\nlast-block-finish\ngrid-stride", load_deck()))
    assert repaired.cards == {"block-per-row"}
