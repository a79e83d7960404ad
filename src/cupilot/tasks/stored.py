"""Arrays that cross from the process of a task to ours, in files.

A file is moved out of the task's reach when it is handed over.  Inputs stay in their files, which the workers that run
candidates map; nobody else reads them.  Results are read once, into memory of our own, and their file is removed: the
task could still have it open, and cut it short while we look at it.
Files are in shared memory where there is room for them, else on disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from cupilot.arrays import Array, Filed, Tiled, dtype_of, filed, memory_of, strides_of
from cupilot.devices.job import JobArgument
from cupilot.errors import TaskError
from cupilot.places import Runs
from cupilot.records import TensorSpec
from cupilot.tasks.case import Value
from cupilot.tasks.expectation import Expectation

ALTERED = "the task altered arrays that it had handed over"
ROOM = 4
"""A file goes to shared memory if so many like it would find room there."""


class Store:
    """Writes arrays into the folders of a task's process, the fastest first."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._written = 0

    def value(self, value: Value | Runs) -> JobArgument:
        """An argument, or a part of one; of a tiled array the tile, of positions the table."""
        if isinstance(value, Runs):
            value = value.table
        if isinstance(value, np.ndarray):
            dense = value if isinstance(value, Tiled) else np.ascontiguousarray(value).reshape(value.shape)
            return JobArgument(str(self._write(dense)), TensorSpec(value.shape, str(value.dtype)))
        if isinstance(value, (list, tuple)):
            return JobArgument(items=tuple(map(self.value, value)))
        return JobArgument(value=value.item() if isinstance(value, np.generic) else value)

    def argument(self, value: Array) -> JobArgument:
        """A tensor with its strides."""
        spec = TensorSpec(value.shape, str(value.dtype), strides_of(value))
        return JobArgument(str(self._write(value)), spec)

    def expectation(self, wanted: Expectation) -> tuple[JobArgument, ...]:
        """Its fields in order."""
        return tuple(self.value(getattr(wanted, field.name)) for field in fields(wanted))

    def _write(self, array: Array) -> Path:
        tile = array.tile if isinstance(array, Tiled) else None
        flat = memory_of(array if tile is None else tile)
        path = self.folder(flat.nbytes) / f"array{self._written}"
        self._written += 1
        flat.tofile(path)
        return path

    def folder(self, size: int) -> Path:
        """Where a file of a size goes."""
        for folder in self._folders[:-1]:
            about = os.statvfs(folder)
            if ROOM * size <= min(about.f_bavail * about.f_frsize, available_bytes()):
                return folder
        return self._folders[-1]


def available_bytes() -> int:
    """Memory that nobody would miss; nothing where the system does not tell."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return 0
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) << 10 if found else 0


# --- in our own process ---------------------------------------------------------------------------


def mapped(stored: JobArgument) -> Filed:
    """The array in a file, which stays there."""
    assert stored.tensor is not None
    try:
        return filed(Path(stored.file), stored.tensor.shape, dtype_of(stored.tensor.dtype), stored.tensor.strides)
    except (OSError, ValueError):
        raise TaskError(ALTERED) from None


def taken(stored: JobArgument) -> Value:
    """The value in memory of our own; its file is gone."""
    if stored.items is not None:
        return tuple(map(taken, stored.items))
    if stored.tensor is None:
        return stored.value
    dtype, path, size = dtype_of(stored.tensor.dtype), Path(stored.file), prod(stored.tensor.shape)
    raw = np.fromfile(path, np.uint8, size * dtype.itemsize)
    path.unlink()
    if raw.nbytes < size * dtype.itemsize:
        raise ValueError(f"{path} is too short")
    return raw.view(dtype).reshape(stored.tensor.shape)


def taken_expectation(stored: Iterable[JobArgument]) -> Expectation:
    try:
        values: Any = [taken(each) for each in stored]
    except (OSError, ValueError):
        raise TaskError(ALTERED) from None
    positions, *others = values
    return Expectation(None if positions is None else Runs(positions), *others)


def remove(stored: Iterable[JobArgument]) -> None:
    """What nobody has read."""
    for each in stored:
        if each.file:
            Path(each.file).unlink(missing_ok=True)


def stored_positions(where: Runs | None, path: Path) -> JobArgument:
    """Positions for the process of a task, in one of its folders."""
    if where is None:
        return JobArgument()
    np.ascontiguousarray(where.table, np.int64).tofile(path)
    return JobArgument(str(path), TensorSpec(where.table.shape, "int64"))
