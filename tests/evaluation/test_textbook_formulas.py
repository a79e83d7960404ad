"""Textbook formulas pass in float32, however plain, and do not in a lower precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from comparing import Array, assert_fails, assert_passes, f32, to_bf16, to_fp16

from cupilot.tasks import Case, make_case
from cupilot.tasks.load import task_from_source

FORMULAS: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "elu": ("nn.functional.elu(x)", lambda x: np.where(x > 0, x, np.exp(x) - f32(1))),
    "tanh": ("torch.tanh(x)", lambda x: f32(1) - f32(2) / (np.exp(f32(2) * x) + f32(1))),
    "sigmoid": ("torch.sigmoid(x)", lambda x: f32(1) / (f32(1) + np.exp(-x))),
    "silu": ("nn.functional.silu(x)", lambda x: x / (f32(1) + np.exp(-x))),
    "softplus": (
        "nn.functional.softplus(x)", lambda x: np.where(x > 20, x, np.log(f32(1) + np.exp(np.minimum(x, f32(20)))))),
    "expm1": ("torch.expm1(x)", lambda x: np.exp(x) - f32(1)),
    "log1p": ("torch.log1p(x.abs())", lambda x: np.log(f32(1) + np.abs(x))),
    "mean of rows": ("x.mean(0)", lambda x: np.add.accumulate(x, 0, dtype=f32)[-1] / f32(x.shape[0])),
    "total": ("(x * x).mean()", lambda x: np.asarray(
        np.add.accumulate(np.add.accumulate((x * x).reshape(-1, 4096), 1, dtype=f32)[:, -1])[-1] / f32(x.size))),
    "variance in one pass": (
        "x.var(1, unbiased=False)", lambda x: (x * x).mean(1, dtype=f32) - x.mean(1, dtype=f32) ** 2),
    "logsumexp": ("x.logsumexp(1)", lambda x: x.max(1) + np.log(np.exp(x - x.max(1, keepdims=True)).sum(1, dtype=f32))),
}  # fmt: skip


@cache
def formula(name: str, kind: str, rows: int = 1024, columns: int = 384) -> Case:
    source = f"""
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return {FORMULAS[name][0]}
def get_inputs():
    return [torch.rand({rows}, {columns})]
"""
    return make_case(task_from_source(source, "formula", "fp32", where="formula"), kind, 5)


@pytest.mark.parametrize("kind", ["own", "normal", "large", "planted", "wide"])
@pytest.mark.parametrize("name", FORMULAS)
def test_textbook_formulas_pass_and_lower_precisions_do_not(name: str, kind: str) -> None:
    case = formula(name, kind)
    with np.errstate(over="ignore", invalid="ignore"):
        assert_passes(case, FORMULAS[name][1](case.arguments[0]).astype(f32))
        low = FORMULAS[name][1](to_bf16(to_fp16(case.arguments[0]))).astype(f32)
    if kind == "normal":
        assert_fails(case, low)
