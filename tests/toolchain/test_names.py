"""Kernels' names as people know them."""

from __future__ import annotations

import pytest

from cupilot.toolchain.names import short_name


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("plain", "plain"),
        ("_Z4rowsPKfPfi", "rows"),
        ("_Z5twiceILi8EEvPKfPfi", "twice<8>"),
        ("_ZN39_GLOBAL__N__1f484763_7_unit_cu_c8b9fd527softmaxEPKfPfli", "softmax"),
        ("_ZN4impl6kernelIfLi8ELb1EEEvPKT_PS1_i", "impl::kernel<float, 8, true>"),
        ("_Zwhat", "_Zwhat"),
    ],
)
def test_short_names(symbol: str, name: str) -> None:
    assert short_name(symbol) == name
