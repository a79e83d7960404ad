"""Starts the process that a candidate's host code runs in, confined as tightly as can be.

It has the candidate's libraries to read and nothing else: no other files, no network, no processes, no privileges, and
of system calls those that computing needs.  All that connects it to the worker is a socket and the memory that host
code and kernels share (pinned and managed memory).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cupilot.errors import MachineError
from cupilot.sandbox.confine import landlock_version, reading_rules
from cupilot.sandbox.system_calls import native_filter
from cupilot.vgpu.machine import Machine

ENDING_S = 2.0
# bits of what the process reports (vgpu/host/main.cpp) that must have worked; files where there is Landlock
PRIVILEGES, LIMITS, FILES, CALLS = 1 << 1, 1 << 2, 1 << 4, 1 << 6


def start_host(machine: Machine, program: Path, libraries: Sequence[Path]) -> None:
    """Start the process for a machine, which loads the libraries into it later."""
    memory = machine.share_memory()
    ours, theirs = socket.socketpair()
    rules = reading_rules(libraries)
    inherited = [theirs.fileno(), memory, *([rules] if rules >= 0 else [])]
    try:
        process = subprocess.Popen(
            (str(program), str(theirs.fileno()), str(memory), str(rules)),
            stdin=subprocess.DEVNULL, env={}, pass_fds=inherited,
        )  # fmt: skip
    finally:
        theirs.close()
        for descriptor in inherited[1:]:
            os.close(descriptor)
    machine.connect_host(ours.detach(), process.pid, lambda: _end(process))
    done = machine.host.confine(native_filter(process.pid))
    wanted = PRIVILEGES | LIMITS | (FILES if landlock_version() else 0) | CALLS
    if done & wanted != wanted:
        raise MachineError(f"the process for host code cannot be confined here ({done:#x} of {wanted:#x})")


def _end(process: subprocess.Popen[bytes]) -> str:
    """The connection is closed: how the process ended, in words."""
    try:
        status = process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        # a worker whose signals Landlock keeps inside may not; then the process ends with the worker's session
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)
        return "the candidate's host code closed its connection to the virtual GPU"
    if status < 0:
        return f"the candidate's host code crashed with {signal.Signals(-status).name}"
    return f"the candidate ended its process early (status {status})"
