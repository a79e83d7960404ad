"""Folders named by the content they were made from: complete when they exist, whoever made them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp


def digest(parts: Iterable[str | bytes]) -> str:
    """Content address of a sequence of parts; the parts' borders count."""
    total = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:32]


def folder_digest(folder: Path) -> str:
    """Content address of all files below a folder, with their names."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return digest(part for path in files for part in (path.relative_to(folder).as_posix(), path.read_bytes()))


@contextmanager
def scratch_beside(final: Path) -> Iterator[Path]:
    """A new folder on the same file system as ``final``; gone afterwards unless it was published."""
    final.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(prefix=".making-", dir=final.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, final: Path) -> None:
    """Give a complete folder its name at once; when another process was first, its equal result stays."""
    try:
        os.rename(folder, final)
    except OSError:
        if not final.is_dir():
            raise
