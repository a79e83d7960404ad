"""Figures over a suite, and the files they are kept in."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from cupilot.errors import DataError
from cupilot.evolution.bench_results import (
    COLUMNS,
    RESULTS_CSV,
    RESULTS_JSON,
    BenchRow,
    by_category,
    figures,
    read_bench_rows,
    write_bench_rows,
)

ONE = BenchRow(
    1, "1_one", "product", True, 2.0, 4.0, 2.0, "fp32", 0.5, 12, "kernels/1_one.cu", "recorded", "modelled",
    recorded_ms=(("pytorch", 4.0), ("cupilot", 1.0)),
)  # fmt: skip
TWO = replace(ONE, problem=2, name="2_two", category="loss", time_ms=8.0, speedup=0.5, roofline_fraction=0.25)
FAILED = replace(
    ONE, problem=3, correct=False, time_ms=None, speedup=None, roofline_fraction=None, evaluations=0, why="no recipe",
)  # fmt: skip


def test_figures_are_over_what_there_is() -> None:
    found = figures([ONE, TWO, FAILED])
    assert (found.problems, found.correct) == (3, 2)
    assert found.fast == pytest.approx((1 / 3, 1 / 3, 0.0))  # a speed-up of just 2 is not above 2
    assert found.mean == pytest.approx(1.25)
    assert found.geometric == pytest.approx(1.0)
    assert found.median == pytest.approx(1.25)
    assert found.roofline == pytest.approx(0.375)


def test_figures_of_nothing_are_no_numbers() -> None:
    found = figures([FAILED])
    assert math.isnan(found.geometric)
    assert found.fast == (0.0, 0.0, 0.0)


def test_times_of_kernels_that_compute_something_else_do_not_count() -> None:
    assert ONE.recorded_speedup("cupilot") == 4.0
    assert replace(ONE, broken=("cupilot",)).recorded_speedup("cupilot") is None
    assert ONE.recorded_speedup("ai_cuda_engineer") is None


def test_categories_keep_their_order() -> None:
    assert {name: [each.problem for each in held] for name, held in by_category([ONE, TWO, FAILED]).items()} == {
        "product": [1, 3],
        "loss": [2],
    }


def test_results_can_be_read_again(tmp_path: Path) -> None:
    assert read_bench_rows(tmp_path) == ()
    write_bench_rows(tmp_path, [ONE, TWO, FAILED])
    assert read_bench_rows(tmp_path) == (ONE, TWO, FAILED)
    with (tmp_path / RESULTS_CSV).open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert (rows[0]["correct"], rows[0]["speedup"], rows[2]["time_ms"]) == ("true", "2", "")


def test_a_damaged_file_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / RESULTS_JSON).write_text("{")
    with pytest.raises(DataError, match="is not results of a benchmark"):
        read_bench_rows(tmp_path)
