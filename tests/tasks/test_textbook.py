"""The modelled error of a float32 evaluation is that of real ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional as f

from cupilot.tasks.textbook import Float32Roundings

RNG = np.random.default_rng(3)
X = torch.from_numpy(RNG.standard_normal((256, 1024), dtype=np.float32))
POSITIVE = torch.from_numpy(RNG.random((256, 1024), dtype=np.float32))
WEIGHT = torch.from_numpy(RNG.standard_normal((1024, 64), dtype=np.float32))


def disturbed(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> float:
    """Root mean square of the modelled error."""
    wide = [value.double() for value in inputs]
    exact = function(*wide)
    with torch.no_grad(), Float32Roundings(1):
        return float((function(*wide) - exact).square().mean().sqrt())


def apart(found: torch.Tensor | np.ndarray, exact: torch.Tensor) -> float:
    return float((torch.as_tensor(found).double() - exact).square().mean().sqrt())


@pytest.mark.parametrize("x", [X, POSITIVE], ids=["signed", "positive"])
def test_sums_are_those_of_one_accumulator(x: torch.Tensor) -> None:
    real = apart(np.add.accumulate(x.numpy(), axis=1, dtype=np.float32)[:, -1], x.double().sum(1))
    assert 0.5 * real < disturbed(lambda v: v.sum(1), x) < 2 * real
    assert disturbed(lambda v: v.mean(1), x) == pytest.approx(disturbed(lambda v: v.sum(1), x) / 1024, rel=0.2)


@pytest.mark.parametrize("x", [X, POSITIVE], ids=["signed", "positive"])
def test_products_are_those_of_one_accumulator(x: torch.Tensor) -> None:
    weight, total = WEIGHT.abs() if x is POSITIVE else WEIGHT, np.zeros((256, 64), np.float32)
    for k in range(1024):
        total += np.multiply.outer(x[:, k].numpy(), weight[k].numpy())
    real = apart(total, x.double() @ weight.double())
    assert 0.5 * real < disturbed(torch.matmul, x, weight) < 2 * real


def test_equal_terms_round_alike() -> None:
    real = []
    for value in np.random.default_rng(2).random(64, dtype=np.float32):
        x = np.full((1, 4000), value)
        real.append(apart(np.add.accumulate(x, axis=1, dtype=np.float32)[:, -1], torch.from_numpy(x).double().sum(1)))
    x = torch.full((4096, 4000), 0.5)
    assert 0.5 * np.median(real) < disturbed(lambda v: v.sum(1), x) < 4 * np.max(real)


def test_scans_carry_their_errors_along() -> None:
    real = apart(np.add.accumulate(X.numpy(), axis=1, dtype=np.float32), X.double().cumsum(1))
    assert 0.5 * real < disturbed(lambda v: v.cumsum(1), X) < 2 * real


@pytest.mark.parametrize(("function", "formula"), [
    (f.elu, lambda x: torch.where(x > 0, x, torch.exp(x) - 1)),
    (torch.tanh, lambda x: 1 - 2 / (torch.exp(2 * x) + 1)),
    (f.softplus, lambda x: torch.log(1 + torch.exp(x))),
    (f.silu, lambda x: x / (1 + torch.exp(-x))),
    (f.gelu, lambda x: 0.5 * x * (1 + torch.erf(x * 0.70710678))),
    (lambda x: f.layer_norm(x, (1024,)),
     lambda x: (x - x.mean(1, True)) * torch.rsqrt(x.var(1, False).unsqueeze(1) + 1e-5)),
    (lambda x: f.log_softmax(x, 1), lambda x: x - torch.log(torch.exp(x).sum(1, True))),
])  # fmt: skip
def test_fused_operators_are_taken_apart(
    function: Callable[[torch.Tensor], torch.Tensor], formula: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    real = apart(formula(X), function(X.double()))
    assert 0.6 * real < disturbed(function, X) < 30 * real


def test_what_rounds_nothing_is_exact() -> None:
    assert disturbed(lambda x: torch.relu(x.t().reshape(-1)).clamp(-1, 1), X) == 0
    assert disturbed(lambda x: x.max(1)[0], X) == 0
    with Float32Roundings(1):
        assert torch.equal(torch.arange(4).sum(), torch.tensor(6))
        assert torch.equal(X.argmax(1), X.argmax(1))


def test_inputs_stay_as_they_are() -> None:
    wide = X.double()
    before = wide.clone()
    with torch.no_grad(), Float32Roundings(1):
        wide.view(-1)
        torch.exp(wide) + wide.transpose(0, 1).reshape(256, 1024)
    assert torch.equal(wide, before)


def test_far_fewer_bits_are_not_allowed_for() -> None:
    for function in (torch.exp, torch.tanh, lambda x: f.softmax(x, 1), lambda x: x.sum(1)):
        low = apart(function(X.half().double()), function(X.double()))
        assert disturbed(function, X) < low / 30
