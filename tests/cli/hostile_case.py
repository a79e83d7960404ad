"""One hostile command line with its files, and what must hold whatever it is."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIMIT_S = 240.0
GRACE_S = 3.0
SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): orphans of our descendants become our children, so that they are found."""


@dataclass(frozen=True)
class Hostile:
    """``words`` follow ``cupilot``; ``status`` are the exit statuses that are right.

    ``daily`` ones run in the ordinary test line.  ``env`` adds to the environment; ``prepare`` are commands of a shell.
    """

    words: tuple[str, ...]
    status: tuple[int, ...]
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    prepare: str = ""
    daily: bool = False

    @property
    def wants_json(self) -> bool:
        return "--json" in self.words and self.words[self.words.index("--json") + 1 :][:1] == ("-",)


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str


def check(case: Hostile, folder: Path) -> None:
    """Run it; fails with what does not hold."""
    ran = run(case, folder)
    said = "\n".join(
        line[:200] for line in (f"status {ran.status}", *ran.out.split("\n")[:60], *ran.err.split("\n")[-40:])
    )
    for text in ("Traceback (most recent call last)", "Fatal Python error", "Exception ignored in"):
        assert text not in ran.out + ran.err, said
    assert ran.status in case.status, said
    if case.wants_json:
        check_object(json.loads(ran.out), ran, said)
    if ran.status in (2, 3) and case.words[:1] != ("run",):
        assert sum(line.startswith("cupilot: ") for line in ran.err.splitlines()) == 1, said
    assert "\x1b" not in ran.out + ran.err, said


def check_object(report: Any, ran: Ran, said: str) -> None:
    """One object: a result where the status is 0, a failure or an error with kind and message elsewhere."""
    assert isinstance(report, dict), said
    if ran.status == 0:
        assert "error" not in report, said
        assert report.get("failure") is None, said
        return
    why = report.get("failure") or report.get("error")
    assert why, said
    assert why["kind"], said
    assert why["message"].strip(), said
    assert "\n" not in why["message"], said


def run(case: Hostile, folder: Path) -> Ran:
    """Run it in a folder of its own; no process and no temporary file may be left."""
    work, temporary = folder / "work", folder / "tmp"
    work.mkdir()
    temporary.mkdir()
    for name, content in case.files.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)
    if case.prepare:
        subprocess.run(["sh", "-c", case.prepare], cwd=work, check=True, capture_output=True)
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    before = children()
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONHASHSEED": "0", **case.env}
    for name in ("CUPILOT_DEBUG", "OPENAI_API_KEY", "DEEPSEEK_API_KEY", "ANTHROPIC_API_KEY"):
        environment.pop(name, None)
    ended = subprocess.run(
        [sys.executable, "-m", "cupilot", *case.words], cwd=work, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    left = wait_for_end(before)
    assert not left, f"processes are left: {left}"
    assert not (files := sorted(str(path) for path in temporary.rglob("*"))), f"temporary files are left: {files}"
    assert not (files := sorted(str(path) for path in work.rglob("*.part"))), f"unfinished files are left: {files}"
    out, err = (text.decode("utf-8", "backslashreplace") for text in (ended.stdout, ended.stderr))
    return Ran(ended.returncode, out, err)


def wait_for_end(before: frozenset[int]) -> dict[int, str]:
    """Our new children that still run after a moment; they are ended."""
    deadline = time.monotonic() + GRACE_S
    while left := {pid: name for pid in children() - before if (name := living(pid))}:
        if time.monotonic() > deadline:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return left
        time.sleep(0.05)
    return {}


def children() -> frozenset[int]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return frozenset(found)


def living(pid: int) -> str:
    """The command of a process; empty when it has ended, and is taken off our hands then."""
    with suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG)[0]:
            return ""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace") or "?"
    return ""
