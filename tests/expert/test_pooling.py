"""Pooling: what is read off graphs, what is legal, and kernels that are right for odd and even shapes."""

from __future__ import annotations

from random import Random

import pytest
from window_tasks import EXPERT, check_results, check_texts, window_task, written

from cupilot.contracts import Device
from cupilot.errors import UnmatchedTask
from cupilot.expert.form import Form, Graph
from cupilot.expert.forms import pooling

MARCH = "block-shape(columns=64, rows=4)\nrow-marching(rows=8)"


def facts(module: str, shape: tuple[int, ...]) -> dict[str, object]:
    form = pooling.read(Graph(window_task(module, shape)))
    assert isinstance(form, Form), form
    return dict(form.facts)


def test_sizes_are_triples_with_ones_for_what_is_missing() -> None:
    found = facts("MaxPool1d(8, 1, 4, 3)", (2, 3, 50))
    assert found["operation"] == "max"
    assert (found["kernel"], found["stride"]) == ((1, 1, 8), (1, 1, 1))
    assert (found["padding"], found["dilation"]) == ((0, 0, 4), (1, 1, 3))
    assert (found["in_size"], found["out_size"], found["planes"]) == ((1, 1, 50), (1, 1, 37), 6)


def test_the_stride_of_a_mean_is_its_window_when_none_is_given() -> None:
    found = facts("AvgPool2d(11)", (2, 3, 40, 50))
    assert (found["stride"], found["divisor"], found["out_size"]) == ((1, 11, 11), 121, (1, 3, 4))


@pytest.mark.parametrize(
    ("module", "divisor"),
    [
        ("AvgPool2d(3, padding=1)", 9),
        ("AvgPool2d(3, padding=1, count_include_pad=False)", 0),
        ("AvgPool2d(3, padding=1, divisor_override=5)", 5),
    ],
)
def test_divisors_of_means(module: str, divisor: int) -> None:
    assert facts(module, (2, 3, 40, 50))["divisor"] == divisor


@pytest.mark.parametrize(
    ("module", "result", "says"),
    [
        ("MaxPool2d(3, ceil_mode=True)", "self.main(x)", "ceil_mode"),
        ("MaxPool2d(3, return_indices=True)", "self.main(x)[0]", "positions"),
    ],
)
def test_what_is_not_known_is_said(module: str, result: str, says: str) -> None:
    with pytest.raises(UnmatchedTask, match=says):
        EXPERT.space(window_task(module, (2, 3, 40, 50), result))


def test_operators_behind_are_fused() -> None:
    task = window_task("MaxPool2d(2)", (2, 3, 40, 50), "torch.relu(self.main(x))")
    assert "y[i] = apply(all);" in written(task, "")
    assert "one = apply(one);" in written(task, MARCH)


def test_one_axis_has_nothing_to_march_along() -> None:
    space = EXPERT.space(window_task("AvgPool1d(8, 1, 4)", (2, 3, 50)))
    kept = [space.repair(space.draw(Random(seed), lambda card: 0.7)).cards for seed in range(20)]
    assert not any({"row-marching", "block-shape", "separable-window"} & cards for cards in kept)


@pytest.mark.parametrize(
    ("moves", "has", "lacks"),
    [
        ("", "One thread per result", "kLive"),
        (MARCH, "constexpr int kRows = 8;", "part["),
        (f"{MARCH}\nseparable-window", "float part[kColumns];", "halo"),
        (f"{MARCH}\nshared-halo", "__shared__ float halo[kHalo];", "Inside"),
        (f"{MARCH}\nunroll(factor=2)", "kThreadsX apart", "Pack"),
        ("window-registers(outputs=4)\nvector-load(bytes=16)", "kPacks", "__stcs"),
        ("window-registers(outputs=4)\nvector-load(bytes=16)\nstreaming-store", "__stcs", "kLive * 2"),
    ],
)
def test_moves_show_in_the_code(moves: str, has: str, lacks: str) -> None:
    source = written(window_task("MaxPool2d(4, 1, 1)", (2, 3, 40, 512)), moves)
    assert has in source
    assert lacks not in source


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        ("MaxPool1d(8, 1, 4, 3)", (2, 3, 512)),
        ("AvgPool2d(5, 3, 2, count_include_pad=False)", (2, 3, 64, 128)),
        ("MaxPool3d(3, 2, 1, 3)", (2, 3, 32, 32, 64)),
    ],
)
def test_every_kernel_is_well_formed(module: str, shape: tuple[int, ...]) -> None:
    check_texts(window_task(module, shape), seed=7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "shape", "result"),
    [
        ("MaxPool1d(8, 1, 4, 3)", (2, 3, 300), "self.main(x)"),
        ("AvgPool1d(8, 1, 4)", (2, 3, 257), "torch.relu(self.main(x))"),
        ("AvgPool1d(5, 3, 2, count_include_pad=False)", (6, 256), "self.main(x)"),
        ("MaxPool2d(4, 1, 1)", (2, 3, 64, 128), "self.main(x)"),
        ("MaxPool2d((3, 5), (2, 1), (1, 2), (2, 3))", (2, 3, 45, 67), "self.main(x)"),
        ("AvgPool2d(11)", (2, 3, 68, 133), "self.main(x)"),
        ("AvgPool2d(3, 2, 1, count_include_pad=False)", (3, 61, 66), "self.main(x) * 2"),
        ("MaxPool3d(3, 2, 1, 3)", (2, 2, 24, 20, 36), "self.main(x)"),
        ("AvgPool3d(3, 2, 1)", (2, 2, 15, 18, 40), "self.main(x)"),
    ],
)
def test_drawn_kernels_are_right(device: Device, module: str, shape: tuple[int, ...], result: str) -> None:
    check_results(device, window_task(module, shape, result), seed=len(module), number=4)
