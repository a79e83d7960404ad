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
    │   └── UnmatchedTask    the expert has no recipe for this task
    ├── MachineError         the machine lacks something (compiler, CUDA wheels, disk)
    │   └── ToolchainMissing nvcc, ptxas or a C++ compiler was not found
    ├── StoreError           the run folder cannot be read or written
    └── ModelError           a language model could not be asked or did not answer
"""

from __future__ import annotations


class CupilotError(Exception):
    """Root of everything cupilot raises on purpose; its text is one clear sentence."""


class UserError(CupilotError):
    """The command cannot be carried out as given."""


class TaskError(UserError):
    """The task file does not load or is not in KernelBench form."""


class DeviceError(UserError):
    """The device is unknown or cannot be used on this machine."""


class DataError(UserError):
    """A data file has an unknown, missing or ill-typed entry."""


class CacheError(UserError):
    """The folder of builds cannot be made, written or read, or its disk is full."""


class UnmatchedTask(UserError):
    """No recipe of the expert realises this task."""


class MachineError(CupilotError):
    """The machine lacks something that cupilot needs."""


class ToolchainMissing(MachineError):
    """nvcc, ptxas or a host C++ compiler was not found."""


class StoreError(CupilotError):
    """The run's store cannot be read or written."""


class ModelError(CupilotError):
    """A language model could not be asked, or did not answer."""
