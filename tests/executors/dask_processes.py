"""Schedulers and workers as processes of their own, on this machine only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from cupilot.testing.executor import SCRIPTED

TIMEOUT_S = 60.0
# as cupilot worker does it, but for the evaluator
WORKER = """
import sys
from pathlib import Path
from cupilot.errors import MachineError
from cupilot.executors._offer import Offer
from cupilot.executors.dask import serve_workers
address, cache, evaluator = sys.argv[1:]
offers = [Offer(evaluator=evaluator, cache=Path(cache), sandbox="auto")]
try:
    serve_workers(address, offers, name="", tell=lambda text: print(text, flush=True))
except MachineError as error:
    sys.exit(f"error: {error}")
"""
Process = subprocess.Popen[str]


@contextmanager
def running(command: list[str], environment: Mapping[str, str] | None = None) -> Iterator[Process]:
    """A process whose output, of both streams, can be read line by line; it is ended at the end."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)


def line_with(process: Process, word: str) -> str:
    """The next line with this word in it; a process that ends without it has failed."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if word in line:
            return line.strip()
    raise AssertionError(f"the process ended with status {process.wait()} and did not say {word!r}: {''.join(said)}")


@contextmanager
def scheduler(*options: str, port: int = 0, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """`dask scheduler`; gives its address."""
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port)]
    with running([*command, "--dashboard-address", "127.0.0.1:0", *options], environment) as process:
        yield line_with(process, "Scheduler at:").rpartition(" ")[2]


def worker(
    address: str, cache: Path, evaluator: str = SCRIPTED, environment: Mapping[str, str] | None = None
) -> AbstractContextManager[Process]:
    """A worker with one slot, which says when it is connected."""
    return running([sys.executable, "-c", WORKER, address, str(cache), evaluator], environment)


def other_version(folder: Path, package: str, version: str) -> dict[str, str]:
    """An environment in which a package is installed in another version."""
    information = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return {"PYTHONPATH": os.pathsep.join((str(folder), *filter(None, sys.path)))}
