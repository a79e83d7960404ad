"""The only way from a name in a request to a file: below the runs folder, or nowhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

LONGEST_NAME = 1000
SEPARATOR = "/"
DEEPEST = 4
"""Folders within folders that are looked into; ``cupilot bench`` has its runs two deep."""


def below(root: Path, name: str) -> Path | None:
    """The file or folder of that name, with all symbolic links followed; None unless it exists and is below ``root``.

    Names are relative, with slashes.  Odd ones (``..``, hidden, absolute, with control characters) are no names at
    all, whether or not there is such a file.
    """
    if not is_plain(name):
        return None
    try:
        real_root = root.resolve(strict=True)
        path = (real_root / name).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # RuntimeError: links in a circle
        return None
    return path if path.is_relative_to(real_root) and path != real_root else None


def holders(root: Path, file: str) -> Iterator[str]:
    """The names of the folders that hold a file of this name, the root's own being empty; links are not followed."""
    for folder, inside, files in os.walk(root):
        relative = Path(folder).relative_to(root)
        inside[:] = sorted(each for each in inside if is_plain(each) and len(relative.parts) < DEEPEST)
        if file in files:
            yield relative.as_posix() if relative.parts else ""


def is_plain(name: str) -> bool:
    """Whether a name has none of the parts that mean something other than a file."""
    if not name or len(name) > LONGEST_NAME or not name.isprintable() or "\\" in name:
        return False
    return all(part and not part.startswith(".") for part in name.split(SEPARATOR))
