"""A search on a cluster of two workers ends with the same best kernel as on this machine, also when one is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from dask_processes import TIMEOUT_S, line_with, running, scheduler

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "softmax.py")
CUPILOT = [sys.executable, "-m", "cupilot"]
SEARCH = [
    *CUPILOT,
    "optimize",
    EXAMPLE,
    "--population",
    "3",
    "--generations",
    "1",
    "--max-evaluations",
    "6",
    "--no-pool",
]
WORKER = [*CUPILOT, "worker", "--slots", "1", "--scheduler"]


def best(folder: Path) -> tuple[str, float]:
    """The best kernel, and its time."""
    result = json.loads((folder / "result.json").read_text())
    return (folder / "best.cu").read_text(), result["best"]["timing"]["time_s"]


def individuals(folder: Path) -> int:
    result = json.loads((folder / "result.json").read_text())
    return int(result["evaluations"])


def test_a_killed_worker_changes_nothing(tmp_path: Path) -> None:
    local = [*SEARCH, "--out", str(tmp_path / "local")]
    subprocess.run(local, check=True, capture_output=True, timeout=300)
    with scheduler() as address, running([*WORKER, address]) as first, running([*WORKER, address]) as second:
        for worker in (first, second):
            line_with(worker, "connected")
        remote = [*SEARCH, "--out", str(tmp_path / "remote"), "--executor", "dask", "--scheduler", address]
        with running(remote) as search:
            line_with(search, "plain kernel:")
            os.kill(first.pid, signal.SIGKILL)
            line_with(search, "stopped:")
            assert search.wait(TIMEOUT_S) == 0
    assert best(tmp_path / "remote") == best(tmp_path / "local")
    assert individuals(tmp_path / "remote") == individuals(tmp_path / "local")
