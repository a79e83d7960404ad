"""Expressions of ``--args``: their values, and every mistake as one sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from cupilot.errors import TaskError
from cupilot.tasks.bind import evaluate_expressions

X = torch.zeros(2, 3)
MODEL = nn.Module()
MODEL.conv = nn.Conv2d(4, 8, 3, stride=2)


def evaluated(text: str) -> tuple[Any, ...]:
    return evaluate_expressions(text, (X, 4), MODEL, {"k": 3})


def test_expressions_have_values() -> None:
    assert evaluated("inputs[1] * 2, model.conv.stride[0], 'a, b', None, True, -1.5") == (
        8,
        2,
        "a, b",
        None,
        True,
        -1.5,
    )
    assert evaluated("model.conv.stride, [1, 2.5], (), list(range(2)), init['k']") == ((2, 2), (1, 2.5), (), (0, 1), 3)
    assert evaluated("len(inputs), max(1, 2), math.sqrt(4), int(2.7), float(1), abs(-1)") == (2, 2, 2.0, 2, 1.0, 1)
    assert evaluated("*model.conv.stride, 1,") == (2, 2, 1)
    assert evaluated(" \n ") == ()
    assert evaluated("[i * inputs[1] for i in (1, 2)]") == ((4, 8),)


def test_tensors_are_contiguous_and_share_memory() -> None:
    whole, turned, part = evaluate_expressions("inputs[0], inputs[0].t(), [model.conv.weight, 1]", (X,), MODEL)
    assert whole.data_ptr() == X.data_ptr()
    assert turned.is_contiguous()
    assert turned.shape == (3, 2)
    assert part[0].data_ptr() == MODEL.conv.weight.data_ptr()
    assert not part[0].requires_grad
    with FakeTensorMode():
        (fake,) = evaluate_expressions("inputs[0].t()", (torch.zeros(1 << 20, 1 << 20),), nn.Module())
    assert fake.is_contiguous()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("inputs[0], model.ln.weight", "model.ln.weight cannot be evaluated (AttributeError"),
        ("inputs[7]", "inputs[7] cannot be evaluated (IndexError"),
        ("1 / 0, inputs[0]", "1 / 0 cannot be evaluated (ZeroDivisionError"),
        ("x", "x cannot be evaluated (NameError"),
        ("open('a')", "open('a') cannot be evaluated (NameError"),
        ("*inputs[1]", "*inputs[1] cannot be evaluated (TypeError"),
        ("inputs[0", "is not a list of Python expressions ("),
        ("inputs[0], <dim>", "is not a list of Python expressions ("),
        ("a], [b", "is not a list of Python expressions"),
        ("i for i in inputs", "is not a list of Python expressions"),
        ("x = 3", "is not a list of Python expressions"),
        ("model.conv", "model.conv gives a Conv2d"),
        ("[[1, 2]]", "[[1, 2]] gives a list"),
        ("inputs[0].shape, torch.float32", "torch.float32 gives a dtype"),
        ("1j", "1j gives a complex"),
    ],
)
def test_mistakes_are_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(TaskError) as caught:
        evaluated(text)
    message = str(caught.value)
    assert message.startswith("--args: ")
    assert reason in message
    assert "\n" not in message
