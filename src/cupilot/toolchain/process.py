"""Runs a compiler: in a process group of its own, with a time limit for the whole group."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Finished:
    """A command that ended by itself; ``output`` is what it wrote to both streams."""

    status: int
    output: str


def run(command: Sequence[str | Path], cwd: Path, timeout_s: float) -> Finished | None:
    """Run to the end, or kill the whole group when the time is up and return None."""
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=max(timeout_s, 0))
    except subprocess.TimeoutExpired:
        return None
    finally:
        # also after an interrupt: nvcc's children would outlive it
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return Finished(process.returncode, output.decode(errors="replace"))
