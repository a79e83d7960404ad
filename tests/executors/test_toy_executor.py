"""An executor in a folder of its own, through the command line: nothing of the product was changed for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "softmax.py"
FEW = ("--population", "2", "--generations", "1", "--max-evaluations", "3", "--no-pool")


def cupilot(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent / "toy")}
    command = (sys.executable, "-m", "cupilot", *words)
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def test_a_search_runs_on_it_and_ends_as_without_it(tmp_path: Path) -> None:
    for name, options in (("local", ()), ("toy", ("--executor", "toy"))):
        done = cupilot(tmp_path, "optimize", str(EXAMPLE), "--out", name, *FEW, *options)
        assert done.returncode == 0, done.stdout + done.stderr
    requests = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("local", "toy")]
    assert len(requests) == results[1]["evaluations"] > 1
    assert {request["device"] for request in requests} == {"virtual:a100-80gb"}
    assert (tmp_path / "toy" / "best.cu").read_text() == (tmp_path / "local" / "best.cu").read_text()
    assert results[1]["best"]["timing"] == results[0]["best"]["timing"]


def test_an_unknown_executor_is_one_sentence(tmp_path: Path) -> None:
    done = cupilot(tmp_path, "optimize", str(EXAMPLE), "--executor", "cluster")
    assert done.returncode == 2
    assert done.stderr == "cupilot: unknown executor 'cluster'; known executors are dask, local, ray, toy\n"
    assert not (tmp_path / "runs").exists()
