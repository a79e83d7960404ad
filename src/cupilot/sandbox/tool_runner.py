"""The process that `cupilot.sandbox.tools` starts: gives up its rights, then runs the steps of a plan.

It leaves a file that says how each step ended.  Only what the plan names is started, without a shell.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cupilot.sandbox.confine import confine_tools

# address space that a tool reserves or maps beyond what it uses
MAPPED_BYTES = 4 << 30
LOG_BYTES = 1 << 18
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
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu_s = sum(use.ru_utime + use.ru_stime for use in used)
    told = json.dumps({"steps": ended, "excess": excess, "cpu_s": cpu_s})
    (folder / ".ended.json").write_text(told, encoding="utf-8")


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


class Running:
    """A step under way, and what it has printed."""

    def __init__(self, step: Mapping[str, Any]) -> None:
        """Raises `OSError` when there is no such program."""
        self.step = step
        self.output, far_end = os.pipe()
        self._first = self._last = b""
        self._total = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        actions: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, far_end, 2),
            (os.POSIX_SPAWN_OPEN, 1, step["output"], flags, 0o600) if step["output"] else (os.POSIX_SPAWN_DUP2, 2, 1),
        ]
        try:
            command = step["command"]
            self.number = os.posix_spawnp(command[0], command, step["environment"], file_actions=actions)
        except OSError:
            os.close(self.output)
            raise
        finally:
            os.close(far_end)

    def take(self) -> bool:
        """Take what is there; False at the end."""
        data = os.read(self.output, LOG_BYTES)
        room = LOG_BYTES - len(self._first)
        self._first += data[:room]
        self._last = (self._last + data[room:])[-LOG_BYTES:]
        self._total += len(data)
        return bool(data)

    def log(self) -> str:
        left_out = self._total - len(self._first) - len(self._last)
        middle = f"\n... {left_out} bytes ...\n".encode() if left_out else b""
        return (self._first + middle + self._last).decode(errors="replace")

    def end(self) -> dict[str, Any]:
        os.close(self.output)
        _, code, used = os.wait4(self.number, 0)
        status = os.waitstatus_to_exitcode(code)
        if status and self.step["optional"] and self.step["output"]:
            Path(self.step["output"]).unlink(missing_ok=True)
        return _ended(self.step, 0 if self.step["optional"] else status, self.log(), used.ru_utime + used.ru_stime)


def run_all(steps: Sequence[Mapping[str, Any]], at_once: int) -> list[dict[str, Any]]:
    """Several at a time, the first ones first.

    When a step fails, those after it in the list are given up, and those before it go on: so the failure that comes
    first in the list is found, whichever comes first in time.
    """
    places = {step["name"]: place for place, step in enumerate(steps)}
    waiting, running = list(steps), list[Running]()
    ended: dict[str, dict[str, Any]] = {}
    while waiting or running:
        for step in waiting[:]:
            if len(running) < at_once and all(name in ended for name in step["after"]):
                waiting.remove(step)
                try:
                    running.append(Running(step))
                except OSError as error:
                    reason = f"{step['command'][0]} does not start: {error.strerror}\n"
                    ended[step["name"]] = _ended(step, 0 if step["optional"] else NOT_STARTED, reason)
        ready = select.select([job.output for job in running], (), ())[0] if running else ()
        for job in [job for job in running if job.output in ready and not job.take()]:
            running.remove(job)
            ended[job.step["name"]] = job.end()
        last = min((places[name] for name, end in ended.items() if end["status"]), default=len(steps))
        waiting = [step for step in waiting if places[step["name"]] < last]
        for job in [job for job in running if places[job.step["name"]] > last]:
            running.remove(job)
            os.kill(job.number, signal.SIGKILL)
            job.end()
    return [ended.get(step["name"], _ended(step, None)) for step in steps]


def _ended(step: Mapping[str, Any], status: int | None, log: str = "", cpu_s: float = 0.0) -> dict[str, Any]:
    return {"name": step["name"], "status": status, "log": log, "cpu_s": cpu_s}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
