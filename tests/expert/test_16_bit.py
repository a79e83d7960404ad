"""Tensors of float16 and bfloat16: every family reads, writes and mixes them, and computes in float32."""

from __future__ import annotations

import pytest
from family_tasks import small_task

from cupilot.contracts import Brief, Device
from cupilot.errors import UnmatchedTask
from cupilot.expert import Expert
from cupilot.expert.render import render
from cupilot.records import Strategy, Task
from cupilot.tasks.load import task_from_source
from cupilot.tasks.scale import scaled_tasks
from cupilot.tasks.suite import LEVEL1, in_type, open_suite
from cupilot.testing.samples import SPEC
from evaluating import evaluator_on

TYPES = ("fp16", "bf16")
LEVEL1_TASKS = {problem.number: problem for problem in open_suite(LEVEL1)}
A_FEW = ((36, "bf16"), (47, "fp16"))
"""That the ordinary line evaluates; the rest is slow."""


def level1_task(number: int, dtype: str) -> Task:
    problem = LEVEL1_TASKS[number]
    return task_from_source(in_type(problem.path.read_text(), dtype), problem.name, "fp32", where=problem.name)


def first_start_is_right(task: Task, device: Device) -> None:
    space = Expert().space(task, device.spec)
    starts = space.starts("dram")
    kernel = render(space, starts[0] if starts else Strategy())
    failure = evaluator_on(device, timeout_s=600.0)(task, kernel).failure
    assert failure is None, failure


# --- level 1 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        pytest.param(number, dtype, marks=() if (number, dtype) in A_FEW else pytest.mark.slow)
        for number in LEVEL1_TASKS
        for dtype in TYPES
    ],
)
def test_level_1_in_16_bits(device: Device, number: int, dtype: str) -> None:
    """Small versions, with the strategy that the search would try first."""
    task = level1_task(number, dtype)
    versions = scaled_tasks(task)
    first_start_is_right(versions[0] if versions else task, device)


@pytest.mark.parametrize("number", [1, 19, 23, 33, 40, 42, 47, 50, 82, 86, 89, 94, 95, 97, 99])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_family_matches(number: int, dtype: str) -> None:
    task = level1_task(number, dtype)
    assert {"fp16": "float16", "bf16": "bfloat16"}[dtype] == task.outputs[0].dtype
    kernel = Expert().generate(Brief(task, SPEC))
    assert {"fp16": "__half", "bf16": "__nv_bfloat16"}[dtype] in kernel.source


# --- types that meet -----------------------------------------------------------------------------------

BF16, FP16 = "dtype=torch.bfloat16", "dtype=torch.float16"
RMS = "(x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w"
MIXED = {
    "promoted": ("x + y", "x, y", f"torch.randn(A, B, {BF16}), torch.randn(B)"),
    "half and bfloat": ("x * y", "x, y", f"torch.randn(A, B, {BF16}), torch.randn(A, B, {FP16})"),
    "narrowed": ("torch.relu(x).to(torch.float16)", "x", "torch.randn(A, B)"),
    "mask": ("torch.where(m, x, -x)", "m, x", f"torch.rand(A, B) > 0.5, torch.randn(A, B, {BF16})"),
    "softmax in float": ("F.softmax(x, -1, dtype=torch.float32).to(x.dtype)", "x", f"torch.randn(A, B, {BF16})"),
    "rms norm as people write it": (RMS, "x, w", f"torch.randn(A, B, {BF16}), torch.randn(B, {BF16})"),
    "sum in float": ("x.float().sum(-1)", "x", f"torch.randn(A, B, {FP16})"),
    "product to float": ("torch.mm(x, y).float()", "x, y", f"torch.randn(A, B, {BF16}), torch.randn(B, C, {BF16})"),
    "linear of one row": (
        "F.linear(x, w, b)", "x, w, b",
        f"torch.randn(1, B, {BF16}), torch.randn(C, B, {BF16}), torch.randn(C, {BF16})",
    ),
}  # fmt: skip
A_FEW_MIXED = ("promoted", "rms norm as people write it")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in A_FEW_MIXED else pytest.mark.slow) for name in MIXED]
)
def test_types_that_meet(device: Device, name: str) -> None:
    result, arguments, inputs = MIXED[name]
    first_start_is_right(small_task(result, arguments, inputs), device)


def test_batch_norm_by_running_statistics_is_pointwise(device: Device) -> None:
    source = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(16).eval().bfloat16()
    def forward(self, x):
        return torch.relu(self.norm(x))
def get_inputs():
    return [torch.randn(3, 16, 9, 10, dtype=torch.bfloat16)]
"""
    task = task_from_source(source, "eval norm", "fp32", where="eval norm")
    assert Expert().space(task).problem.recipe.name == "elementwise"
    first_start_is_right(task, device)


# --- strategies ----------------------------------------------------------------------------------------


def test_vectors_have_16_bytes() -> None:
    for dtype, width in (("fp32", 4), ("bf16", 8)):
        space = Expert().space(level1_task(19, dtype))
        start = next(start for start in space.starts("") if start.move("vector-load"))
        assert f"kWidth = {width};" in render(space, start).source


@pytest.mark.parametrize(("dtype", "instruction"), [("fp16", "f32.f16.f16.f32"), ("bf16", "f32.bf16.bf16.f32")])
def test_products_take_factors_as_they_are(dtype: str, instruction: str) -> None:
    space = Expert().space(level1_task(1, dtype))
    source = render(space, space.starts("tensor")[0]).source
    assert instruction in source
    assert "ldmatrix" in source
    assert "cp.async" in source
    assert "split_tf32" not in source


# --- what is not known -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("torch.cat([x, x], 0)", "aten.cat.default (33x64:bfloat16, 33x64:bfloat16 -> 66x64:bfloat16)"),
        ("torch.relu(x).var(-1)", "aten.var.dim (33x64:bfloat16 -> 33:bfloat16)"),
        ("torch.relu(x.double())", "aten.to.dtype (33x64:bfloat16 -> 33x64:float64)"),
    ],
)
def test_the_obstacle_is_named_with_types_and_shapes(result: str, said: str) -> None:
    with pytest.raises(UnmatchedTask) as caught:
        Expert().space(small_task(result, "x", f"torch.randn(A, B, {BF16})"))
    assert said in str(caught.value)
