"""Convolutions: what is read off the graph, phases against the definition, rendering, and kernels."""

from __future__ import annotations

from random import Random

import pytest
from family_tasks import drawn_kernels_are_right
from window_tasks import convolution as convolution_task

from cupilot.contracts import Brief, Device
from cupilot.expert import Expert
from cupilot.expert.form import Form, Graph
from cupilot.expert.forms import convolution
from cupilot.records import Kernel, Task
from cupilot.strategies import load_deck, parse
from cupilot.testing.samples import SPEC
from evaluating import evaluator_on

# a layer, and the input's sizes
LAYERS = {
    "plain": ("Conv2d(CHANNELS, 40, 3, bias=False)", "2, CHANNELS, 9, 13"),
    "odd": ("Conv1d(CHANNELS, 7, 5, stride=3, dilation=2, padding=1)", "3, CHANNELS, 41"),
    "box": ("Conv3d(CHANNELS, 24, (3, 1, 2), padding=(1, 0, 1))", "2, CHANNELS, 5, 6, 7"),
    "groups": ("Conv2d(CHANNELS, 16, (2, 3), groups=4, padding='same')", "2, CHANNELS, 8, 9"),
    "pointwise": ("Conv2d(CHANNELS, 70, 1)", "2, CHANNELS, 6, 7"),
    "transposed": (
        "ConvTranspose2d(CHANNELS, 16, (3, 4), padding=1, dilation=(1, 2), bias=False)",
        "2, CHANNELS, 7, 8",
    ),
    "strided": (
        "ConvTranspose2d(CHANNELS, 9, (3, 5), stride=(2, 3), padding=(1, 2), dilation=(2, 1))",
        "2, CHANNELS, 6, 7",
    ),
    "holes": ("ConvTranspose1d(CHANNELS, 33, 3, stride=5, dilation=2, output_padding=1)", "2, CHANNELS, 19"),
    "strided groups": (
        "ConvTranspose3d(CHANNELS, 8, (2, 3, 3), stride=2, padding=1, groups=4)",
        "1, CHANNELS, 4, 5, 6",
    ),
}


def layer(name: str, result: str = "self.conv(x)", channels: int = 12, precision: str = "fp32") -> Task:
    text, inputs = LAYERS[name]
    return convolution_task(text, inputs, channels, result, precision)


def read(task: Task) -> Form:
    form = convolution.read(Graph(task))
    assert isinstance(form, Form), form
    return form


def test_facts_are_those_of_the_layer() -> None:
    facts = read(layer("strided")).facts
    assert (facts["dims"], facts["batch"], facts["in_channels"], facts["out_channels"]) == (2, 2, 12, 9)
    assert facts["kernel"] == (1, 3, 5)
    assert (facts["stride"], facts["padding"], facts["dilation"]) == ((1, 2, 3), (0, 1, 2), (1, 2, 1))
    assert (facts["in_size"], facts["out_size"]) == ((1, 6, 7), (1, 13, 19))
    assert [facts[name] for name in ("transposed", "has_bias", "depthwise")] == [True, True, False]
    assert (facts["taps"], facts["depth"], facts["pixels"]) == (15, 180, 2 * 13 * 19)


def test_padding_to_the_same_size_puts_the_odd_zero_behind() -> None:
    facts = read(layer("groups")).facts
    assert (facts["padding"], facts["padding_end"]) == ((0, 0, 1), (0, 1, 1))
    assert facts["out_size"] == facts["in_size"]


@pytest.mark.parametrize("name", LAYERS)
def test_phases_use_exactly_the_taps_that_meet_an_input(name: str) -> None:
    form = read(layer(name))
    for at, axis in enumerate(form.code["axes"]):
        kernel, stride, padding, dilation = (
            form.facts[fact][at] for fact in ("kernel", "stride", "padding", "dilation")
        )
        for place in range(20):
            taps, first, start = axis.phases[place % len(axis.phases)]
            number = place // len(axis.phases)
            found = {first + j * axis.tap_step: number * axis.move + start + j * axis.next for j in range(taps)}
            if form.facts["transposed"]:
                spread = {tap: place + padding - tap * dilation for tap in range(kernel)}
                expected = {tap: value // stride for tap, value in spread.items() if value % stride == 0}
            else:
                expected = {tap: place * stride - padding + tap * dilation for tap in range(kernel)}
            assert found == expected


@pytest.mark.parametrize(
    ("result", "inputs"),
    [
        ("self.conv(x)", "CHANNELS, 9, 13"),
        ("self.conv(x.relu())", "2, CHANNELS, 9, 13"),
        ("self.conv(x).sum(1)", "2, CHANNELS, 9, 13"),
        ("self.conv(self.conv(x))", "2, CHANNELS, 9, 13"),
    ],
)
def test_what_is_something_else_is_not_matched(result: str, inputs: str) -> None:
    found = convolution.read(Graph(convolution_task("Conv2d(CHANNELS, CHANNELS, 3)", inputs, 4, result)))
    assert isinstance(found, str)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("name", LAYERS)
def test_drawn_strategies_are_legal_and_render_well(name: str, precision: str) -> None:
    task = layer(name, "torch.relu(self.conv(x))", precision=precision)
    expert, rng = Expert(), Random(4)
    space = expert.space(task)
    for strategy in (*space.starts(""), *(space.draw(rng, lambda card: 0.7) for _ in range(6))):
        assert space.faults(strategy) == ()
        kernel = expert.translate(Brief(task, SPEC), strategy)
        assert isinstance(kernel, Kernel), kernel
        lines = kernel.source.splitlines()
        assert max(map(len, lines)) <= 140
        assert not any(left_over in kernel.source for left_over in ("{{", "{%", "{#"))


def test_tensor_cores_of_single_precision_are_split() -> None:
    space = Expert().space(layer("plain"))
    drawn = [space.draw(Random(seed), lambda card: 0.7) for seed in range(20)]
    assert any("tensor-cores" in strategy.cards for strategy in drawn)
    assert all("split-tf32" in strategy.cards for strategy in drawn if "tensor-cores" in strategy.cards)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_drawn_kernels_are_right(device: Device, name: str) -> None:
    drawn_kernels_are_right(layer(name), device, count=3, seed=len(name))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["tf32", "fp16", "bf16"])
def test_kernels_of_lower_precision_are_right(device: Device, precision: str) -> None:
    drawn_kernels_are_right(layer("transposed", channels=32, precision=precision), device, count=2, seed=5)


def test_rows_of_weights_that_are_whole_packs_are_copied_as_such(device: Device) -> None:
    """12 channels by 9 taps: a row of the tile has to start where 16 bytes may be written."""
    task = layer("plain")
    kernel = Expert().translate(
        Brief(task, SPEC),
        parse(
            "shared-tile(block_m=16, block_n=64, block_k=16)\nregister-block(thread_m=4, thread_n=4)\n"
            "async-copy-pipeline(stages=2)",
            load_deck(),
        ),
    )
    assert isinstance(kernel, Kernel), kernel
    assert evaluator_on(device, seed=1, timeout_s=300.0)(task, kernel).failure is None


@pytest.mark.slow
def test_what_follows_is_fused(device: Device) -> None:
    drawn_kernels_are_right(layer("box", "torch.nn.functional.gelu(self.conv(x)) * 2.0"), device, count=2, seed=6)
