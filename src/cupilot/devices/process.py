"""Running untrusted code in a process group of its own, with limits, killed as a whole."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OUTPUT_LIMIT_BYTES = 1 << 20
FILE_LIMIT_BYTES = 16 << 30


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit status (negative: the signal), or a time-out."""

    status: int
    timed_out: bool
    output: str


def run_limited(command: Sequence[str], folder: Path, timeout_s: float, environment: Mapping[str, str]) -> Ended:
    """Run a command in ``folder`` and wait; whatever it started is gone afterwards."""
    log = folder / "output.txt"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
        timed_out = False
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            # the leader and everything it left running, also when we are interrupted ourselves
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    with log.open("rb") as source:
        output = source.read(OUTPUT_LIMIT_BYTES).decode(errors="replace")
    return Ended(process.returncode, timed_out, output)


def limit_self(timeout_s: float) -> None:
    """Limits that a worker sets on itself before it loads a candidate; they cannot be raised again."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT_BYTES, FILE_LIMIT_BYTES))
    # processor time of several threads adds up, so this is only a net below the wall-clock limit
    seconds = int(timeout_s * 8) + 60
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
