"""Depthwise convolutions: which ones the recipe takes, what is legal, and kernels that are right."""

from __future__ import annotations

import pytest
from window_tasks import EXPERT, check_results, check_texts, window_task, written

from cupilot.contracts import Device

MARCH = "block-shape(columns=64, rows=4)\nrow-marching(rows=8)"


@pytest.mark.parametrize(
    ("module", "shape", "recipe"),
    [
        ("Conv2d(8, 8, 3, groups=8)", (2, 8, 20, 40), "depthwise"),
        ("Conv1d(8, 24, 5, groups=8, padding=2)", (2, 8, 40), "depthwise"),
        ("Conv2d(8, 8, 3, groups=4)", (2, 8, 20, 40), "convolution"),
        ("ConvTranspose2d(8, 8, 3, groups=8)", (2, 8, 20, 40), "convolution"),
    ],
)
def test_filters_of_one_channel_are_taken(module: str, shape: tuple[int, ...], recipe: str) -> None:
    assert EXPERT.space(window_task(module, shape)).problem.recipe.name == recipe


def test_bias_and_what_follows_are_fused() -> None:
    task = window_task("Conv2d(8, 8, 3, groups=8)", (2, 8, 20, 40), "torch.relu(self.main(x))")
    assert "float all = bias[channel];" in written(task, "")
    tuned = written(task, MARCH)
    assert "bias[tile % s.channels]" in tuned
    assert "one = apply(one);" in tuned


def test_large_filters_are_left_to_the_plain_kernel() -> None:
    space = EXPERT.space(window_task("Conv2d(8, 8, 9, groups=8)", (2, 8, 40, 40)))
    assert all(not space.repair(start).moves for start in space.starts(""))


@pytest.mark.parametrize(
    ("moves", "has", "lacks"),
    [
        ("", "One thread per result", "kLive"),
        (MARCH, "constexpr int kRows = 8;", "halo"),
        (f"{MARCH}\nshared-halo", "__shared__ float halo[kHalo];", "Inside"),
        ("window-registers(outputs=2)\nvector-load(bytes=8)", "Pack<2> pack;", "Pack<4>"),
    ],
)
def test_moves_show_in_the_code(moves: str, has: str, lacks: str) -> None:
    source = written(window_task("Conv2d(8, 8, 3, groups=8, bias=False)", (2, 8, 20, 64)), moves)
    assert has in source
    assert lacks not in source


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        ("Conv1d(8, 16, 5, groups=8, padding='same')", (2, 8, 512)),
        ("Conv2d(8, 8, (3, 7), groups=8, bias=False)", (2, 8, 40, 256)),
        ("Conv3d(8, 8, 3, stride=2, padding=1, groups=8)", (2, 8, 16, 20, 64)),
    ],
)
def test_every_kernel_is_well_formed(module: str, shape: tuple[int, ...]) -> None:
    check_texts(window_task(module, shape), seed=5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "shape", "result"),
    [
        ("Conv1d(8, 16, 5, groups=8, padding=2, dilation=2)", (2, 8, 300), "self.main(x)"),
        ("Conv2d(8, 8, 3, groups=8, bias=False)", (2, 8, 64, 128), "self.main(x)"),
        ("Conv2d(8, 16, (3, 7), stride=(2, 1), padding=(1, 3), groups=8)", (2, 8, 33, 67), "torch.relu(self.main(x))"),
        ("Conv2d(8, 8, (3, 1), dilation=2, groups=8)", (2, 8, 40, 61), "self.main(x)"),
        ("Conv2d(8, 8, 4, padding='same', groups=8)", (2, 8, 40, 60), "self.main(x)"),
        ("Conv3d(4, 4, 3, stride=2, padding=1, groups=4)", (2, 4, 12, 14, 40), "self.main(x)"),
    ],
)
def test_drawn_kernels_are_right(device: Device, module: str, shape: tuple[int, ...], result: str) -> None:
    check_results(device, window_task(module, shape, result), seed=len(module), number=4)
