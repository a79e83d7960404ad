"""The kernels found for level 1 of KernelBench, as ``kernels/level1`` keeps them: whole, proven and repeatable."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from cupilot.cli import main
from cupilot.evaluation.proof import digest
from cupilot.tasks.suite import LEVEL1, open_suite

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "kernels" / "level1"
COLUMNS = ["problem", "name", "category", "correct", "time_ms", "baseline_ms", "speedup", "precision",
           "roofline_fraction", "evaluations", "kernel"]  # fmt: skip
# a stream, a row reduction, a loss; further families in the slow group
QUICK = (20, 48)
SLOW = (1, 6, 12, 15, 23, 33, 40, 42, 50, 71, 77, 82, 89, 95, 97)


def results() -> dict[int, dict[str, str]]:
    with (FOLDER / "results.csv").open(newline="") as file:
        return {int(row["problem"]): row for row in csv.DictReader(file)}


def claim(row: dict[str, str]) -> Path:
    return (FOLDER / row["kernel"]).with_suffix(".json")


def test_every_problem_has_a_row():
    with (FOLDER / "results.csv").open(newline="") as file:
        assert next(csv.reader(file))[: len(COLUMNS)] == COLUMNS
    wanted = {problem.number: problem.name for problem in open_suite(LEVEL1)}
    assert {number: row["name"] for number, row in results().items()} == wanted
    assert all(row["precision"] == "fp32" for row in results().values())


def test_every_kernel_is_the_one_that_its_proof_is_of():
    sources = {problem.number: problem.path.read_text(encoding="utf-8") for problem in open_suite(LEVEL1)}
    for number, row in results().items():
        if row["correct"] != "true":
            continue
        report = json.loads(claim(row).read_text(encoding="utf-8"))
        assert report["proof"]["source"] == digest((FOLDER / row["kernel"]).read_text(encoding="utf-8")), row["name"]
        assert report["proof"]["task"] == digest(sources[number]), row["name"]
        assert float(row["time_ms"]) == pytest.approx(1e3 * report["timing"]["time_s"], rel=1e-3)
        assert report["timing"]["source"] == "modelled"
        assert report["device"] == "virtual:a100-80gb"


def confirm(number: int) -> None:
    assert main(["verify", str(claim(results()[number]))]) == 0


@pytest.mark.parametrize("number", QUICK)
def test_a_sample_is_confirmed(number):
    confirm(number)


@pytest.mark.slow
@pytest.mark.parametrize("number", SLOW)
def test_a_larger_sample_is_confirmed(number):
    confirm(number)
