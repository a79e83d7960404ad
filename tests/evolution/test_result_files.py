from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cupilot.errors import StoreError
from cupilot.evolution.result import evaluation_report, moves_text, replace_file, run_report, to_json
from cupilot.records import Access, Check, Failure, Finding, Strategy
from cupilot.testing.samples import EVALUATION, FAILED, RESULT, STRATEGY


def test_an_evaluation_for_programs() -> None:
    report = json.loads(to_json(evaluation_report(EVALUATION)))
    assert report["correct"] is True
    assert report["failure"] is None
    assert report["speedup"] == pytest.approx(2.0)
    assert report["timing"]["time_s"] == 5e-6
    assert report["timing"]["breakdown"] == [["dram", 4e-6], ["launch", 1e-6]]
    assert report["baseline"]["source"] == "modelled"
    assert report["profile"]["launches"][0]["kernel"] == "relu"
    assert report["checks"][0]["inputs"] == "normal"
    assert (report["kernel"], report["precision"]) == (EVALUATION.kernel, "fp32")


def test_a_failed_evaluation_for_programs() -> None:
    report = evaluation_report(FAILED)
    assert report["correct"] is False
    assert report["failure"] == {
        "stage": "verify",
        "kind": "wrong-result",
        "message": "element 7 is 1.5, the reference has 2.5",
        "findings": [],
    }
    assert report["timing"] is report["speedup"] is report["profile"] is None


def test_findings_are_objects_for_programs() -> None:
    access = Access("write", "global", 4, 4352, buffer_bytes=256, offset=256)
    finding = Finding("out-of-bounds", str(access), "relu", "kernel.cu", 6, (3, 0, 0), (1, 0, 0), 32, access)
    evaluation = replace(FAILED, failure=Failure.of("run", (finding,), "a log"))
    failure = json.loads(to_json(evaluation_report(evaluation)))["failure"]
    assert failure["message"] == str(finding)
    assert failure["findings"] == [
        {
            "kind": "out-of-bounds", "text": str(access), "kernel": "relu", "file": "kernel.cu", "line": 6,
            "block": [3, 0, 0], "thread": [1, 0, 0], "threads": 32, "other": None,
            "access": {"kind": "write", "space": "global", "bytes": 4, "address": 4352, "buffer_bytes": 256,
                       "offset": 256, "freed": False},
        }
    ]  # fmt: skip


def test_a_run_for_programs() -> None:
    report = run_report(replace(RESULT, best=replace(RESULT.best, strategy=STRATEGY)))
    wanted = "task device agents seed first best evaluations failures stopped folder strategy"
    assert set(report) >= set(wanted.split())
    assert "vector-access(width=4)" in report["strategy"]
    assert report["first"]["correct"]


def test_numbers_that_json_lacks_become_null() -> None:
    evaluation = replace(EVALUATION, checks=(Check("normal", "4", float("nan"), float("inf")),))
    report = json.loads(to_json(evaluation_report(evaluation)))
    assert (report["checks"][0]["error"], report["checks"][0]["allowed"]) == (None, None)


def test_moves_on_one_line_do_not_depend_on_order_and_reasons() -> None:
    other = Strategy(tuple(replace(move, reason="another") for move in reversed(STRATEGY.moves)))
    assert moves_text(STRATEGY) == moves_text(other) == "unroll(factor=2, tail=true) + vector-access(width=4)"
    assert moves_text(Strategy()) == ""


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        replace_file(tmp_path / "missing" / "best.cu", "text")
