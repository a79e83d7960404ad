"""Winograd's convolution: which convolutions it is for, what it needs, and kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
from window_tasks import convolution

from cupilot.contracts import Brief, Built, Device
from cupilot.expert import Expert
from cupilot.records import Failure, Kernel, Task
from cupilot.strategies import load_deck, parse
from cupilot.testing.samples import SPEC
from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.nvcc import build_kernel
from evaluating import evaluator_on

DECK = load_deck()
SMALL = "winograd(channels=32, patches=32)"
SHAPES = ("channels=64, patches=32", "channels=32, patches=64", "channels=32, patches=32")


def translated(task: Task, moves: str) -> Kernel | Failure:
    return Expert().translate(Brief(task, SPEC), parse(moves, DECK))


@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        ("Conv2d(CHANNELS, 8, 5)", "2, CHANNELS, 9, 9"),
        ("Conv2d(CHANNELS, 8, (3, 1))", "2, CHANNELS, 9, 9"),
        ("Conv2d(CHANNELS, 8, 3, stride=2)", "2, CHANNELS, 9, 9"),
        ("Conv2d(CHANNELS, 8, 3, dilation=2)", "2, CHANNELS, 9, 9"),
        ("Conv2d(CHANNELS, 8, 3, groups=4)", "2, CHANNELS, 9, 9"),
        ("ConvTranspose2d(CHANNELS, 8, 3)", "2, CHANNELS, 9, 9"),
        ("Conv1d(CHANNELS, 8, 3)", "2, CHANNELS, 9"),
        ("Conv3d(CHANNELS, 8, 3)", "2, CHANNELS, 5, 5, 5"),
    ],
)
def test_other_convolutions_are_told_why_not(layer: str, inputs: str) -> None:
    task = convolution(layer, inputs)
    answer = translated(task, SMALL)
    assert isinstance(answer, Failure)
    assert answer.message == "winograd is for windows of 3x3 with stride 1, without dilation, groups or transposition"
    assert not any("winograd" in start.cards for start in Expert().space(task).starts("fp32"))


@pytest.mark.parametrize(
    ("moves", "why"),
    [
        ("winograd(channels=64, patches=64)", "so many patches of so many channels do not fit into registers"),
        (f"{SMALL}\nblock-size(threads=512)", "winograd has tiles and threads of its own"),
        (
            f"{SMALL}\nshared-tile(block_m=32, block_n=128, block_k=16)\nregister-block(thread_m=4, thread_n=8)",
            "winograd has tiles and threads of its own",
        ),
    ],
)
def test_what_does_not_go_with_it(moves: str, why: str) -> None:
    answer = translated(convolution("Conv2d(CHANNELS, 40, 3)", "2, CHANNELS, 9, 9"), moves)
    assert isinstance(answer, Failure)
    assert answer.message == why


@pytest.mark.parametrize(
    ("channels", "out_channels", "size", "expected"),
    [(64, 128, 56, "channels=64"), (64, 64, 14, "channels=32"), (3, 64, 56, "")],
)
def test_a_search_starts_with_it_where_it_pays(channels: int, out_channels: int, size: int, expected: str) -> None:
    task = convolution(f"Conv2d(CHANNELS, {out_channels}, 3, padding=1)", f"8, CHANNELS, {size}, {size}", channels)
    first = Expert().space(task).starts("")[0]
    move = first.move("winograd")
    assert (f"channels={move.get('channels')}" if move is not None else "") == expected


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_spills(shape: str, tmp_path: Path) -> None:
    task = convolution("Conv2d(CHANNELS, 128, 3, padding=1)", "2, CHANNELS, 56, 56", 64)
    kernel = translated(task, f"winograd({shape})")
    assert isinstance(kernel, Kernel), kernel
    built = build_kernel(kernel, "sm_80", tmp_path, find_cuda())
    assert isinstance(built, Built), built
    registers = 128 if shape == SHAPES[2] else 255
    for name, resources in built.resources:
        assert resources.spill_bytes == 0, name
        assert resources.registers <= registers, name


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("layer", "inputs", "channels", "result"),
    [
        pytest.param("Conv2d(CHANNELS, 40, 3, bias=False)", "2, CHANNELS, 10, 14", 12, "self.conv(x)", id="even"),
        pytest.param(
            "Conv2d(CHANNELS, 5, 3, padding=1)", "3, CHANNELS, 9, 13", 3, "torch.relu(self.conv(x))", id="odd"
        ),
        pytest.param(
            "Conv2d(CHANNELS, 70, 3, padding=(2, 0))", "2, CHANNELS, 7, 12", 17, "self.conv(x) * 2.0", id="uneven"
        ),
        pytest.param("Conv2d(CHANNELS, 9, 3, padding='same')", "1, CHANNELS, 3, 1", 8, "self.conv(x)", id="narrow"),
        pytest.param(
            "Conv3d(CHANNELS, 6, (1, 3, 3), padding=1)", "2, CHANNELS, 3, 6, 5", 4, "self.conv(x)", id="planes"
        ),
    ],
)
def test_kernels_are_right(device: Device, shape: str, layer: str, inputs: str, channels: int, result: str) -> None:
    task = convolution(layer, inputs, channels, result)
    kernel = translated(task, f"winograd({shape})")
    assert isinstance(kernel, Kernel), kernel
    evaluation = evaluator_on(device, seed=1, timeout_s=300.0)(task, kernel)
    assert evaluation.failure is None, evaluation.failure
    assert {"nan", "planted"} <= {check.inputs for check in evaluation.checks}
