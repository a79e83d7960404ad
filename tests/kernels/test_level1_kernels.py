"""The kernels found for level 1 of KernelBench, as ``kernels`` keeps them: whole, proven and repeatable."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from cupilot.cli import main
from cupilot.evaluation.proof import digest
from cupilot.tasks.suite import LEVEL1, open_suite

ROOT = Path(__file__).parents[2] / "kernels"
FOLDERS = {"fp32": ROOT / "level1", "tf32": ROOT / "level1-tf32", "fp16": ROOT / "level1-fp16"}
COLUMNS = ["problem", "name", "category", "correct", "time_ms", "baseline_ms", "speedup", "precision",
           "roofline_fraction", "evaluations", "kernel"]  # fmt: skip
# a stream, a row reduction; further families in the slow group
QUICK = (20, 48)
SLOW = {"fp32": (1, 6, 12, 15, 23, 33, 35, 40, 42, 50, 71, 77, 82, 89, 95, 97), "tf32": (1, 9, 14, 54, 66, 82),
        "fp16": (1, 6, 10, 15, 17, 50)}  # fmt: skip

each_precision = pytest.mark.parametrize("precision", FOLDERS)


def results(precision: str) -> dict[int, dict[str, str]]:
    with (FOLDERS[precision] / "results.csv").open(newline="") as file:
        return {int(row["problem"]): row for row in csv.DictReader(file)}


def claim(precision: str, row: dict[str, str]) -> Path:
    return (FOLDERS[precision] / row["kernel"]).with_suffix(".json")


@each_precision
def test_every_problem_has_a_row(precision):
    with (FOLDERS[precision] / "results.csv").open(newline="") as file:
        assert next(csv.reader(file))[: len(COLUMNS)] == COLUMNS
    wanted = {problem.number: problem.name for problem in open_suite(LEVEL1)}
    assert {number: row["name"] for number, row in results(precision).items()} == wanted
    assert all(row["precision"] == precision for row in results(precision).values())


@each_precision
def test_every_kernel_is_the_one_that_its_proof_is_of(precision):
    sources = {problem.number: problem.path.read_text(encoding="utf-8") for problem in open_suite(LEVEL1)}
    for number, row in results(precision).items():
        if row["correct"] != "true":
            continue
        report = json.loads(claim(precision, row).read_text(encoding="utf-8"))
        text = (FOLDERS[precision] / row["kernel"]).read_text(encoding="utf-8")
        assert report["proof"]["source"] == digest(text), row["name"]
        assert report["proof"]["task"] == digest(sources[number]), row["name"]
        assert float(row["time_ms"]) == pytest.approx(1e3 * report["timing"]["time_s"], rel=1e-3)
        assert report["timing"]["source"] == "modelled"
        assert report["device"] == "virtual:a100-80gb"


@pytest.mark.parametrize(("finer", "coarser"), [("fp32", "tf32"), ("fp32", "fp16")])
def test_a_coarser_precision_is_never_slower(finer, coarser):
    fine, coarse = results(finer), results(coarser)
    slower = {n: row["name"] for n, row in coarse.items() if float(row["time_ms"]) > 1.001 * float(fine[n]["time_ms"])}
    assert slower == {}


def confirm(precision: str, number: int) -> None:
    assert main(["verify", str(claim(precision, results(precision)[number]))]) == 0


@pytest.mark.parametrize("number", QUICK)
def test_a_sample_is_confirmed(number):
    confirm("fp32", number)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "number"), [(p, number) for p, numbers in SLOW.items() for number in numbers])
def test_a_larger_sample_is_confirmed(precision, number):
    confirm(precision, number)


def test_identical_files_are_stored_once() -> None:
    first: dict[bytes, Path] = {}
    for path in sorted(path for path in ROOT.rglob("*") if path.is_file() and not path.is_symlink()):
        same = first.setdefault(path.read_bytes(), path)
        assert same == path, f"{path} is {same} again: run benchmarks/link_kernels.py"
