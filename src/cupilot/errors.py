"""The whole error tree.

A candidate kernel that fails is *not* an error here: it is a value
(:class:`cupilot.records.Failure`).  Exceptions are for the user's mistakes, for
what the machine lacks, and for our own bugs::

    CupilotError
    ├── UserError            the command cannot be carried out as given (exit status 2)
    │   ├── TaskError        the task file does not load, or is not in KernelBench form
    │   ├── DeviceError      unknown device, or one that is not usable here
    │   ├── DataError        a data file (card, spec, recipe) has an unknown or missing key
    │   ├── CacheError       the cache folder cannot be written, or is full
    │   ├── UnmatchedTask    the expert has no recipe for this task
    │   ├── MissingKey       a language model needs a key that is not set
    │   ├── MissingExtra     an optional Python package is not installed
    │   └── StoreError       the run folder or the pool cannot be read or written
    │       └── DiskFull     there is no space left (exit status 1)
    ├── MachineError         the machine lacks something (compiler, CUDA wheels, memory)
    │   └── ToolchainMissing nvcc, ptxas or a C++ compiler was not found
    ├── NoKernel             a search has no correct kernel to start from
    └── ModelError           a language model could not be asked or did not answer

Each has a ``kind``, a word for programs, and the exit status of a command that ends with it.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from cupilot.text import one_line

FAILED, MISTAKE, BUG = 1, 2, 3
"""Exit statuses: a kernel failed or the machine lacks something; the user's mistake; a bug of ours."""
REPORT_HERE = "this is a bug in cupilot; please report it with the output of the same command under CUPILOT_DEBUG=1"
MACHINE_ERRNOS = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
     errno.EAGAIN, errno.EIO, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EFBIG, errno.ESTALE)
)  # fmt: skip
"""What the operating system refuses whatever a program does; other errors of it are our bugs."""


class CupilotError(Exception):
    """Root of everything cupilot raises on purpose; its text is one clear sentence."""

    kind = "failed"
    exit_status = FAILED


class UserError(CupilotError):
    """The command cannot be carried out as given."""

    kind = "usage"
    exit_status = MISTAKE


class TaskError(UserError):
    """The task file does not load or is not in KernelBench form."""

    kind = "task"


class DeviceError(UserError):
    """The device is unknown or cannot be used on this machine."""

    kind = "device"


class DataError(UserError):
    """A data file has an unknown, missing or ill-typed entry."""

    kind = "data"


class CacheError(UserError):
    """The folder of builds cannot be made, written or read, or its disk is full."""

    kind = "cache"


class UnmatchedTask(UserError):
    """No recipe of the expert realises this task."""

    kind = "unmatched-task"


class MissingKey(UserError):
    """A language model needs a key that is not set or cannot be one."""

    kind = "missing-key"


class MissingExtra(UserError):
    """An optional Python package is not installed; the text says how to install it."""

    kind = "missing-extra"


class StoreError(UserError):
    """The run's store, or another file that was named, cannot be read or written."""

    kind = "store"


class DiskFull(StoreError):
    """There is no space left where a file has to be written."""

    kind = "disk-full"
    exit_status = FAILED


def unwritable(what: object, error: OSError) -> StoreError:
    """The error for a file or folder that cannot be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return (DiskFull if full else StoreError)(f"{what} cannot be written: {error.strerror}")


class MachineError(CupilotError):
    """The machine lacks something that cupilot needs."""

    kind = "machine"


class ToolchainMissing(MachineError):
    """nvcc, ptxas or a host C++ compiler was not found."""

    kind = "toolchain"


class NoKernel(CupilotError):
    """The kernel that a search starts from failed, and there is no other."""

    kind = "no-kernel"


class ModelError(CupilotError):
    """A language model could not be asked, or did not answer."""

    kind = "model"


@dataclass(frozen=True)
class ErrorReport:
    """An error for people and programs: a word, a sentence on one line, and the exit status."""

    kind: str
    message: str
    exit_status: int


def error_report(error: BaseException) -> ErrorReport:
    """What to say about any exception; what cupilot did not raise on purpose is the machine's or our bug."""
    if isinstance(error, CupilotError):
        return ErrorReport(error.kind, one_line(str(error)), error.exit_status)
    if isinstance(error, MemoryError):
        return ErrorReport(MachineError.kind, "there is not enough memory", FAILED)
    if isinstance(error, OSError) and error.errno in MACHINE_ERRNOS:
        what = f"{error.filename}: " if error.filename else ""
        return ErrorReport(MachineError.kind, one_line(f"{what}{error.strerror or error}"), FAILED)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ErrorReport("internal", f"internal error, {one_line(text)}; {REPORT_HERE}", BUG)
