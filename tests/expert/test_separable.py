"""Depthwise-separable convolutions: what is read off graphs, what is legal, and kernels that are right."""

from __future__ import annotations

import pytest
from window_tasks import EXPERT, check_results, check_texts, window_task, written

from cupilot.contracts import Device
from cupilot.errors import UnmatchedTask
from cupilot.expert.form import Form, Graph
from cupilot.expert.forms import separable

FUSED = "fused-stages\nshared-tile(block_m=64, block_n=128, block_k=16)"


def pair(filters: str, mix: str) -> str:
    return f"Sequential(torch.nn.Conv2d({filters}), torch.nn.Conv2d({mix}))"


USUAL = pair("8, 8, 3, padding=1, groups=8, bias=False", "8, 20, 1, bias=False")


def test_both_operators_are_one_form() -> None:
    task = window_task(
        pair("8, 8, (3, 5), stride=(2, 1), padding=(1, 2), groups=8", "8, 20, 1, bias=False"), (2, 8, 30, 40)
    )
    form = separable.read(Graph(task))
    assert isinstance(form, Form), form
    facts = form.facts
    assert (facts["channels"], facts["out_channels"], facts["kernel"]) == (8, 20, (3, 5))
    assert (facts["stride"], facts["padding"], facts["out_size"]) == ((2, 1), (1, 2), (15, 40))
    assert (facts["filter_bias"], facts["mix_bias"]) == (True, False)
    assert EXPERT.space(task).problem.recipe.name == "separable"


@pytest.mark.parametrize(
    "module",
    [
        pair("8, 8, 3, groups=4", "8, 20, 1"),
        pair("8, 16, 3, groups=8", "16, 20, 1"),
        pair("8, 8, 3, groups=8", "8, 20, 3"),
        pair("8, 8, 3, groups=8", "8, 20, 1, stride=2"),
        pair("8, 8, 3, groups=8", "8, 8, 1, groups=2"),
    ],
)
def test_other_pairs_are_not_taken(module: str) -> None:
    with pytest.raises(UnmatchedTask):
        EXPERT.space(window_task(module, (2, 8, 30, 40)))


def test_what_follows_is_fused() -> None:
    task = window_task(USUAL, (2, 8, 30, 40), "torch.relu(self.main(x))")
    assert "y[i] = apply(sum);" in written(task, "")
    assert "= apply(sums[i][j + e]);" in written(task, FUSED)


def test_float32_on_tensor_cores_is_split() -> None:
    space = EXPERT.space(window_task(USUAL, (2, 8, 30, 40)))
    assert all("split-tf32" in start.cards for start in space.starts("") if "tensor-cores" in start.cards)
    assert "split_tf32(value, b[p], b_small[p]);" in written(space.problem.task, f"{FUSED}\ntensor-cores\nsplit-tf32")


def test_every_kernel_is_well_formed() -> None:
    check_texts(window_task(pair("8, 8, 3, groups=8", "8, 20, 1"), (2, 8, 30, 40), "torch.relu(self.main(x))"), seed=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "shape", "result"),
    [
        (pair("40, 40, 3, padding=1, groups=40, bias=False", "40, 72, 1, bias=False"), (2, 40, 20, 40), "self.main(x)"),
        (pair("37, 37, (3, 5), stride=(2, 1), groups=37", "37, 65, 1"), (1, 37, 23, 35), "torch.relu(self.main(x))"),
        (pair("16, 16, 3, dilation=2, padding=1, groups=16", "16, 130, 1"), (2, 16, 21, 67), "self.main(x)"),
    ],
)
def test_drawn_kernels_are_right(device: Device, module: str, shape: tuple[int, ...], result: str) -> None:
    check_results(device, window_task(module, shape, result), seed=len(module), number=5)
