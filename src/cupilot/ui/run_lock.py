"""Whether a run is running: its process holds a lock beside the store.

The lock is looked up in ``/proc/locks``.  Trying to take it could make a run fail that starts at that moment.  Needs
Linux; a process in another container may not be visible.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cupilot.evolution.store import LOCK

LOCKS = Path("/proc/locks")
PROCESSES = Path("/proc")


def is_running(folder: Path) -> bool:
    """Whether a process is working on the run in this folder."""
    try:
        lock = (folder / LOCK).stat()
        text = LOCKS.read_text(encoding="ascii")
    except OSError:
        return False
    return any(_has_open(pid, lock) for pid in lock_holders(text, lock.st_ino))


def lock_holders(text: str, inode: int) -> Iterator[int]:
    """The processes that hold a lock on a file with this inode number, on any file system."""
    for line in text.splitlines():
        fields = line.split()
        # "1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF"; waiting processes have an arrow after the number
        if len(fields) == 8 and fields[1] == "FLOCK" and fields[3] == "WRITE" and fields[5].endswith(f":{inode}"):
            yield int(fields[4])


def _has_open(pid: int, lock: os.stat_result) -> bool:
    """Whether the process has this file open: inode numbers are unique only within a file system."""
    try:
        descriptors = list((PROCESSES / str(pid) / "fd").iterdir())
    except FileNotFoundError:
        return False
    except PermissionError:
        return True  # another user's process: only the inode number is known
    for descriptor in descriptors:
        try:
            if os.path.samestat(descriptor.stat(), lock):
                return True
        except OSError:
            continue
    return False
