"""`cupilot worker`, as a user starts it."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "executors"))
from dask_processes import TIMEOUT_S, line_with, other_version, running, scheduler

from cupilot.cli import main

WORKER = [sys.executable, "-m", "cupilot", "worker", "--slots", "2", "--scheduler"]


def children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(number) for listed in tasks for number in listed.read_text().split()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_says_what_it_offers_and_leaves_no_process_behind(number: signal.Signals, tmp_path: Path) -> None:
    with scheduler() as address, running([*WORKER, address], {"TMPDIR": str(tmp_path)}) as worker:
        assert line_with(worker, "connected") == f"connected to {address}: 2 virtual slots"
        left = [os.pidfd_open(child) for child in children(worker.pid)]
        assert len(left) >= 2
        worker.send_signal(number)
        assert worker.wait(TIMEOUT_S) == (-number if number == signal.SIGKILL else 0)
        for child in left:
            assert select.select([child], [], [], TIMEOUT_S)[0], "a child is still there"
            os.close(child)
        assert worker.stdout is not None
        # Python's own process says something when its parent is killed
        assert worker.stdout.read() == "" or number == signal.SIGKILL


def test_one_of_another_version_ends_with_a_sentence(tmp_path: Path) -> None:
    other = other_version(tmp_path, "nvidia-cuda-nvdisasm", "99.1")
    with scheduler() as address, running([*WORKER, address]) as first:
        line_with(first, "connected")
        with running([*WORKER, address], other) as second:
            said = (
                f"cupilot: the cluster at {address} refuses this worker: it has nvidia-cuda-nvdisasm 99.1 instead of "
            )
            assert line_with(second, "cupilot:").startswith(said)
            assert second.wait(TIMEOUT_S) == 1


def test_virtual_devices_are_slots(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", "--scheduler", "tcp://127.0.0.1:1", "--device", "virtual:a100-80gb"]) == 2
    assert "--slots offers virtual ones" in capsys.readouterr().err
