"""What results should be, where they are not finite."""

from __future__ import annotations

import warnings

import numpy as np

from cupilot.tasks.expectation import expectation


def test_infinities_have_no_error_and_give_no_warning() -> None:
    expected = np.random.default_rng(2).standard_normal(512)
    expected[[3, 90, 400]] = np.inf, -np.inf, np.nan
    others = [expected * (1 + 1e-7 * sign) for sign in (1, -1)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = expectation(expected, expected.astype(np.float32), expected, None, others)
    assert found.own is not None
    assert np.isfinite(found.errors).all()
    assert (found.own[[3, 90, 400]] == 0).all()
    assert (np.delete(found.own, [3, 90, 400]) > 0).all()
