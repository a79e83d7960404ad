from __future__ import annotations

import pytest

from cupilot.report.numbers import duration, percent, quantity, ratio, time_unit


@pytest.mark.parametrize(
    ("time_s", "text"),
    [(1.5, "1.50 s"), (0.25, "250 ms"), (3.118e-4, "312 µs"), (1.2345e-6, "1.23 µs"), (4e-10, "0.400 ns")],
)
def test_durations_have_three_digits(time_s: float, text: str) -> None:
    assert duration(time_s).replace("\u202f", " ") == text


def test_a_column_has_one_unit_and_the_same_digits() -> None:
    unit = time_unit([18.5e-3, None, 3.118e-4])
    assert (unit.name, unit.number(18.5e-3), unit.number(3.118e-4)) == ("µs", "18\u202f500", "312")
    assert unit.number(None) == ""
    assert time_unit([]).name == "ms"


def test_factors_shares_and_quantities() -> None:
    assert [ratio(x) for x in (0.963, 33.17, 138.9, None, float("nan"))] == ["0.96×", "33.2×", "139×", "", ""]
    assert [percent(x) for x in (0.5, 0.012, 0.0)] == ["50\u202f%", "1.2\u202f%", "0\u202f%"]
    assert [quantity(x, "B/s") for x in (2.04e12, 12.0)] == ["2.04\u202fTB/s", "12\u202fB/s"]
    assert quantity(7) == "7"
