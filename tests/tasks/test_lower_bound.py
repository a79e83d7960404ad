"""The least time of a task: its bytes, its operations, and the peak of its precision."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_tasks import make_task

from cupilot.gpu import load_spec
from cupilot.gpu.roofline import ceilings
from cupilot.records import Argument, Task, TensorSpec
from cupilot.tasks.lower_bound import task_limit
from cupilot.testing.samples import TASK

A100 = load_spec("a100-80gb")


def bound_s(task: Task) -> float:
    return task_limit(A100, task).datasheet.time_s


def test_the_bound_of_a_product_is_arithmetic_and_of_relu_memory():
    square = (4096, 4096)
    product = make_task([square, square], ("aten.mm", ("x0", "x1"), square))
    assert bound_s(product) == pytest.approx(2 * 4096**3 / (A100.tf32_tensor_flop_per_s / 3))
    relu = make_task([square], ("aten.relu", ("x0",), square))
    assert bound_s(relu) == pytest.approx(2 * 4 * 4096**2 / A100.dram_bytes_per_s)


def test_the_bound_in_half_precision_is_that_of_the_tensor_cores():
    square = (16384, 16384)
    product = make_task([square, square], ("aten.mm", ("x0", "x1"), square), precision="fp16")
    assert bound_s(product) == pytest.approx(2 * 16384**3 / A100.fp16_tensor_flop_per_s)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_numbers_stored_in_half_precision_are_multiplied_as_such(precision):
    square = (16384, 16384)
    product = make_task([square, square], ("aten.mm", ("x0", "x1"), square), precision=precision)
    half = TensorSpec(square, "float16")
    stored = replace(product, arguments=tuple(replace(argument, tensor=half) for argument in product.arguments))
    assert bound_s(stored) == pytest.approx(2 * 16384**3 / A100.fp16_tensor_flop_per_s)


COPY = Task("copy", "", (Argument("x", "input", TensorSpec((1 << 26,))),), (TensorSpec((1 << 26,)),), ())


def test_what_is_attainable_lies_above_the_datasheet_where_memory_binds() -> None:
    limit = task_limit(A100, COPY, 0.0)
    assert 1.05 < limit.time_s / limit.datasheet.time_s < 1.3
    assert str(limit) == "310 µs (263 µs at the datasheet's bandwidth)"


def test_where_operations_bind_both_limits_are_one() -> None:
    limit = task_limit(A100, COPY, 1e15)
    assert limit.time_s == limit.datasheet.time_s
    assert str(limit) == "51.3 s"


def test_the_limit_has_its_arithmetic():
    limit = task_limit(A100, TASK, 1e6)
    assert (limit.datasheet.bytes, limit.datasheet.bytes_per_s, limit.datasheet.flop) == (
        8 * 1024 * 1024,
        2.039e12,
        1e6,
    )
    assert limit.datasheet.reason == "moving 8388608 bytes at 2039 GB/s"
    assert limit.attainable.time_s == pytest.approx(A100.dram_s(TASK.input_bytes, TASK.output_bytes))


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_without_tensor_cores_the_cuda_cores_bind(precision):
    none = replace(A100, tf32_tensor_flop_per_s=0.0, bf16_tensor_flop_per_s=0.0)
    bound = task_limit(none, replace(TASK, precision=precision), 1e15)
    assert bound.time_s == pytest.approx(1e15 / ceilings(none, precision)[0])
