"""Runs a coding agent's command, confined to its folder by Landlock, with limits on time, memory and processes.

An agent is a program that its user trusts with an account, but that follows whatever a model says.  It reads the
system's programs and libraries, its own installation and what it needs to log in; of the user's other files it sees
nothing, and it writes only its folder.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import cupilot
from cupilot.errors import MachineError
from cupilot.sandbox.agent_runner import NOT_CONFINED
from cupilot.sandbox.confine import trusted_places
from cupilot.sandbox.process import USUAL, Ended, bare_environment, run_limited

# programs, libraries, certificates, names of hosts; no folder in which users keep files
SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/hosts",
    "/etc/resolv.conf", "/run/systemd/resolve", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf",
    "/etc/services", "/etc/protocols", "/etc/passwd", "/etc/group", "/etc/localtime", "/etc/alternatives",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/os-release", "/proc", "/sys/devices/system",
    "/sys/fs/cgroup",
)  # fmt: skip
TASKS, OUTPUT_BYTES = 600, 8 << 20
PLAN = ".plan.json"
KEPT_ENVIRONMENT = (
    "LC_ALL", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
)  # fmt: skip


def find_program(name: str) -> Path | None:
    """The program on the search path, as it is written there."""
    found = shutil.which(name)
    return None if found is None else Path(found)


def installation(program: Path) -> tuple[Path, ...]:
    """Where a program's own files are: its folder, that of the file it is a link to, and its package's tree."""
    real = program.resolve()
    places = [program.parent, real.parent]
    parts = real.parts
    if "node_modules" in parts:
        tree = Path(*parts[: parts.index("node_modules") + 1])
        # npm's prefix has the interpreter beside the packages
        places += [tree, tree.parent.parent / "bin"] if tree.parent.name == "lib" else [tree]
    return tuple(dict.fromkeys(places))


def run_agent(
    command: Sequence[str],
    folder: Path,
    timeout_s: float,
    *,
    readable: Sequence[Path],
    environment: Mapping[str, str],
    network: bool,
) -> Ended:
    """Run the command in ``folder``, which with ``folder/../home`` is all that it can write; nothing outlives it.

    ``readable`` is what it needs beside the system and this package.  Raises `MachineError` where it cannot be
    confined.
    """
    outer = folder.parent
    python = Path(sys.executable)
    own = (
        python.parent,
        python.parent.parent / "pyvenv.cfg",
        python.resolve().parent,
        Path(cupilot.__file__).parents[1],
    )
    places = dict.fromkeys(map(str, (*map(Path, SYSTEM), *trusted_places(), *own, *readable)))
    ours = bare_environment(folder, *KEPT_ENVIRONMENT) | {"PYTHONPATH": str(Path(cupilot.__file__).parents[1])}
    variables = {"PATH": os.defpath, **ours, "TMPDIR": str(outer / "tmp"), **environment}
    (outer / "tmp").mkdir(exist_ok=True)
    plan = outer / PLAN
    plan.write_text(
        json.dumps({
            "command": list(command), "readable": list(places), "writable": [str(outer)], "network": network,
            "environment": variables,
        }),
        encoding="utf-8",
    )  # fmt: skip
    runner = (python, "-P", "-m", "cupilot.sandbox.agent_runner", plan)
    limits = replace(USUAL, tasks=TASKS, output_bytes=OUTPUT_BYTES)
    ended = run_limited(tuple(map(str, runner)), folder, timeout_s, ours, limits)
    if ended.status == NOT_CONFINED and not ended.timed_out:
        raise MachineError(ended.output.strip() or "the agent cannot be confined")
    return ended
