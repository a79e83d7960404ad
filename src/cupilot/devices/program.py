"""Running a whole CUDA program on the virtual GPU, in a process of its own.

The program is a shared library; the process (``python -m cupilot.devices.program JOB``) sets up the virtual GPU, loads
it and calls its ``main``.  Standard input and output, the working folder and the environment are the caller's, but for
variables that may hold a secret.  The process has its own group and limits; the group is killed when the time is up.
Network and files are not restricted: the program is the user's own.  `run_confined` is for programs that somebody else
wrote; those have no input, no network and no files, like candidates, and their output is kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cupilot.devices.virtual import GRACE_S, NEWEST, OLDEST, VirtualDevice
from cupilot.errors import DataError
from cupilot.gpu import load_spec
from cupilot.records import Failure, Finding, Resources, from_plain, to_plain
from cupilot.sandbox.confine import confine
from cupilot.sandbox.process import limit_self, open_channel
from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.program import BuiltProgram, ProgramSource, build_program
from cupilot.vgpu.findings import read_finding
from cupilot.vgpu.machine import Machine

JOB, JOURNAL, REFUSAL = "job.json", "findings.jsonl", "refusal"
JOURNAL_BYTES = 8 << 20
"""More than the runtime ever writes."""


@dataclass(frozen=True)
class ProgramJob:
    """What the process is asked to do."""

    library: str
    runtime: str
    gpu: str
    device: str
    resources: tuple[tuple[str, Resources], ...]
    arguments: tuple[str, ...]
    hidden: tuple[str, ...]
    checks: bool
    timeout_s: float
    confined: bool = False


@dataclass(frozen=True)
class ProgramRun:
    """How a program ended: its status (negative: the signal), a time-out, or why it was not started.

    ``output`` is what a confined program wrote to both streams, or the limit that it exceeded.
    """

    status: int
    timed_out: bool
    refusal: str
    findings: tuple[Finding, ...]
    output: str = ""


def build_for(device: VirtualDevice, source: ProgramSource, cache: Path) -> BuiltProgram | Failure:
    """Compile a program for a virtual GPU; builds are kept below ``cache``."""
    arch = f"sm_{round(min(max(device.spec.capability, OLDEST), NEWEST) * 10)}"
    return build_program(source, arch, cache / "programs", find_cuda())


def run_program(
    device: VirtualDevice,
    built: BuiltProgram,
    arguments: Sequence[str],
    timeout_s: float,
    *,
    checks: bool = True,
    hidden: Sequence[str] = (),
) -> ProgramRun:
    """Run to the end; ``arguments`` begin with the program's name, ``hidden`` are variables it must not see."""
    with tempfile.TemporaryDirectory(prefix="cupilot-") as name:
        folder = Path(name)
        job = ProgramJob(
            str(built.library), str(device.runtime()), device.spec.name, device.name, built.resources,
            tuple(arguments), tuple(hidden), checks, timeout_s,
        )  # fmt: skip
        (folder / JOB).write_text(json.dumps(to_plain(job)))
        status, timed_out = _wait((sys.executable, "-P", "-m", "cupilot.devices.program", str(folder)), timeout_s)
        return ProgramRun(status, timed_out, _read_refusal(folder), read_journal(folder / JOURNAL))


def run_confined(
    device: VirtualDevice, built: BuiltProgram, arguments: Sequence[str], timeout_s: float
) -> ProgramRun:  # fmt: skip
    """Run a program that nobody vouches for, as candidates are run; ``arguments`` begin with its name."""
    with tempfile.TemporaryDirectory(prefix="cupilot-") as name:
        folder = Path(name)
        job = ProgramJob(
            str(built.library), str(device.runtime()), device.spec.name, device.name, built.resources,
            tuple(arguments), (), True, timeout_s, confined=True,
        )  # fmt: skip
        (folder / JOB).write_text(json.dumps(to_plain(job)))
        command = (sys.executable, "-P", "-m", "cupilot.devices.program", str(folder))
        ended = device.run_apart(command, folder, timeout_s + GRACE_S)
        output = f"{ended.output}\nthe program {ended.excess}" if ended.excess else ended.output
        findings = read_journal(folder / JOURNAL)
        return ProgramRun(ended.status, ended.timed_out, _read_refusal(folder), findings, output)


def _read_refusal(folder: Path) -> str:
    return (folder / REFUSAL).read_text() if (folder / REFUSAL).exists() else ""


def _wait(command: Sequence[str], timeout_s: float) -> tuple[int, bool]:
    """Status and whether the time was up; nothing of the process group is left."""
    process = subprocess.Popen(command, start_new_session=True)
    timed_out = False
    try:
        process.wait(timeout_s + GRACE_S)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode, timed_out


def read_journal(journal: Path) -> tuple[Finding, ...]:
    """One per line; a line that a crash cut short, or that the program wrote itself, is left out."""
    if not journal.exists():
        return ()
    found = []
    with open(journal, "rb") as file:
        for line in file.read(JOURNAL_BYTES).splitlines():
            with contextlib.suppress(DataError):
                found.append(read_finding(line))
    return tuple(found)


# --- in the process of the program ------------------------------------------------------------


def main(folder: Path) -> None:
    job = from_plain(ProgramJob, json.loads((folder / JOB).read_text()))
    limit_self(job.timeout_s)
    for name in job.hidden:
        os.unsetenv(name)
    machine = Machine(load_spec(job.gpu), Path(job.runtime), dict(job.resources), job.device)
    if job.confined:
        open_channel()  # nothing is sent: what a program writes is all there is to know
        machine.translate_apart(lambda kept: confine([kept], [kept]))
        confine([Path(job.library), Path(job.runtime).parent], [folder], threads=True)
    machine.run_program(folder / JOURNAL, job.timeout_s, job.checks)
    # a C program's dispositions, which Python changes
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        entry = ctypes.CDLL(job.library, mode=os.RTLD_NOW | os.RTLD_LOCAL).main
    except (OSError, AttributeError) as error:
        (folder / REFUSAL).write_text(_refusal(str(error)))
        return
    _enter(entry, job.arguments)


def _enter(entry: Any, arguments: Sequence[str]) -> NoReturn:
    libc = ctypes.CDLL(None)
    texts = [os.fsencode(argument) for argument in arguments]
    vector = (ctypes.c_char_p * (len(texts) + 1))(*texts, None)
    entry.restype = ctypes.c_int
    # exit as C does it: static destructors, buffers
    libc.exit(entry(len(texts), vector, ctypes.c_void_p.in_dll(libc, "environ")))
    raise AssertionError("exit returned")


def _refusal(text: str) -> str:
    symbol = text.rpartition("undefined symbol: ")[2].partition(" ")[0]
    if symbol == "main":
        return "the program has no function main"
    if symbol == text.partition(" ")[0] or "undefined symbol" not in text:
        return f"the program cannot be loaded: {text}"
    if symbol.startswith("cuda"):
        return f"unsupported on the virtual GPU: the runtime call {symbol}"
    if symbol.startswith("cu") and symbol[2:3].isupper():
        return f"unsupported on the virtual GPU: the driver call {symbol}"
    if symbol.startswith("nvrtc"):
        return f"unsupported on the virtual GPU: {symbol} (compiling while the program runs)"
    return f"none of the program's files defines {symbol}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
