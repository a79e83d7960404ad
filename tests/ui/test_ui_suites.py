"""Benchmarks in the live page, without a browser: what is found, read and sent."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from ui_site import begin_run, make_suite, row, site

from cupilot.evolution.bench_results import RESULTS_JSON
from cupilot.report import suite_report
from cupilot.ui.suites import SuitesFolder, SuiteSummary


def found(root: Path, name: str) -> SuiteSummary:
    summary = SuitesFolder(root).summary(name)
    assert summary is not None
    return summary


def test_a_benchmark_at_a_glance(tmp_path: Path) -> None:
    make_suite(tmp_path / "level1", row(1, 2.0), row(2, 8.0), row(3, None))
    summary = found(tmp_path, "level1")
    assert (summary.title, summary.problems, summary.correct) == ("level1", 3, 2)
    assert summary.speedup == pytest.approx(4.0)
    assert summary.sources == ("modelled", "recorded")
    assert summary.holds("level1/runs/1_relu")
    assert not summary.holds("level10/runs/1_relu")


def test_all_are_found_the_folder_itself_included(tmp_path: Path) -> None:
    for number, name in enumerate((".", "one", "a/two", ".hidden/three", "a/b/c/d/e/too-deep")):
        make_suite(tmp_path / name, row(1))
        os.utime(tmp_path / name / RESULTS_JSON, (1000 - number, 1000 - number))
    summaries = SuitesFolder(tmp_path).summaries()
    assert [(each.name, each.title) for each in summaries] == [("", tmp_path.name), ("one", "one"), ("a/two", "a/two")]


def test_results_are_read_again_when_they_were_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cupilot.ui import suites

    reads = []
    monkeypatch.setattr(
        suites, "read_bench_rows", lambda folder, read=suites.read_bench_rows: reads.append(1) or read(folder)
    )
    make_suite(tmp_path / "suite", row(1))
    folder = SuitesFolder(tmp_path)
    assert [folder.summaries()[0].problems for _ in range(2)] == [1, 1]
    assert reads == [1]
    make_suite(tmp_path / "suite", row(1), row(2))
    assert folder.summaries()[0].problems == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"results": [{}]}', "\udc80"])
def test_results_that_cannot_be_read_say_why(tmp_path: Path, text: str) -> None:
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / RESULTS_JSON).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert "results.json" in found(tmp_path, "suite").why
    with site(tmp_path) as opened:
        assert "results.json" in opened.get("/").text
        assert "results.json" in opened.get("/suite/suite").text
        assert "nothing to report yet: " in opened.get("/suite-report/suite").text


def test_what_is_a_link_out_of_the_folder_is_not_there(tmp_path: Path) -> None:
    make_suite(tmp_path / "elsewhere", row(1))
    root = tmp_path / "runs"
    (root / "suite").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path / "elsewhere")
    (root / "suite" / RESULTS_JSON).symlink_to(tmp_path / "elsewhere" / RESULTS_JSON)
    (root / RESULTS_JSON).symlink_to(tmp_path / "elsewhere" / RESULTS_JSON)
    suites = SuitesFolder(root)
    assert suites.summaries() == ()
    assert [suites.summary(name) for name in ("", "link", "suite", "..", "../elsewhere")] == [None] * 5


def test_the_report_is_the_one_that_the_command_writes(tmp_path: Path) -> None:
    make_suite(tmp_path / "suite", row(1))
    make_suite(tmp_path, row(2))
    with site(tmp_path) as opened:
        for name in ("suite", ""):
            answer = opened.get(f"/suite-report/{name}")
            assert answer.text == suite_report(tmp_path / name)
            assert "sandbox" in answer.headers["content-security-policy"]


def test_runs_of_a_benchmark_are_linked_from_it(tmp_path: Path) -> None:
    make_suite(tmp_path / "suite", row(1))
    with closing(begin_run(tmp_path / "other")), site(tmp_path) as opened:
        page = opened.get("/suite/suite").text
        assert '<a href="/run/suite/runs/1_relu">' in page
        assert "/run/other" not in page
        assert opened.get("/run/suite/runs/1_relu").status == 200
        assert '<a href="/suite/suite">suite</a>' in opened.get("/").text


def test_without_a_benchmark_nothing_is_said_of_any(tmp_path: Path) -> None:
    with site(tmp_path) as opened:
        assert "Benchmark" not in opened.get("/").text
        assert opened.get("/suite/").status == opened.get("/suite-report/").status == 404
