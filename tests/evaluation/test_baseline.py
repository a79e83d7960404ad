"""The modelled PyTorch baseline against times recorded on an A100-80GB."""

from __future__ import annotations

import math

import pytest

from cupilot.evaluation.baseline import baseline
from cupilot.gpu import load_spec
from cupilot.records import Argument, Op, Task, TensorSpec

A100 = load_spec("a100-80gb")


def tensor(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape, dtype)


def make_task(inputs: list[TensorSpec], *ops: tuple[str, tuple[str, ...], TensorSpec]) -> Task:
    arguments = tuple(Argument(f"x{i}", "input", t) for i, t in enumerate(inputs))
    graph = tuple(Op(f"op{i}", target, operands, (), out) for i, (target, operands, out) in enumerate(ops))
    return Task("task", "", arguments, (graph[-1].output,), graph)


def product(left: TensorSpec, right: TensorSpec, out: TensorSpec, target: str = "aten.matmul") -> Task:
    return make_task([left, right], (target, ("x0", "x1"), out))


def unary(target: str, *shape: int) -> Task:
    return make_task([tensor(*shape)], (target, ("x0",), tensor(*shape)))


ROWS = (4096, 393216)
RECORDED = {
    "square product": (product(tensor(4096, 4096), tensor(4096, 4096), tensor(4096, 4096), "aten.mm"), 7.2214),
    "product": (product(tensor(2048, 8192), tensor(8192, 4096), tensor(2048, 4096)), 7.2721),
    "batched product": (product(tensor(128, 512, 1024), tensor(128, 1024, 2048), tensor(128, 512, 2048)), 14.417),
    "matrix times vector": (product(tensor(2048, 1048576), tensor(1048576, 1), tensor(2048, 1)), 4.8929),
    "long inner dimension": (product(tensor(256, 524288), tensor(524288, 256), tensor(256, 256)), 3.6404),
    "short inner dimension": (product(tensor(32768, 32), tensor(32, 32768), tensor(32768, 32768)), 4.0662),
    "odd shapes": (product(tensor(8205, 2949), tensor(2949, 5921), tensor(8205, 5921)), 15.415),
    "3-d times matrix": (product(tensor(16, 1024, 2048), tensor(2048, 768), tensor(16, 1024, 768)), 2.8109),
    "relu": (unary("aten.relu", *ROWS), 7.3246),
    "softmax": (unary("aten.softmax.int", *ROWS), 15.169),
    "gelu": (unary("aten.gelu", *ROWS), 7.3058),
    "swish": (make_task([tensor(*ROWS)], ("aten.sigmoid", ("x0",), tensor(*ROWS)),
                        ("aten.mul.Tensor", ("x0", "op0"), tensor(*ROWS))), 18.027),
    "sum over a dimension": (make_task([tensor(128, 4096, 4095)],
                                       ("aten.sum.dim_IntList", ("x0",), tensor(128, 1, 4095))), 5.1264),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_modelled_baseline_is_near_the_recorded_one(name):
    task, recorded_ms = RECORDED[name]
    timed = baseline(task, A100, "virtual:a100-80gb")
    assert 1 / 1.25 < timed.time_s * 1e3 / recorded_ms < 1.25, f"{timed.time_s * 1e3:.3f} ms against {recorded_ms}"
    assert timed.source == "modelled"
    assert timed.note == "PyTorch eager, modelled"


@pytest.mark.parametrize(("name", "limit"), [("square product", "fp32"), ("relu", "dram"), ("softmax", "dram")])
def test_limit(name, limit):
    assert baseline(RECORDED[name][0], A100, "d").limit == limit


def test_breakdown_is_by_operator_and_sums_to_the_time():
    timed = baseline(RECORDED["swish"][0], A100, "d")
    assert [part for part, _ in timed.breakdown] == ["op0 (aten.sigmoid)", "op1 (aten.mul.Tensor)", "launch"]
    assert math.isclose(sum(t for _, t in timed.breakdown), timed.time_s, rel_tol=1e-12)


def test_views_are_free_and_do_not_grow_what_is_read():
    plain = baseline(unary("aten.relu", 64, 1 << 20), A100, "d")
    viewed = make_task(
        [tensor(64, 1 << 20)],
        ("aten.view", ("x0",), tensor(1 << 20, 64)),
        ("aten.relu", ("op0",), tensor(1 << 20, 64)),
    )
    assert baseline(viewed, A100, "d").time_s == plain.time_s
    expanded = make_task(
        [tensor(1, 64)],
        ("aten.expand", ("x0",), tensor(1 << 20, 64)),
        ("aten.relu", ("op0",), tensor(1 << 20, 64)),
    )
    assert baseline(expanded, A100, "d").time_s < 0.6 * plain.time_s


def test_a_graph_of_views_costs_a_launch():
    task = make_task([tensor(4, 4)], ("aten.view", ("x0",), tensor(16)))
    assert baseline(task, A100, "d").time_s == A100.launch_overhead_s


def test_unknown_operators_are_named_in_the_note():
    timed = baseline(unary("aten.erfinv", 1024, 1024), A100, "d")
    assert "from bytes alone: aten.erfinv" in timed.note


def test_small_operators_cost_a_launch_each():
    assert baseline(unary("aten.relu", 16, 16), A100, "d").limit == "launch"
    assert baseline(unary("aten.relu", 16, 16), A100, "d").time_s == pytest.approx(A100.launch_overhead_s)


def test_small_products_do_not_reach_the_library_speed():
    shape = tensor(256, 256)
    flop = 2 * 256**3
    timed = baseline(product(shape, shape, shape, "aten.mm"), A100, "d")
    assert timed.time_s > 3 * flop / A100.sgemm_flop_per_s
    assert timed.time_s < 30e-6


def test_half_products_use_the_tensor_cores():
    half = tensor(4096, 4096, dtype="float16")
    timed = baseline(product(half, half, half, "aten.mm"), A100, "d")
    assert timed.limit == "tensor"
    assert 0.4e-3 < timed.time_s < 0.8e-3


@pytest.mark.parametrize(("row", "passes"), [(1024, 2), (8192, 2), (12288, 4), (393216, 4)])
def test_softmax_rows_that_fit_are_read_once(row, passes):
    rows = (1 << 28) // row
    timed = baseline(unary("aten.softmax.int", rows, row), A100, "d")
    once_s = A100.dram_s(1 << 30, 1 << 30) / 2
    assert timed.time_s == pytest.approx(passes * once_s, rel=0.1)


def test_convolutions_go_by_their_operations_and_say_how_surely():
    image, weight, result = tensor(8, 64, 512, 256), tensor(128, 64, 5, 7), tensor(8, 128, 508, 250)
    task = make_task([image, weight], ("aten.conv2d", ("x0", "x1"), result))
    timed = baseline(task, A100, "d")
    flop = 2.0 * result.elements * 64 * 5 * 7
    assert 1.2 < timed.time_s / (flop / A100.tf32_tensor_flop_per_s) < 3.0
    assert timed.limit == "tensor"
    assert "within 1.6x, because of conv2d" in timed.note
    assert "bytes alone" not in timed.note


def test_attention_is_one_kernel_that_computes_its_products():
    half = tensor(32, 32, 4096, 128, dtype="float16")
    task = make_task([half] * 3, ("aten.scaled_dot_product_attention", ("x0", "x1", "x2"), half))
    timed = baseline(task, A100, "d")
    flop = 4.0 * 32 * 32 * 4096 * 4096 * 128
    assert timed.limit == "tensor"
    assert flop / A100.fp16_tensor_flop_per_s < timed.time_s < 2 * flop / A100.fp16_tensor_flop_per_s
    assert "bytes alone" not in timed.note
