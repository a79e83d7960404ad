"""The rule of comparison: honest float32 passes in any order, everything else is told apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from comparing import (
    EXAMPLES,
    Array,
    assert_fails,
    assert_passes,
    example,
    f32,
    in_part,
    judge,
    product,
    to_bf16,
    to_fp16,
)

from cupilot.evaluation.verify import BUDGETS, compare
from cupilot.tasks import KINDS, PRECISIONS, make_case
from cupilot.tasks.draw import SPECIAL
from cupilot.tasks.load import task_from_source

FINITE = [kind for kind in KINDS if kind not in SPECIAL]
ROUGH = ["own", "normal", "wide"]
"""Kinds whose values have more bits than lower precisions can hold."""

# --- ways to compute -------------------------------------------------------------------------


def one_accumulator(a: Array, b: Array) -> Array:
    """One float32 accumulator per output with fused multiply-adds: the plainest kernel there is."""
    total = np.zeros((a.shape[0], b.shape[1]), f32)
    a, b = a.astype(np.float64), b.astype(np.float64)
    for k in range(a.shape[1]):
        total = (total + np.multiply.outer(a[:, k], b[k])).astype(f32)
    return total


def blocked(a: Array, b: Array, size: int) -> Array:
    """Float32 partial sums over blocks of the inner axis, the last ones first."""
    total = np.zeros((a.shape[0], b.shape[1]), f32)
    for start in reversed(range(0, a.shape[1], size)):
        total += a[:, start : start + size] @ b[start : start + size]
    return total


def to_tf32(values: Array) -> Array:
    """Rounded to ten bits after the point."""
    bits = values.view(np.uint32)
    return ((bits + np.uint32(0xFFF) + ((bits >> 13) & np.uint32(1))) & np.uint32(0xFFFFE000)).view(f32)


def truncated(values: Array) -> Array:
    """What a tensor core makes of float32 that nobody rounded."""
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(f32)


LOG2E = f32(1.4426950408889634)


def exponent_after_subtraction(x: Array) -> Array:
    return (x - x.max(axis=1, keepdims=True)) * LOG2E


def exponent_by_fused_multiply_add(x: Array) -> Array:
    highest = (x.max(axis=1, keepdims=True) * LOG2E).astype(np.float64)
    return (x.astype(np.float64) * np.float64(LOG2E) - highest).astype(f32)


def exponent_before_subtraction(x: Array) -> Array:
    scaled = x * LOG2E
    return scaled - scaled.max(axis=1, keepdims=True)


def softmax(exponents: Array) -> Array:
    """Powers of two over their sum; 32 lanes, each with a sum of its own."""
    powers = np.exp2(exponents)
    total = np.zeros((powers.shape[0], 32), f32)
    for start in range(0, powers.shape[1], 32):
        part = powers[:, start : start + 32]
        total[:, : part.shape[1]] += part
    return powers * (f32(1) / total.sum(axis=1, keepdims=True, dtype=f32))


def off_by(values: Array, ulps: int) -> Array:
    """Values moved by a few units in the last place, up and down by turns."""
    steps = np.where(np.arange(values.size).reshape(values.shape) % 2, ulps, -ulps)
    return (values + steps * np.spacing(values)).astype(f32)


def erf(x: Array) -> Array:
    import torch

    return torch.erf(torch.from_numpy(x)).numpy()


def gelu(x: Array, ulps: int) -> Array:
    exact = erf(x * f32(0.7071067811865476))
    rough = np.where(np.abs(exact) == 1, exact, off_by(exact, ulps))  # every erf reaches one in the end
    return f32(0.5) * x * (f32(1) + rough)


# --- honest results ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FINITE)
@pytest.mark.parametrize("shape", [(67, 33, 41), (64, 1024, 48), (48, 4096, 40)], ids=str)
def test_every_order_of_summation_passes(shape: tuple[int, int, int], kind: str) -> None:
    case = product(*shape, kind)
    a, b = case.arguments
    assert_passes(case, case.native[0])
    assert_passes(case, case.expected[0].astype(f32))
    assert_passes(case, one_accumulator(a, b))
    for size in (8, 32, 100):
        assert_passes(case, blocked(a, b, size))


@pytest.mark.parametrize("kind", FINITE)
def test_other_formulas_pass(kind: str) -> None:
    rows = example("softmax", kind)
    assert_passes(rows, softmax(exponent_after_subtraction(rows.arguments[0])))
    assert_passes(rows, softmax(exponent_by_fused_multiply_add(rows.arguments[0])))
    activation = example("gelu", kind)
    assert_passes(activation, gelu(activation.arguments[0], ulps=0))
    assert_passes(activation, gelu(activation.arguments[0], ulps=2))


@pytest.mark.parametrize("kind", FINITE)
def test_exponents_that_are_scaled_before_the_maximum_is_taken_off_pass(kind: str) -> None:
    """What attention kernels do: an exponential with a rounded argument is a textbook one."""
    case = example("softmax", kind)
    assert_passes(case, softmax(exponent_before_subtraction(case.arguments[0])))


def test_tanh_form_of_gelu_passes_where_it_is_asked_for_only() -> None:
    source = (EXAMPLES / "gelu.py").read_text().replace("gelu(x)", 'gelu(x, approximate="tanh")').replace("4096", "64")
    case = make_case(task_from_source(source.replace("16384", "515"), "tanh", "fp32", where="tanh"), "normal", 3)
    x = case.arguments[0]
    inner = f32(0.7978845608) * (x + f32(0.044715) * x * x * x)
    result = f32(0.5) * x * (f32(1) + off_by(np.tanh(inner), 2))
    assert_passes(case, result)
    assert_fails(case, gelu(x, ulps=0))


# --- dishonest or wrong results ----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(67, 33, 41), (48, 4096, 40)], ids=str)
@pytest.mark.parametrize("rounded", [to_tf32, to_fp16, to_bf16])
def test_lower_precision_inside_fails_as_fp32(shape: tuple[int, int, int], rounded: Callable[[Array], Array]) -> None:
    # one accumulator loses as much in a long sum of one sign
    for kind in ROUGH if shape[1] < 1000 else ROUGH[1:]:
        case = product(*shape, kind)
        a, b = case.arguments
        assert_fails(case, rounded(a) @ rounded(b), says="fp32 allows")


@pytest.mark.parametrize("name", ["softmax", "gelu", "relu"])
@pytest.mark.parametrize("rounded", [to_tf32, to_fp16, to_bf16])
def test_rounded_results_fail_as_fp32(name: str, rounded: Callable[[Array], Array]) -> None:
    case = example(name, "normal")
    assert_fails(case, rounded(case.native[0]))


@pytest.mark.parametrize("kind", ROUGH)
@pytest.mark.parametrize("shape", [(67, 33, 41), (48, 4096, 40)], ids=str)
def test_declared_precision_is_what_is_allowed(shape: tuple[int, int, int], kind: str) -> None:
    assert set(BUDGETS) == set(PRECISIONS)
    for precision, rounded in (("tf32", to_tf32), ("tf32", truncated), ("fp16", to_fp16), ("bf16", to_bf16)):
        case = product(*shape, kind, precision)
        a, b = case.arguments
        assert_passes(case, rounded(a) @ rounded(b), precision=precision)
    for precision in PRECISIONS:
        case = product(*shape, kind, precision)
        a, b = case.arguments
        assert_fails(case, a[:, :32] @ b[:32], precision=precision)


@pytest.mark.parametrize("shape", [(67, 33, 41), (128, 320, 192), (48, 4096, 40)], ids=str)
@pytest.mark.parametrize("kind", ["normal", "wide"])
def test_bf16_is_not_tf32(shape: tuple[int, int, int], kind: str) -> None:
    case = product(*shape, kind, "tf32")
    a, b = case.arguments
    assert_fails(case, to_bf16(a) @ to_bf16(b), precision="tf32", says="tf32 allows")


def test_results_in_fp16_are_rounded_once_and_summed_in_fp32() -> None:
    source = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return x.mean(1)
def get_inputs():
    return [torch.rand(64, 8192).half()]
"""
    case = make_case(task_from_source(source, "mean", "fp32", where="mean"), "normal", 1)
    x = case.arguments[0]
    assert_passes(case, x.astype(f32).mean(axis=1, dtype=f32).astype(np.float16))
    lanes = x.reshape(64, 64, 128).cumsum(axis=1, dtype=np.float16)[:, -1]
    assert_fails(case, (lanes.cumsum(axis=1, dtype=np.float16)[:, -1].astype(f32) / 8192).astype(np.float16))


