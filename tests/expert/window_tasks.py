"""Tasks about windows for tests of convolutions, pooling and filters per channel, and what must hold of kernels."""

from __future__ import annotations

import re
from random import Random

from cupilot.contracts import Brief, Device
from cupilot.expert import Expert
from cupilot.expert.render import render
from cupilot.records import Kernel, Task
from cupilot.strategies import load_deck, parse
from cupilot.tasks.load import task_from_source
from cupilot.testing.samples import SPEC
from evaluating import evaluator_on

EXPERT = Expert()
DECK = load_deck()

SOURCE = """
import torch

{sizes}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.main = torch.nn.{module}

    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.rand({shape})]


def get_init_inputs():
    return []
"""


LAYER = """
import torch
CHANNELS = {channels}
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.{layer}
    def forward(self, x):
        return {result}
def get_inputs():
    return [torch.rand({inputs})]
def get_init_inputs():
    return []
"""


def convolution(
    layer: str, inputs: str, channels: int = 12, result: str = "self.conv(x)", precision: str = "fp32"
) -> Task:
    """A layer of so many CHANNELS and its input's sizes, and what becomes of the result."""
    source = LAYER.format(layer=layer, inputs=inputs, result=result, channels=channels)
    return task_from_source(source, "convolution", precision, where="convolution")


def window_source(module: str, shape: tuple[int, ...], result: str = "self.main(x)") -> str:
    names = [f"SIZE{place}" for place in range(len(shape))]
    sizes = "\n".join(f"{name} = {size}" for name, size in zip(names, shape, strict=True))
    return SOURCE.format(sizes=sizes, module=module, result=result, shape=", ".join(names))


def window_task(module: str, shape: tuple[int, ...], result: str = "self.main(x)") -> Task:
    return task_from_source(window_source(module, shape, result), "windows", "fp32", where="windows")


def written(task: Task, moves: str) -> str:
    kernel = EXPERT.translate(Brief(task, SPEC), parse(moves, DECK))
    assert isinstance(kernel, Kernel), kernel
    return kernel.source


def check_texts(task: Task, seed: int, number: int = 25) -> None:
    """Kernels of strategies drawn at random are well formed."""
    space, rng = EXPERT.space(task), Random(seed)
    for _ in range(number):
        source = render(space, space.draw(rng, lambda card: 0.5)).source
        assert source.count("{") == source.count("}")
        assert source.count("(") == source.count(")")
        assert "{{" not in source
        assert not re.search(r"[^\n]#pragma|;;|[ \t]\n|\n\n\n|, \)|\(, ", source)
        assert [line for line in source.splitlines() if len(line) > 140] == []


def check_results(device: Device, task: Task, seed: int, number: int) -> None:
    """Kernels of strategies drawn at random are right, or ask for too much."""
    space, rng = EXPERT.space(task), Random(seed)
    evaluator = evaluator_on(device, seed=seed, timeout_s=300.0)
    right = 0
    for _ in range(number):
        strategy = space.draw(rng, lambda card: 0.5)
        evaluation = evaluator(task, render(space, strategy))
        if evaluation.failure is not None:
            assert evaluation.failure.kind in ("resources", "too-many-resources"), (strategy, evaluation.failure)
        else:
            assert evaluation.checks
            right += 1
    assert right > 0
