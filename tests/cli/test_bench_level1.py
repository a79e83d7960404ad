"""The benchmark over a suite, with everything below the command line replaced."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import cupilot.expert
import cupilot.runs.bench
from cupilot.cli.bench_level1 import show
from cupilot.cli.terminal import Terminal
from cupilot.errors import UnmatchedTask
from cupilot.evolution.bench_results import BenchRow
from cupilot.evolution.store import open_store
from cupilot.records import Kernel

Cli = Callable[..., Any]


@pytest.fixture
def suite(fakes: None, tmp_path: Path) -> str:
    folder = tmp_path / "suite"
    folder.mkdir()
    for name in ("1_one.py", "2_two.py"):
        (folder / name).write_text("")
    return str(folder)


def rows(out: str = "out") -> dict[str, dict[str, str]]:
    with (Path(out) / "results.csv").open() as file:
        return {row["problem"]: row for row in csv.DictReader(file)}


def test_every_problem_has_a_row_a_kernel_and_a_claim(cli: Cli, suite: str) -> None:
    ran = cli("bench", "level1", "--suite", suite, "--out", "out", "--budget", "20")
    assert ran.status == 0
    assert set(rows()) == {"1", "2"}
    row = rows()["2"]
    assert (row["name"], row["correct"], row["time_ms"], row["baseline_ms"], row["speedup"]) == (
        "2_two", "true", "0.2", "0.5", "2.5",
    )  # fmt: skip
    assert (Path("out") / row["kernel"]).read_text() == "// width 4\n"
    claim = json.loads((Path("out") / "kernels" / "2_two.json").read_text())
    assert claim["repeat"]["kernel"]["source"] == "// width 4\n"
    assert claim["proof"]["seed"] is not None
    assert "PyTorch modelled, the others" in ran.out


def test_a_budget_is_kept(cli: Cli, suite: str) -> None:
    cli("bench", "level1", "--suite", suite, "--out", "out", "--only", "1", "--budget", "2")
    assert [row["evaluations"] for row in rows().values()] == ["2"]


def test_results_are_not_overwritten_and_can_be_gone_on_with(cli: Cli, suite: str) -> None:
    cli("bench", "level1", "--suite", suite, "--out", "out", "--only", "2")
    again = cli("bench", "level1", "--suite", suite, "--out", "out")
    assert again.status == 2
    assert "--resume" in again.err
    more = cli("bench", "level1", "--suite", suite, "--out", "out", "--resume")
    assert more.status == 0
    assert set(rows()) == {"1", "2"}
    assert more.out.count("2_two: ") == 0


def test_a_stopped_search_goes_on_where_it_was(cli: Cli, suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Any, brief: Any, rng: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cupilot.expert.Expert, "cross", interrupt)
        ran = cli("bench", "level1", "--suite", suite, "--out", "out", "--only", "1")
    assert ran.status == 1
    assert "--resume continues" in ran.out
    assert not (Path("out") / "results.csv").exists()
    store = open_store(Path("out/runs/1_one"))
    before = len(list(store.individuals()))
    store.close()
    assert before == 3
    assert cli("bench", "level1", "--suite", suite, "--out", "out", "--only", "1", "--resume").status == 0
    assert rows()["1"]["time_ms"] == "0.2"


def test_a_problem_without_a_recipe_is_a_row_that_says_why(
    cli: Cli, suite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(self: Any, brief: Any) -> Kernel:
        raise UnmatchedTask("the expert has no recipe for it")

    monkeypatch.setattr(cupilot.expert.Expert, "generate", unknown)
    ran = cli("bench", "level1", "--suite", suite, "--out", "out")
    assert ran.status == 1
    assert "1_one: no kernel: the expert has no recipe for it" in ran.out
    assert rows()["1"]["correct"] == "false"


STANDING = BenchRow(
    1, "1_a_name_that_is_much_too_long_for_a_terminal_that_is_not_very_wide", "product", True, 2.0, 4.0, 2.0, "fp32",
    0.5, 12, "kernels/1.cu", "recorded", "modelled", roofline_ms=1.0, recorded_ms=(("pytorch", 4.0), ("cupilot", 1.0)),
)  # fmt: skip


@pytest.mark.parametrize("width", [80, 100])
def test_a_terminal_that_is_not_wide_gets_fewer_columns_and_is_told(width: int) -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=width, color_system=None)
    show([STANDING], Terminal(console=console), "a GPU")
    table = text.getvalue().partition("speed-up over PyTorch")[0]
    # whole, and with where they are from
    assert all(cell in table for cell in ("2 ms modelled", "4 ms recorded", "2.00x", "50%"))
    assert "evaluated" not in table
    figures = text.getvalue().partition("speed-up over PyTorch")[2]
    assert all(name in figures for name in ("correct", "fast_1", "geomean", "roofline"))
    assert "problems: " not in figures, "a table at any width that is usual"
    assert "a wider terminal shows more columns; results.csv has the rest" in table


def test_a_wide_terminal_and_a_pipe_get_all_columns() -> None:
    for live, width in ((True, 240), (False, 80)):
        text = io.StringIO()
        console = Console(file=text, force_terminal=live, width=width, color_system=None)
        show([STANDING], Terminal(console=console), "a GPU")
        assert "evaluated" in text.getvalue()
        assert "cuPilot" in text.getvalue()
        assert "wider terminal" not in text.getvalue()


def test_what_precision_makes_no_difference_to_is_reused(cli: Cli, suite: str) -> None:
    cli("bench", "level1", "--suite", suite, "--out", "out", "--only", "2")
    again = cli("bench", "level1", "--suite", suite, "--out", "coarse", "--precision", "tf32", "--reuse", "out")
    assert again.status == 0
    assert {row["precision"] for row in rows("coarse").values()} == {"tf32"}
    assert rows("coarse")["2"]["kernel"] == rows()["2"]["kernel"]
    assert (Path("coarse") / rows("coarse")["2"]["kernel"]).is_file()
    # one was searched, the other was not
    assert [folder.name for folder in (Path("coarse") / "runs").iterdir()] == ["1_one"]


def test_a_faster_kernel_of_another_precision_is_taken(cli: Cli, suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupilot.runs.bench, "sums_products", lambda task: True)
    cli("bench", "level1", "--suite", suite, "--out", "out", "--only", "2", "--budget", "20")
    fewer = ("--out", "coarse", "--only", "2", "--budget", "1", "--precision", "tf32")
    cli("bench", "level1", "--suite", suite, *fewer, "--reuse", "out")
    row = rows("coarse")["2"]
    assert (row["time_ms"], row["evaluations"], row["precision"]) == (rows()["2"]["time_ms"], "2", "tf32")
    assert (Path("coarse") / row["kernel"]).read_text() == (Path("out") / rows()["2"]["kernel"]).read_text()


def test_evaluated_anew_a_kernel_gives_way_to_a_faster_one(
    cli: Cli, suite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cupilot.runs.bench, "sums_products", lambda task: True)
    cli("bench", "level1", "--suite", suite, "--out", "out", "--only", "2", "--budget", "20")
    coarse = ("--out", "coarse", "--budget", "1", "--precision", "tf32")
    cli("bench", "level1", "--suite", suite, *coarse)
    before = rows("coarse")
    assert cli("bench", "level1", "--suite", suite, *coarse, "--again", "--reuse", "out").status == 0
    assert rows("coarse")["1"] == before["1"]  # nobody else has it
    assert rows("coarse")["2"]["time_ms"] == rows()["2"]["time_ms"] != before["2"]["time_ms"]


def test_reusing_nothing_is_a_mistake(cli: Cli, suite: str) -> None:
    ran = cli("bench", "level1", "--suite", suite, "--out", "out", "--reuse", "nowhere")
    assert ran.status == 2
    assert "nowhere holds no results" in ran.err


def test_kernels_are_evaluated_anew_where_they_are(cli: Cli, suite: str) -> None:
    cli("bench", "level1", "--suite", suite, "--out", "out", "--budget", "20")
    before, kernel = rows(), Path("out") / rows()["2"]["kernel"]
    kernel.write_text("// width 1\n")
    again = cli("bench", "level1", "--suite", suite, "--out", "out", "--again", "--only", "2")
    assert again.status == 0
    assert "was 200 µs" in again.out
    assert rows()["1"] == before["1"]
    assert float(rows()["2"]["time_ms"]) > float(before["2"]["time_ms"])
    assert rows()["2"]["evaluations"] == before["2"]["evaluations"]
    claim = json.loads(kernel.with_suffix(".json").read_text())
    assert claim["repeat"]["kernel"]["source"] == kernel.read_text() == "// width 1\n"


def test_where_there_are_no_kernels_none_is_evaluated_anew(cli: Cli, suite: str) -> None:
    ran = cli("bench", "level1", "--suite", suite, "--out", "out", "--again")
    assert ran.status == 2
    assert "holds none" in ran.err


def test_a_kernel_that_no_longer_passes_keeps_its_place(cli: Cli, suite: str) -> None:
    cli("bench", "level1", "--suite", suite, "--out", "out", "--budget", "20")
    kernel = Path("out") / rows()["2"]["kernel"]
    right = kernel.read_text()
    kernel.write_text("// width 8\n")
    failed = cli("bench", "level1", "--suite", suite, "--out", "out", "--again", "--only", "2")
    assert failed.status == 1
    assert "wrong-result" in failed.out
    assert (rows()["2"]["correct"], rows()["2"]["kernel"]) == ("false", "kernels/2_two.cu")
    kernel.write_text(right)
    assert cli("bench", "level1", "--suite", suite, "--out", "out", "--again", "--only", "2").status == 0