@pytest.mark.parametrize("name", ["relu", "gelu", "softmax", "matmul"])
def test_one_wrong_element_fails(name: str) -> None:
    case = example(name, "normal")
    result = case.native[0].copy()
    place = np.unravel_index(np.argsort(result, axis=None)[-result.size // 4], result.shape)
    result[place] *= f32(1.001)
    message = assert_fails(case, result, says=f"output 0 differs at {tuple(map(int, place))}: got ")
    assert f"(inputs: normal, shape {case.shapes})" in message
    assert "times what fp32 allows" in message


def test_relu_that_skips_its_work_fails_on_signed_inputs_only() -> None:
    source = (EXAMPLES / "relu.py").read_text().replace("randn", "rand").replace("4096", "33").replace("16384", "129")
    task = task_from_source(source, "relu", "fp32", where="relu")
    own, normal = make_case(task, "own", 1), make_case(task, "normal", 1)
    assert_passes(own, own.arguments[0])
    assert_fails(normal, normal.arguments[0])


@pytest.mark.parametrize("kind", [*ROUGH, "planted"])
def test_a_transposed_result_fails(kind: str) -> None:
    case = product(64, 64, 64, kind)
    assert_fails(case, np.ascontiguousarray(case.native[0].T))


def test_a_subsampled_sum_fails() -> None:
    case = product(48, 4096, 40, "own")
    a, b = case.arguments
    assert_fails(case, (a[:, ::2] @ b[::2]) * f32(2))


# --- form, writing, NaN ----------------------------------------------------------------------------------


def test_form_of_outputs() -> None:
    case = example("matmul", "normal")
    result = case.native[0]
    assert_fails(case, result, result, kind="wrong-shape", says="returns 2 outputs, expected 1")
    assert_fails(case, result.T, kind="wrong-shape", says="has shape 131x521, expected 521x131")
    assert_fails(case, result.astype(np.float64), kind="wrong-shape", says="type float64, expected float32")


def test_an_unwritten_tail_fails_even_if_the_values_are_right() -> None:
    case = example("relu", "normal")
    result = case.native[0]
    written = np.ones(result.shape, bool)
    written[-1, 250:] = False
    _, failure = compare(case, [in_part(result, written)], "fp32")
    assert failure is not None
    assert failure.kind == "unwritten"
    rows, columns = result.shape
    assert f"{columns - 250} of {result.size} elements were never written" in failure.message
    assert f"first at ({rows - 1}, 250)" in failure.message


def test_partial_compares_what_is_written_only() -> None:
    case = example("matmul", "normal")
    result = np.full_like(case.native[0], np.nan)
    written = np.zeros(result.shape, bool)
    written[32:64, 64:128] = True
    result[written] = case.native[0][written]
    check, failure = compare(case, [in_part(result, written)], "fp32", partial=True)
    assert failure is None
    assert f"{32 * 64} elements" in check.note
    result[40, 70] += 1
    _, failure = compare(case, [in_part(result, written)], "fp32", partial=True)
    assert failure is not None
    assert "(40, 70)" in failure.message
    _, failure = compare(case, [in_part(result, np.zeros_like(written))], "fp32", partial=True)
    assert failure is not None
    assert failure.kind == "unwritten"


def test_nan_and_infinity_must_stand_where_they_belong() -> None:
    source = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return torch.log(x), x * 1e38 * 10
def get_inputs():
    return [torch.tensor([[-1.0, 0.0, 1.0, 2.0], [3.0, 4.0, 50.0, 1e-9]])]
"""
    case = make_case(task_from_source(source, "log", "fp32", where="log"), "own", 1)
    logs, products = case.native
    assert np.isnan(logs[0, 0])
    assert np.isinf(logs[0, 1])
    assert np.isinf(products[1, 2])  # float32 overflows where float64 does not
    assert_passes(case, logs, products)
    for place, value in [((0, 0), 0), ((0, 1), np.nan), ((0, 1), np.inf), ((1, 0), np.nan), ((1, 0), np.inf)]:
        wrong = logs.copy()
        wrong[place] = value
        assert_fails(case, wrong, products, says=f"output 0 differs at {place}")
    wrong = products.copy()
    wrong[1, 2] = -np.inf
    assert_fails(case, logs, wrong, says="output 1 differs at (1, 2)")


def test_integers_match_exactly() -> None:
    source = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return x.argmax(1), x > 0
def get_inputs():
    return [torch.randn(16, 33)]
"""
    case = make_case(task_from_source(source, "argmax", "fp32", where="argmax"), "normal", 1)
    indices, positive = case.native
    assert_passes(case, indices, positive)
    wrong = indices.copy()
    wrong[5] += 1
    assert_fails(case, wrong, positive, says="output 0 differs at (5,)")
    assert_fails(case, indices, ~positive, says="528 of 528 elements differ")


def test_scalars_and_flushed_denormals() -> None:
    source = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return (x * x).mean(), x * 1e-38
def get_inputs():
    return [torch.rand(1 << 16)]
"""
    case = make_case(task_from_source(source, "mean", "fp32", where="mean"), "own", 1)
    x = case.arguments[0]
    partial_sums = (x * x).reshape(256, 256).cumsum(axis=1, dtype=f32)[:, -1]
    mean = partial_sums.cumsum(dtype=f32)[-1] / f32(x.size)
    flushed = np.where(np.abs(case.native[1]) < np.finfo(f32).tiny, f32(0), case.native[1])
    assert_passes(case, np.asarray(mean, f32), flushed)
    assert_fails(case, np.asarray(mean * f32(1.0001), f32), flushed, says="output 0 differs at ()")


def test_the_check_names_inputs_and_error() -> None:
    case = example("softmax", "wide")
    check, failure = judge(case, case.native[0])
    assert failure is None
    assert (check.inputs, check.shapes) == ("wide", case.shapes)
    assert 0 < check.error < check.allowed == BUDGETS["fp32"].element


# --- tensors of 16 bits ------------------------------------------------------------------------------

STORED = """
import torch
class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
def get_inputs():
    return [torch.randn(48, 512, dtype=torch.{dtype}), torch.randn(512, 40, dtype=torch.{dtype})]
"""
NARROW: dict[str, Callable[[Array], Array]] = {"float16": to_fp16, "bfloat16": to_bf16}


def in_16_bits(a: Array, b: Array, rounded: Callable[[Array], Array], step: int) -> Array:
    """Sums that are rounded to the tensors' type every few products."""
    total = np.zeros((a.shape[0], b.shape[1]), f32)
    for start in range(0, a.shape[1], step):
        total = rounded(total + a[:, start : start + step] @ b[start : start + step])
    return total


@pytest.mark.parametrize("dtype", sorted(NARROW))
def test_products_of_16_bit_tensors_need_float32_sums(dtype: str) -> None:
    """As PyTorch's own: one rounding, at the end, is all that is allowed for storing the results."""
    task = task_from_source(STORED.format(dtype=dtype), "stored", "fp32", where="stored")
    case = make_case(task, "normal", seed=5)
    a, b = (np.asarray(value, f32) for value in case.arguments[:2])
    stored, rounded = case.native[0].dtype, NARROW[dtype]
    assert_passes(case, one_accumulator(a, b).astype(stored))
    assert_passes(case, case.native[0])
    assert_fails(case, in_16_bits(a, b, rounded, 16).astype(stored))
    if dtype == "float16":  # coarser factors than the tensors have
        assert_fails(case, (to_bf16(a) @ to_bf16(b)).astype(stored))
