"""Tasks made of a class and example inputs."""

from __future__ import annotations

import math
from math import sqrt as root

import pytest
import torch
import torch.nn.functional as fn

from cupilot.errors import TaskError
from cupilot.tasks import scaled_tasks
from cupilot.tasks.from_module import module_source
from cupilot.tasks.load import task_from_source

SLOPE = 0.25
UNTAKEABLE = object()


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * SLOPE * math.pi


class Inner(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return fn.relu(scaled(x)) * self.weight * root(2.0)


class Outer(torch.nn.Module):
    def __init__(self, width: int, power: float) -> None:
        super().__init__()
        self.inner, self.power = Inner(width), power

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * mask


class Impossible(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (UNTAKEABLE is None)


INPUTS = [torch.rand(96, 64), torch.rand(96, 64) < 0.5]


def test_the_class_is_taken_with_what_it_uses() -> None:
    source = module_source(Outer, INPUTS, [64, 2.0])
    task = task_from_source(source, "outer", "fp32", where="outer")
    assert [str(argument.tensor) for argument in task.arguments] == ["96x64:float32", "96x64:bool", "64:float32"]
    assert task.operators[:2] == ("aten.mul.Tensor", "aten.mul.Tensor")
    assert "import torch.nn.functional as fn" in source
    assert "from math import sqrt as root" in source
    assert "SLOPE = 0.25" in source


def test_sizes_can_be_scaled_together() -> None:
    big = [torch.rand(4096, 1024), torch.rand(4096, 1024) < 0.5]
    task = task_from_source(module_source(Outer, big, [1024, 2.0]), "outer", "fp32", where="outer")
    versions = scaled_tasks(task, 1 << 16)
    assert len(versions) == 2
    for version in versions:
        x, _, weight = (argument.tensor for argument in version.arguments)
        assert x is not None
        assert weight is not None
        assert x.shape[1] == weight.shape[0] < 1024


def test_integers_keep_their_range() -> None:
    source = module_source(Inner, [torch.tensor([3, 9, 5])], [3])
    assert "torch.randint(3, 10, (3,), dtype=torch.int64)" in source


@pytest.mark.parametrize(
    ("model", "inputs", "init", "says"),
    [
        (Impossible, [torch.rand(8)], [], "uses UNTAKEABLE, a object"),
        (Inner, [object()], [], "inputs must be tensors or scalars, not object"),
        (Inner, [torch.rand(8)], [object()], "constructor arguments must be numbers"),
        (type("Made", (torch.nn.Module,), {"__module__": "nowhere"}), [torch.rand(8)], [], "source of Made"),
    ],
)
def test_what_cannot_be_taken_over_is_said(model: type, inputs: list[object], init: list[object], says: str) -> None:
    with pytest.raises(TaskError, match=says):
        module_source(model, inputs, init)
