"""The process that `cupilot.sandbox.tools` starts: gives up its rights, then runs the steps of a plan.

It leaves a file that says how each step ended.  Only what the plan names is started, without a shell.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cupilot.sandbox.confine import confine_tools

# address space that a tool reserves or maps beyond what it uses
MAPPED_BYTES = 4 << 30
LOG_BYTES = 1 << 20
NOT_STARTED = 127
BOUNDS = {
    signal.SIGXCPU: "used more processor time than it was given",
    signal.SIGXFSZ: "wrote a file that is too large",
}


def main(folder: Path) -> None:
    plan = json.loads((folder / ".steps.json").read_text())
    (folder / ".steps.json").unlink()
    os.chdir(folder)
    limit_self(plan)
    confine_tools(map(Path, plan["readable"]), (folder,))
    ended = run_all(plan["steps"], plan["at_once"])
    excess = next((BOUNDS[-e["status"]] for e in ended if e["status"] is not None and -e["status"] in BOUNDS), "")
    for step in ended:
        (folder / f".log-{step['name']}").unlink(missing_ok=True)
    (folder / ".ended.json").write_text(json.dumps({"steps": ended, "excess": excess}), encoding="utf-8")


def limit_self(plan: Mapping[str, Any]) -> None:
    """Each process by itself; what they use together is watched from outside."""
    whole = plan["memory_bytes"] + MAPPED_BYTES
    bounds = (
        (resource.RLIMIT_AS, whole), (resource.RLIMIT_FSIZE, plan["file_bytes"]),
        (resource.RLIMIT_CPU, plan["seconds"]), (resource.RLIMIT_CORE, 1),
    )  # fmt: skip
    for what, most in bounds:
        _, hard = resource.getrlimit(what)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (bound, bound))


def run_all(steps: Sequence[Mapping[str, Any]], at_once: int) -> list[dict[str, Any]]:
    """Several at a time, the first ones first.

    When a step fails, those after it in the list are given up, and those before it go on: so the failure that comes
    first in the list is found, whichever comes first in time.
    """
    places = {step["name"]: place for place, step in enumerate(steps)}
    waiting = list(steps)
    running: dict[int, Mapping[str, Any]] = {}
    ended: dict[str, dict[str, Any]] = {}
    last = len(steps)
    while waiting or running:
        for step in waiting[:]:
            if len(running) < at_once and all(name in ended for name in step["after"]):
                waiting.remove(step)
                begun = start(step)
                if isinstance(begun, int):
                    running[begun] = step
                else:
                    ended[step["name"]] = begun
        if running:
            number, code, used = os.wait4(-1, 0)
            if number in running:
                step = running.pop(number)
                ended[step["name"]] = end_of(step, os.waitstatus_to_exitcode(code), used)
        last = min((places[name] for name, end in ended.items() if end["status"]), default=last)
        waiting = [step for step in waiting if places[step["name"]] < last]
        for number, step in running.items():
            if places[step["name"]] > last:
                os.kill(number, signal.SIGKILL)
    return [_given_up(step, places, last) or ended[step["name"]] for step in steps]


def _given_up(step: Mapping[str, Any], places: Mapping[str, int], last: int) -> dict[str, Any] | None:
    if places[step["name"]] <= last:
        return None
    return {"name": step["name"], "status": None, "log": "", "cpu_s": 0.0}


def start(step: Mapping[str, Any]) -> int | dict[str, Any]:
    """The number of a new process, with nothing to read; how the step ended when there is no such program."""
    flags, log = os.O_WRONLY | os.O_CREAT | os.O_TRUNC, f".log-{step['name']}"
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, step["output"] or log, flags, 0o600),
    ]
    if step["output"]:
        actions.append((os.POSIX_SPAWN_OPEN, 2, log, flags, 0o600))
    else:
        actions.append((os.POSIX_SPAWN_DUP2, 1, 2))
    try:
        return os.posix_spawnp(step["command"][0], step["command"], step["environment"], file_actions=actions)
    except OSError as error:
        reason = f"{step['command'][0]} does not start: {error.strerror}\n"
        return {"name": step["name"], "status": 0 if step["optional"] else NOT_STARTED, "log": reason, "cpu_s": 0.0}


def end_of(step: Mapping[str, Any], status: int, used: resource.struct_rusage) -> dict[str, Any]:
    log = text_of(Path(f".log-{step['name']}"))
    forgiven = 0 if step["optional"] else status
    if status and step["optional"] and step["output"]:
        Path(step["output"]).unlink(missing_ok=True)
    return {"name": step["name"], "status": forgiven, "log": log, "cpu_s": used.ru_utime + used.ru_stime}


def text_of(path: Path) -> str:
    """The beginning and the end of a file."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size <= LOG_BYTES:
            return file.read().decode(errors="replace")
        first = file.read(LOG_BYTES // 2)
        file.seek(-LOG_BYTES // 2, os.SEEK_END)
        return f"{first.decode(errors='replace')}\n... {size} bytes ...\n{file.read().decode(errors='replace')}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
