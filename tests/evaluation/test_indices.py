"""Indices: any of equal elements where PyTorch leaves the order open, the first where it does not; NaN."""

from __future__ import annotations

import numpy as np
import pytest
from comparing import Array, assert_fails, assert_passes

from cupilot.contracts import Output
from cupilot.evaluation.verify import DROPPED, compare
from cupilot.tasks import Case, make_case
from cupilot.tasks.load import task_from_source


def chosen_by(expression: str, kind: str, seed: int = 1) -> Case:
    source = f"""
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return {expression}
def get_inputs():
    return [torch.randn(16, 64)]
"""
    return make_case(task_from_source(source, "chosen", "fp32", where="chosen"), kind, seed)


def last_first(x: Array, count: int, *, largest: bool = True) -> Array:
    """Indices in order of value, the last of equal ones first."""
    order = np.lexsort((-np.arange(x.shape[1])[None, :].repeat(len(x), 0), -x if largest else x), axis=1)
    return order[:, :count]


@pytest.mark.parametrize("kind", ["normal", "one-hot", "constant"])
def test_any_index_of_a_tie_is_right_where_the_order_is_open(kind: str) -> None:
    for expression, largest in (
        ("torch.topk(x, 5, 1)", True),
        ("x.sort(1, descending=True)", True),
        ("x.sort(1)", False),
    ):
        case = chosen_by(expression, kind)
        x = case.arguments[0]
        indices = last_first(x, case.expected[1].shape[1], largest=largest)
        values = np.take_along_axis(x, indices, 1)
        assert_passes(case, values, indices)
        repeated = indices.copy()
        repeated[3, 1] = repeated[3, 0]
        assert_fails(case, values, repeated, says="output 1 differs")
        outside = indices.copy()
        outside[2, 0] = 64
        assert_fails(case, values, outside, says="output 1 differs at (2, 0)")
        if kind != "constant":
            other = indices.copy()
            other[:, [0, -1]] = other[:, [-1, 0]]
            assert_fails(case, values, other, says="output 1 differs")


def test_the_first_index_of_a_tie_is_right_where_the_order_is_fixed() -> None:
    for expression in ("x.argmax(1)", "torch.sort(x, dim=1, stable=True, descending=True)[1]"):
        case = chosen_by(expression, "one-hot")
        assert_passes(case, case.expected[0])
        last = np.ascontiguousarray(last_first(case.arguments[0], 64))
        assert_fails(chosen_by("x.argmin(1)", "one-hot"), last_first(case.arguments[0], 1, largest=False)[:, 0])
        if case.expected[0].ndim > 1:
            assert_fails(case, last)


def test_indices_of_computed_numbers_may_change_places_within_their_error() -> None:
    case = chosen_by("(x @ x.t()).argmax(0)", "normal")
    assert_passes(case, case.expected[0])
    assert_fails(case, (case.expected[0] + 1) % 16)
    close = chosen_by("(x.abs() * 0 + 1 + x * 1e-8).exp().argmax(1)", "normal")
    assert_passes(close, np.argmax(np.exp(np.float32(1) + close.arguments[0] * 1e-8), axis=1))


def test_a_nan_may_be_dropped_and_not_made() -> None:
    case = chosen_by("torch.relu(x).amax(1), x.argmax(1)", "special")
    x = case.arguments[0]
    dropped, index = np.fmax.reduce(np.fmax(x, 0), 1), np.nanargmax(np.where(np.isnan(x), -np.inf, x), axis=1)
    outputs = [Output(v.shape, v.reshape(-1)) for v in (dropped, index)]
    assert np.isnan(case.expected[0]).any()
    assert compare(case, outputs, "fp32")[1] is not None
    check, failure = compare(case, outputs, "fp32", excused=(DROPPED,))
    assert failure is None, failure
    assert check.inputs == "special"
    for place in (np.isinf(case.expected[0]), np.isfinite(case.expected[0])):
        if place.any():
            made = np.where(place, np.float32(np.nan), dropped)
            assert compare(case, [Output(made.shape, made), outputs[1]], "fp32", excused=(DROPPED,))[1] is not None
    wrong = np.where(np.isnan(x).any(1), index, (index + 1) % 64)
    assert compare(case, [outputs[0], Output(wrong.shape, wrong)], "fp32", excused=(DROPPED,))[1] is not None
