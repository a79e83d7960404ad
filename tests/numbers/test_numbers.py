from __future__ import annotations

import pytest

from cupilot.numbers import PAGE, PLAIN, duration, percent, quantity, ratio


@pytest.mark.parametrize(
    ("time_s", "text"),
    [
        (1.5, "1.50 s"),
        (0.25, "250 ms"),
        (3.118e-4, "312 µs"),
        (9.999e-4, "1 000 µs"),
        (1.2345e-6, "1.23 µs"),
        (4e-10, "0.400 ns"),
        (0.0, "0.00 ms"),
    ],
)
def test_durations_have_three_digits(time_s: float, text: str) -> None:
    assert duration(time_s) == text


def test_a_column_has_one_unit_and_the_same_digits() -> None:
    unit = PLAIN.time_unit([18.5e-3, None, 3.118e-4])
    assert (unit.name, unit.number(18.5e-3), unit.number(3.118e-4)) == ("µs", "18 500", "312")
    assert unit.number(None) == ""
    assert PLAIN.time_unit([]).name == "ms"


def test_factors_shares_and_quantities() -> None:
    assert [ratio(x) for x in (0.963, 33.17, 138.9, None, float("nan"))] == ["0.96x", "33.2x", "139x", "", ""]
    assert [percent(x) for x in (0.5, 0.0996, 0.0994, 0.0)] == ["50 %", "10 %", "9.9 %", "0 %"]
    assert [quantity(x, "B/s") for x in (2.04e12, 12.0, 9.999e5)] == ["2.04 TB/s", "12 B/s", "1000 kB/s"]
    assert [quantity(x) for x in (7, 6.291e6)] == ["7", "6.29 M"]


def test_a_page_has_the_same_digits_in_better_type() -> None:
    assert PAGE.duration(3.118e-4) == "312\u202fµs"
    assert (PAGE.ratio(1234), PAGE.percent(0.5), PAGE.quantity(2e12, "B/s")) == (
        "1\u202f234×", "50\u202f%", "2\u202fTB/s",
    )  # fmt: skip
