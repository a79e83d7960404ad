"""Starts a process through bubblewrap, in addition to `cupilot.sandbox.confine`.

Where the program ``bwrap`` is installed and permitted, a worker gets namespaces of its own: it can write only its
folder and those named, it has no network, and it sees no other process.  Everything in the namespaces ends with
``bwrap``, which ends with the thread that started it.  The worker confines itself as it does without bubblewrap; only
that keeps a candidate from reading files and from writing the folders that the trusted part of its process may write.

Bubblewrap reports the signal that ended a process as the status 128 + n, and `run_boxed` turns it back.  A process that
returns such a number by itself cannot be told apart from it.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from cupilot.errors import MachineError, UserError
from cupilot.sandbox import confine
from cupilot.sandbox.confine import Measure
from cupilot.sandbox.process import USUAL, Ended, Limits, run_limited

AUTO, BUBBLEWRAP, LANDLOCK = "auto", "bubblewrap", "landlock"
SANDBOXES = (AUTO, BUBBLEWRAP, LANDLOCK)
TRIAL_S = 10.0
SIGNALLED = 128


@dataclass(frozen=True)
class Found:
    """The program, or why there is none to use."""

    program: str = ""
    problem: str = ""


def chosen(choice: str) -> Found:
    """The program that starts workers, for one of `SANDBOXES`; a choice that is not available is an error."""
    if choice not in SANDBOXES:
        raise UserError(f"unknown sandbox {choice!r}; there are {', '.join(SANDBOXES)}")
    if choice == LANDLOCK:
        if not confine.landlock_version():
            raise MachineError("the sandbox landlock cannot be used here: the kernel does not offer it")
        return Found(problem="landlock was chosen")
    found = find_bubblewrap()
    if choice == BUBBLEWRAP and found.problem:
        raise MachineError(f"the sandbox bubblewrap cannot be used here: {found.problem}")
    return found


@cache
def find_bubblewrap() -> Found:
    """The program, tried once per process with the options that workers get."""
    program = shutil.which("bwrap")
    if program is None:
        return Found(problem="bwrap is not installed")
    problem = problem_with(program)
    return Found(problem=problem) if problem else Found(program)


def problem_with(program: str) -> str:
    """Why a process cannot be started through the program, or nothing."""
    with TemporaryDirectory(prefix="cupilot-") as name, TemporaryFile() as report:
        line = command_line(program, ("touch", "trial"), Path(name).resolve(), report=report.fileno())
        try:
            done = subprocess.run(
                line, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
                timeout=TRIAL_S, pass_fds=(report.fileno(),),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"{program} did not end within {TRIAL_S:g} s"
        except OSError as error:
            return f"{program} does not start: {error.strerror}"
        if done.returncode == 0 and (Path(name) / "trial").exists():
            return ""
    return done.stderr.strip().rpartition("\n")[2] or f"{program} ended with status {done.returncode}"


def command_line(
    program: str,
    command: Sequence[str],
    folder: Path,
    writable: Sequence[Path] = (),
    report: int | None = None,
    visible: Sequence[Path] | None = None,
    *,
    ends_with_starter: bool = True,
) -> tuple[str, ...]:
    """The command line that starts ``command`` in ``folder``, which it may write like those in ``writable``.

    The folders must exist, and their paths must have no symbolic links, which bubblewrap would follow in the wrong
    place.  ``report`` is a descriptor for bubblewrap's own report.  Where ``visible`` is given, there are no files but
    these; devices and the system's view of processes are not there either.  ``ends_with_starter``: the command is
    killed when the thread ends that started it.
    """
    binds = [word for path in (folder, *writable) for word in ("--bind", str(path), str(path))]
    return (
        program, *(_WHOLE_SYSTEM if visible is None else _only(visible)), *binds,
        *(("--remount-ro", "/dev") if visible is None else ()),
        "--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
        *(("--die-with-parent",) if ends_with_starter else ()), "--new-session",
        *(("--json-status-fd", str(report)) if report is not None else ()),
        "--chdir", str(folder), "--", *command,
    )  # fmt: skip


_WHOLE_SYSTEM = (
    "--ro-bind", "/", "/",
    # devices do not work on the mount above; arrays may be in shared memory, but nothing is made there
    "--dev", "/dev", "--ro-bind-try", "/dev/shm", "/dev/shm",
    # root may change the system's settings without any capability
    "--proc", "/proc", "--ro-bind-try", "/proc/sys", "/proc/sys",
)  # fmt: skip


def _only(places: Sequence[Path]) -> list[str]:
    """Those of the places that are there, outer folders first so that none hides another."""
    kept = sorted({str(place) for place in places if place.exists()})
    return ["--dev-bind", "/dev/null", "/dev/null", *(word for at in kept for word in ("--ro-bind", at, at))]


def run_boxed(
    program: str,
    command: Sequence[str],
    folder: Path,
    timeout_s: float,
    environment: Mapping[str, str],
    limits: Limits = USUAL,
    writable: Sequence[Path] = (),
    visible: Sequence[Path] | None = None,
) -> Ended:
    """`run_limited` through bubblewrap, or without it when no program is given; its own processes count as tasks.

    ``visible`` is as in `command_line`.  Folders in ``writable`` are made if they are not there.  Raises
    `MachineError` when bubblewrap fails, which is not the candidate's fault.
    """
    if not program:
        return run_limited(command, folder, timeout_s, environment, limits)
    for path in writable:
        path.mkdir(parents=True, exist_ok=True)
    with TemporaryFile() as report:
        places = [path.resolve() for path in (folder, *writable)]
        line = command_line(program, command, places[0], places[1:], report.fileno(), visible)
        ended = run_limited(line, folder, timeout_s, environment, limits, (report.fileno(),))
        report.seek(0)
        told = report.read()
    # it tells a status only of a command that it has started
    if ended.status > 0 and b'"exit-code"' not in told:
        reason = ended.output.strip().rpartition("\n")[2] or f"status {ended.status}"
        raise MachineError(f"bubblewrap could not start a process: {reason}")
    return replace(ended, status=true_status(ended.status))


def true_status(status: int) -> int:
    """Negative for a signal, as `subprocess` has it."""
    return SIGNALLED - status if status - SIGNALLED in signal.valid_signals() else status


def confinement(program: str) -> tuple[Measure, ...]:
    """What holds for a worker that is started through the program, or without it when none is given."""
    if not program:
        return confine.confinement()
    with TemporaryDirectory(prefix="cupilot-") as name:
        within = confine.confinement(command_line(program, (), Path(name).resolve()))
    around = Measure("network", True, "bubblewrap's network namespace")
    # who is in a namespace may be refused another one
    measures = (around if measure.name == "network" and not measure.active else measure for measure in within)
    return (Measure(BUBBLEWRAP, True, program), *measures)
