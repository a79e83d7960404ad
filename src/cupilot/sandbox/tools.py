"""Runs compilers and other tools on a candidate's source: some steps, one confined process tree.

A source can make a compiler read any file (``#include``, ``.incbin``), and use up memory, time and disk.  So all steps
of a build run below one process that has given up its rights (`cupilot.sandbox.tool_runner`), through bubblewrap where
that is usable: they read the places named and nothing else, write one folder, have no network, and their memory,
processes, files and time are bounded.  Steps that do not depend on each other run at the same time.

A tool that exceeds a bound, and a step that fails, are values; only a sandbox that does not work is an exception.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import cupilot
from cupilot.errors import MachineError
from cupilot.sandbox.bubblewrap import AUTO, chosen, run_boxed
from cupilot.sandbox.confine import trusted_places
from cupilot.sandbox.process import Ended, Limits

PLAN, ENDED = ".steps.json", ".ended.json"
SYSTEM_FOLDERS = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
"""What every program needs to start: the system's libraries; no user has files there."""


def _most_memory() -> int:
    return min(4 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


TOOL_LIMITS = Limits(memory_bytes=_most_memory(), tasks=48, output_bytes=8 << 20, answer_bytes=1 << 20)
FILE_BYTES = 1 << 30
LEAST_ROOM_BYTES = 1 << 16


@dataclass(frozen=True)
class Step:
    """One command, without a shell.

    It starts when the steps in ``after`` have succeeded.  What it prints goes into ``output``, a file of the folder, if
    that is given, and into the log otherwise.  An ``optional`` step may fail.
    """

    name: str
    command: tuple[str, ...]
    after: tuple[str, ...] = ()
    output: str = ""
    optional: bool = False
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class StepEnded:
    """``status`` is negative for a signal; None when the step was not started or was ended with the others."""

    name: str
    status: int | None
    log: str = ""
    cpu_s: float = 0.0


@dataclass(frozen=True)
class ToolsEnded:
    """What became of all steps: a time-out, a limit that was exceeded (in words), or each step's end."""

    steps: tuple[StepEnded, ...] = ()
    timed_out: bool = False
    excess: str = ""
    cpu_s: float = 0.0

    @property
    def failed(self) -> StepEnded | None:
        """The first step that failed, in the order in which they were given."""
        return next((step for step in self.steps if step.status), None)

    @property
    def log(self) -> str:
        return "".join(step.log for step in self.steps)

    def of(self, name: str) -> StepEnded:
        return next(step for step in self.steps if step.name == name)


def run_tools(
    steps: Sequence[Step], folder: Path, readable: Sequence[Path], timeout_s: float, *,
    sandbox: str = AUTO, limits: Limits = TOOL_LIMITS, environment: Mapping[str, str] | None = None,
) -> ToolsEnded:  # fmt: skip
    """Run the steps in ``folder``, the only place they can write; all their processes are gone afterwards.

    Raises `OSError` when the folder's disk is full, which is not the source's fault.
    """
    folder = folder.resolve()
    places = tuple(dict.fromkeys((*map(Path, SYSTEM_FOLDERS), *readable)))
    variables = {"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder), "LC_ALL": "C.UTF-8"}
    variables |= environment or {}
    plan = {
        "steps": [{**asdict(step), "environment": {**variables, **dict(step.environment)}} for step in steps],
        "readable": [str(place) for place in places],
        "memory_bytes": limits.memory_bytes, "file_bytes": FILE_BYTES, "seconds": int(timeout_s) + 2,
        "at_once": len(os.sched_getaffinity(0)),
    }  # fmt: skip
    (folder / PLAN).write_text(json.dumps(plan))
    command = (sys.executable, "-P", "-m", "cupilot.sandbox.tool_runner", str(folder))
    own = {"PYTHONPATH": str(Path(cupilot.__file__).parents[1])}
    ended = run_boxed(
        chosen(sandbox).program, command, folder, max(timeout_s, 0.0), own, limits,
        visible=(*places, *_python()),
    )  # fmt: skip
    if not (folder / ENDED).is_file() or (folder / ENDED).stat().st_size == 0:
        _refuse_full_disk(folder)
    told = _read(folder / ENDED, ended)
    if told.failed is not None:  # whose reason may have found no room either
        _refuse_full_disk(folder)
    return told


def _refuse_full_disk(folder: Path) -> None:
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < LEAST_ROOM_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def _python() -> tuple[Path, ...]:
    """What the runner itself needs before it has given up its rights."""
    program = Path(sys.executable)
    around = (program.parent, program.parent.parent / "pyvenv.cfg", program.resolve().parent)
    system = ("/dev", "/proc", "/sys")
    return (*(place for place in trusted_places() if not str(place).startswith(system)), *around)


def _read(path: Path, ended: Ended) -> ToolsEnded:
    if ended.timed_out or ended.excess:
        return ToolsEnded(timed_out=ended.timed_out, excess=ended.excess)
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
        steps = tuple(StepEnded(**step) for step in told["steps"])
        return ToolsEnded(steps, excess=told["excess"], cpu_s=told["cpu_s"])
    except (OSError, ValueError, TypeError, KeyError):
        reason = ended.output.rstrip().rpartition("\n")[2] or f"status {ended.status}"
        raise MachineError(f"the confined compiler could not be started: {reason}") from None
