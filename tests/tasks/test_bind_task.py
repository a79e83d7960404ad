"""Wrappers bound to whole task files."""

from __future__ import annotations

import pytest

from cupilot.errors import TaskError, UserError
from cupilot.tasks import load_task
from cupilot.tasks.bind import bind_task, constructor_values
from cupilot.toolchain.signature import Parameter, fills_outputs, signature_of


def test_a_task_is_bound_without_its_memory(task_file) -> None:
    body = """
    def __init__(self, features, eps=1e-4, **rest):
        super().__init__()
        self.ln = nn.LayerNorm(features, eps=eps)

    def forward(self, x):
        return self.ln(x)
    """
    task = load_task(task_file(body, "torch.rand(1 << 20, 1 << 16)", init="1 << 16"))
    source = "void forward(at::Tensor x, at::Tensor g, at::Tensor b, float eps, int features, at::Tensor out) {}"
    found = bind_task(task, signature_of(source, "forward"), fills_outputs=fills_outputs(source, "forward"))
    assert found.text == "inputs[0], model.ln.weight, model.ln.bias, model.ln.eps, init['features']"
    assert bind_task(task, None).text == "inputs[0], model.ln.weight, model.ln.bias"
    with pytest.raises(UserError, match=r"fit go\(Tensor x, int rows\): rows cannot be bound"):
        bind_task(task, (Parameter("Tensor", "x"), Parameter("int", "rows")), entry="go")


def test_values_of_the_constructor() -> None:
    class Model:
        def __init__(self, a: int, b: float = 0.5, *more: int, c: str = "x") -> None: ...

    values = constructor_values({"Model": Model, "get_init_inputs": lambda: [1]}, "t")
    assert values == {"a": 1, "b": 0.5, "more": (), "c": "x"}
    assert constructor_values({"Model": Model, "get_init_inputs": list}, "t") == {}
    with pytest.raises(TaskError, match="get_init_inputs fails"):
        constructor_values({"Model": Model, "get_init_inputs": lambda: 1 / 0}, "t")
