"""Whether some process is at work on a run: who writes holds a lock beside the store.

Asked of the kernel (``/proc/locks``), not by trying: an onlooker who takes the lock for a moment would turn away a run
that begins just then.  Needs Linux; a process of another container may not be seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cupilot.evolution.store import LOCK

LOCKS = Path("/proc/locks")
PROCESSES = Path("/proc")


def is_written(folder: Path) -> bool:
    """Whether the run in this folder is going on."""
    try:
        lock = (folder / LOCK).stat()
        text = LOCKS.read_text(encoding="ascii")
    except OSError:
        return False
    return any(_has_open(pid, lock) for pid in holders(text, lock.st_ino))


def holders(text: str, inode: int) -> Iterator[int]:
    """The processes that hold a lock on a file of this number, of whatever file system."""
    for line in text.splitlines():
        fields = line.split()
        # "1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF"; those that wait have an arrow after the number
        if len(fields) == 8 and fields[1] == "FLOCK" and fields[3] == "WRITE" and fields[5].endswith(f":{inode}"):
            yield int(fields[4])


def _has_open(pid: int, lock: os.stat_result) -> bool:
    """File systems number their files each for itself, so the process must have this one open."""
    try:
        descriptors = list((PROCESSES / str(pid) / "fd").iterdir())
    except FileNotFoundError:
        return False
    except PermissionError:
        return True  # somebody else's process; the number is all there is to go by
    for descriptor in descriptors:
        try:
            if os.path.samestat(descriptor.stat(), lock):
                return True
        except OSError:
            continue
    return False
