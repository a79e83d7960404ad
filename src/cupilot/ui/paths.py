"""From a name in a request to a file: only below the runs folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

LONGEST_NAME = 1000
SEPARATOR = "/"
DEEPEST = 4
"""How many levels of folders are searched; ``cupilot bench`` has its runs two levels deep."""


def below(root: Path, name: str) -> Path | None:
    """The file or folder of that name, with symbolic links resolved; None unless it exists and is below ``root``.

    Names are relative, with slashes.  ``..``, hidden and absolute names and control characters are rejected.
    """
    if not is_plain(name):
        return None
    try:
        real_root = root.resolve(strict=True)
        path = (real_root / name).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # RuntimeError: circular links
        return None
    return path if path.is_relative_to(real_root) and path != real_root else None


def folders_with(root: Path, file: str) -> Iterator[str]:
    """The names of the folders that contain a file of this name, empty for the root; links are not followed."""
    for folder, inside, files in os.walk(root):
        relative = Path(folder).relative_to(root)
        inside[:] = sorted(each for each in inside if is_plain(each) and len(relative.parts) < DEEPEST)
        if file in files:
            yield relative.as_posix() if relative.parts else ""


def is_plain(name: str) -> bool:
    """Whether a name has only ordinary parts: not ``..``, hidden, absolute, or with control characters."""
    if not name or len(name) > LONGEST_NAME or not name.isprintable() or "\\" in name:
        return False
    return all(part and not part.startswith(".") for part in name.split(SEPARATOR))
