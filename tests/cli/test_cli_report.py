"""``cupilot report`` on a run of the fake expert, and the mistakes that can be made with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

Cli = Callable[..., SimpleNamespace]


@pytest.fixture
def run(cli: Cli) -> Path:
    assert cli("optimize", "relu.py", "--out", "run", "--quiet").status == 0
    return Path("run")


def test_a_run_becomes_a_page(cli: Cli, run: Path) -> None:
    ran = cli("report", "run")
    assert (ran.status, ran.out) == (0, "report: run/report.html\n")
    text = (run / "report.html").read_text()
    assert "<h1>relu</h1>" in text
    assert "wrong-result" in text, "the failure of the fake expert's widest kernel"
    assert cli("report", "run", "--out", "other.html").status == 0
    assert Path("other.html").read_text() == text, "the same run, the same page"


def test_a_benchmark_becomes_a_page(cli: Cli, tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "1_one.py").write_text("")
    assert cli("bench", "level1", "--suite", str(suite), "--out", "bench").status == 0
    assert cli("report", "bench", "--out", "bench.html").status == 0
    assert "1_one" in Path("bench.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "there is no folder nowhere"),
        ((".",), "holds neither a run (run.sqlite) nor the results of a benchmark (results.json)"),
        ((".", "--out", "no/such/page.html"), "there is no folder"),
        ((".", "--out", "."), "is a folder"),
    ],
)
def test_mistakes(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    ran = cli("report", *arguments)
    assert ran.status == 2
    assert words in " ".join(ran.err.split())
    assert ran.err.count("\n") == 1
