"""Scans as float32 has them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cupilot.tasks.float32_scan import Float32Scans

X = torch.from_numpy(np.random.default_rng(5).random((3, 40000), dtype=np.float32))


@pytest.mark.parametrize("scan", [torch.cumsum, torch.cumprod])
def test_sums_are_float32(scan: object) -> None:
    assert callable(scan)
    values = X + 0.5 if scan is torch.cumprod else X
    exact, plain = scan(values.double(), 1), scan(values, 1)
    with Float32Scans():
        single = scan(values, 1)
    usual = torch.isfinite(exact) & (exact.abs() > 1e-30) & (exact.abs() < 1e30)

    def error(found: torch.Tensor) -> float:
        return float(((found.double() - exact).abs() / exact.abs())[usual].mean())

    assert single.dtype == torch.float32
    assert 4 * error(plain) < error(single) < 1e-4


def test_all_else_is_as_it_was() -> None:
    with Float32Scans():
        assert torch.equal(torch.cumsum(X.double(), 1), np_cumsum(X))
        assert torch.equal(torch.cumsum(torch.arange(5), 0), torch.tensor([0, 1, 3, 6, 10]))
        assert torch.cumsum(torch.tensor(2.0), 0) == 2.0
        assert torch.equal(X.sum(1), X.sum(1))
    assert torch.isnan(torch.cumsum(torch.tensor([1.0, float("nan"), 1.0]), 0)[2])


def np_cumsum(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.cumsum(x.numpy().astype(np.float64), axis=1))
