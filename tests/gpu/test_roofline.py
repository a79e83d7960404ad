"""Zones, the task's own limit, and counting operations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cupilot.gpu import ZONES, achieved_fraction, limit_s, load_spec, place, reachable_s, task_flop, zone_of
from cupilot.gpu.work import base_name
from cupilot.records import Argument, Op, Task, TensorSpec

A100 = load_spec("a100-80gb")


def make_task(inputs: list[tuple[int, ...]], *ops: tuple[str, tuple[str, ...], tuple[int, ...]], **more: str) -> Task:
    arguments = tuple(Argument(f"x{i}", "input", TensorSpec(shape)) for i, shape in enumerate(inputs))
    graph = tuple(Op(f"op{i}", t, operands, (), TensorSpec(shape)) for i, (t, operands, shape) in enumerate(ops))
    return Task("task", "", arguments, (graph[-1].output,), graph, **more)


@pytest.mark.parametrize(("intensity", "zone"), [(0.1, "memory-bound"), (9.0, "memory-bound"), (10.0, "between"),
                                                 (76.0, "between"), (77.0, "compute-bound")])  # fmt: skip
def test_zones_of_fp32(intensity, zone):
    """A100-80GB: 19.5e12 / 2039e9 = 9.56 and 156e12 / 2039e9 = 76.5 operations per byte."""
    found = place(A100, intensity * 1e9, 1e9, "fp32")
    assert found.zone == zone
    assert found.intensity == pytest.approx(intensity)
    assert (found.ridge_low, found.ridge_high) == (pytest.approx(9.56, rel=0.01), pytest.approx(76.5, rel=0.01))


def test_attainable_speed_is_the_lower_roof():
    assert place(A100, 1e9, 1e9).attainable_flop_per_s == A100.dram_bytes_per_s
    assert place(A100, 1e12, 1e9).attainable_flop_per_s == A100.fp32_flop_per_s
    assert place(A100, 1e9, 0).zone == "compute-bound"


def test_half_precision_has_its_own_ridges():
    assert place(A100, 30e9, 1e9, "fp32").zone == "between"
    assert place(A100, 30e9, 1e9, "fp16").zone == "memory-bound"
    assert place(A100, 30e9, 1e9, "fp64").zone == "compute-bound"


def test_far_from_every_ceiling_is_latency_bound():
    found = place(A100, 1e9, 8e9)
    fast, slow = 8e9 / A100.dram_read_bytes_per_s, 10 * 8e9 / A100.dram_read_bytes_per_s
    assert zone_of(A100, found, achieved_fraction(A100, found, 1e9, 8e9, fast)) == "memory-bound"
    assert zone_of(A100, found, achieved_fraction(A100, found, 1e9, 8e9, slow)) == "latency-bound"
    assert {"memory-bound", "between", "compute-bound", "latency-bound"} == set(ZONES)


def test_achieved_fraction_takes_the_nearer_ceiling():
    found = place(A100, 1e12, 1e6)
    assert achieved_fraction(A100, found, 1e12, 1e6, 0.1) == pytest.approx(1e13 / A100.fp32_flop_per_s)


@pytest.mark.parametrize(
    ("target", "name"),
    [("aten.mm", "mm"), ("aten.softmax.int", "softmax"), ("aten._softmax", "_softmax"), ("aten.relu_", "relu")],
)
def test_base_name(target, name):
    assert base_name(target) == name


@pytest.mark.parametrize(
    ("task", "flop"),
    [
        (make_task([(8, 32), (32, 16)], ("aten.mm", ("x0", "x1"), (8, 16))), 2 * 8 * 16 * 32),
        (make_task([(3, 8, 32), (3, 32, 16)], ("aten.matmul.default", ("x0", "x1"), (3, 8, 16))), 2 * 3 * 8 * 16 * 32),
        (make_task([(8, 32), (16, 32), (16,)], ("aten.linear", ("x0", "x1", "x2"), (8, 16))), 2 * 8 * 16 * 32),
        (make_task([(16,), (8, 32), (32, 16)], ("aten.addmm", ("x0", "x1", "x2"), (8, 16))), 2 * 8 * 16 * 32),
        (make_task([(4, 10)], ("aten.relu", ("x0",), (4, 10))), 40),
        (make_task([(4, 10)], ("aten.softmax.int", ("x0",), (4, 10))), 200),
        (make_task([(4, 10)], ("aten.sum.dim_IntList", ("x0",), (4,))), 40),
        (make_task([(4, 10)], ("aten.view", ("x0",), (40,)), ("aten.gelu", ("op0",), (40,))), 40),
        (make_task([(1, 3, 8, 8), (5, 3, 3, 3)], ("aten.conv2d", ("x0", "x1"), (1, 5, 6, 6))), 2 * 180 * 27),
    ],
)
def test_task_flop(task, flop):
    assert task_flop(task) == flop


def test_limit_of_a_product_is_arithmetic_and_of_relu_memory():
    square = (4096, 4096)
    product = make_task([square, square], ("aten.mm", ("x0", "x1"), square))
    assert limit_s(A100, product, task_flop(product)) == pytest.approx(2 * 4096**3 / (A100.tf32_tensor_flop_per_s / 3))
    relu = make_task([square], ("aten.relu", ("x0",), square))
    assert limit_s(A100, relu, task_flop(relu)) == pytest.approx(2 * 4 * 4096**2 / A100.dram_bytes_per_s)


def test_limit_in_half_precision_is_that_of_the_tensor_cores():
    square = (16384, 16384)
    product = make_task([square, square], ("aten.mm", ("x0", "x1"), square), precision="fp16")
    assert limit_s(A100, product, task_flop(product)) == pytest.approx(2 * 16384**3 / A100.fp16_tensor_flop_per_s)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_numbers_stored_in_half_precision_are_multiplied_as_such(precision):
    square = (16384, 16384)
    product = make_task([square, square], ("aten.mm", ("x0", "x1"), square), precision=precision)
    half = TensorSpec(square, "float16")
    stored = replace(product, arguments=tuple(replace(argument, tensor=half) for argument in product.arguments))
    assert limit_s(A100, stored, task_flop(stored)) == pytest.approx(2 * 16384**3 / A100.fp16_tensor_flop_per_s)


def test_what_can_be_reached_lies_above_the_bound_where_memory_binds() -> None:
    copy = Task("copy", "", (Argument("x", "input", TensorSpec((1 << 26,))),), (TensorSpec((1 << 26,)),), ())
    assert 1.05 < reachable_s(A100, copy, 0.0) / limit_s(A100, copy, 0.0) < 1.3
    assert reachable_s(A100, copy, 1e15) == limit_s(A100, copy, 1e15)
