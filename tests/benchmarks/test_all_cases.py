"""What a run of all exploits says at its end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from all_cases import read, summary  # type: ignore[import-not-found]


def outcome(test: str, outcome: str = "passed", **facts: object) -> dict[str, Any]:
    return {"commit": "abc", "test": f"tests/test_x.py::{test}", "outcome": outcome, **facts}


def test_every_test_counts_once_and_ratios_are_sorted() -> None:
    found = [
        outcome("caught[a]"), outcome("caught[b]", "failed"), outcome("paid[c]", ratio="2.00"),
        outcome("paid[d]", ratio="0.66"), outcome("paid[e]"), outcome("paid[e]", "failed"),
    ]  # fmt: skip
    assert summary(found, 9) == [
        "5 of 9 have run",
        "caught: 1 passed",
        "caught: 1 failed",
        "paid: 2 passed",
        "paid: 1 failed",
        "FAILED tests/test_x.py::caught[b]",
        "FAILED tests/test_x.py::paid[e]",
        "0.66 of its neighbour's time: d",
        "2.00 of its neighbour's time: c",
        "2 ratios, 1 below 0.67",
    ]


def test_outcomes_of_two_commits_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    assert read(path, "abc") == []
    path.write_text(json.dumps(outcome("caught[a]")) + "\n")
    assert len(read(path, "abc")) == 1
    with pytest.raises(SystemExit, match="holds outcomes of abc, and this is abd"):
        read(path, "abd")
