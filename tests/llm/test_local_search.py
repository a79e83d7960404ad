"""A whole search with the small model: twenty generations, whatever it answers (see benchmarks/local_llm.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_local_server import running, weights  # noqa: F401 - fixtures

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "local_llm.py"

pytestmark = [pytest.mark.local_llm, pytest.mark.slow]


def test_twenty_generations_without_a_crash_or_a_leak(running) -> None:  # type: ignore[no-untyped-def]  # noqa: F811
    ended = subprocess.run(
        [sys.executable, str(BENCHMARK), running.url], capture_output=True, text=True, check=False, timeout=3600
    )
    assert ended.stdout, ended.stderr
    report = json.loads(ended.stdout.splitlines()[-1])
    assert (report["faults"], ended.returncode) == ([], 0), ended.stderr
    assert report["generations"] == 20
    assert report["calls"] >= 20
    assert report["best_s"] <= report["plain_s"]
