"""The report of a benchmark over a suite."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import HOSTILE
from made_suite import BROKEN, FAILED, ONE, STANDINGS, write_suite
from page_reader import read_page

from cupilot.errors import UserError
from cupilot.evolution.bench_results import others_figures, write_bench_rows
from cupilot.report import suite_report
from cupilot.report.suite import OURS, suite_view


def test_rows_figures_and_chart() -> None:
    view = suite_view("bench", STANDINGS)
    assert view.systems == ("AI CUDA Engineer", "cuPilot")
    assert (view.whole.problems, view.whole.correct, view.broken) == (4, 3, 1)
    assert view.categories == ("product", "loss")
    titles = [title for title, _ in view.comparisons]
    assert titles[:3] == ["product", "loss", "all recorded"]
    assert "cuPilot, where right" in titles
    assert view.chart is not None
    dots = json.loads(view.chart.spec)["datasets"]["dots"]
    assert [(dot["problem"], dot["x"]) for dot in dots if dot["system"] == "cuPilot"] == [
        (ONE.name, 4.0), ("2_two", 4.0), (FAILED.name, 4.0),
    ], "a wrong kernel's time means nothing"  # fmt: skip
    assert len([dot for dot in dots if dot["system"] == OURS]) == 3


def test_others_are_right_where_they_are_compared() -> None:
    assert others_figures([ONE, FAILED], "cupilot").correct == 2


def test_wrong_published_kernels_are_marked(tmp_path: Path) -> None:
    page = read_page(suite_report(write_suite(tmp_path)))
    rows = page.all("tr", data_category="product")
    marked = [row for row in rows if "wrong" in row.text]
    assert [BROKEN.name in row.text for row in marked] == [True]
    failed = next(row for row in page.all("tr", class_="failed"))
    assert "no recipe knows it" in failed.text
    assert page.all("h1")[0].text == tmp_path.name


def test_a_benchmark_that_has_only_begun(tmp_path: Path) -> None:
    write_bench_rows(tmp_path, [FAILED])
    page = read_page(suite_report(tmp_path))
    assert "0 of 1" in " ".join(page.by_id("summary").text.split())


def test_hostile_names(tmp_path: Path) -> None:
    write_bench_rows(tmp_path, [replace(ONE, name=HOSTILE, category=HOSTILE), replace(FAILED, why=HOSTILE)])
    page = read_page(suite_report(tmp_path))
    assert not page.all("img")
    assert len(page.all("script", type="")) == 0
    assert HOSTILE in page.by_id("problem-table").text


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no results"):
        suite_report(tmp_path)
