"""Folders named by the content they were made from: complete when they exist, whoever made them.

An entry carries a list of its files with their digests and the name it was made under (`MANIFEST`).  Both are checked
whenever an entry is used: one with a changed, missing or strange file, or of another name, is removed and made again.
A cache that cannot be written is the user's to mend, so it is a `CacheError` with advice.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp

from cupilot.errors import CacheError

MANIFEST = "manifest.json"
MAKING = ".making-"
ROOM_BYTES = 16 << 20
"""What a build may need."""
ADVICE = "set CUPILOT_CACHE to a folder that can be written and has room"
# errors of the disk or of rights; others are our own bugs
UNUSABLE = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.EIO,
    errno.EFBIG, errno.ENAMETOOLONG, errno.ELOOP,
})  # fmt: skip


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
    """A new folder on the same file system as ``final``; gone afterwards unless it was published.

    Raises `CacheError` where the folder cannot be made or written.
    """
    with usable(final.parent):
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            folder = Path(mkdtemp(prefix=MAKING, dir=final.parent))
        except OSError as error:  # whatever the reason is, the user's folder is not one that we can use
            raise unusable(final.parent, error.strerror or str(error)) from error
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Turns errors of the disk and of rights into a `CacheError` that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in UNUSABLE:
            raise
        raise unusable(folder, error.strerror or str(error)) from error


def unusable(folder: Path, reason: str) -> CacheError:
    return CacheError(f"the cache folder {folder} cannot be used ({reason}): {ADVICE}")


def refuse_full_disk(scratch: Path, log: str) -> None:
    """Raise a `CacheError` where a compiler's log says that the disk of its scratch folder is full, and it is.

    A source can make its compiler say anything, so a file is written to see.
    """
    if any(os.strerror(number) in log for number in (errno.ENOSPC, errno.EDQUOT)):
        trial = scratch / "room"
        with usable(scratch.parent):
            try:
                trial.write_bytes(bytes(ROOM_BYTES))
            finally:
                trial.unlink(missing_ok=True)


def publish(folder: Path, final: Path) -> None:
    """Give a complete folder its name at once; when another process was first, its equal result stays."""
    (folder / MANIFEST).write_text(json.dumps({"name": final.name, "files": _files(folder)}), encoding="utf-8")
    try:
        os.rename(folder, final)
    except OSError:
        if is_intact(final):
            return
        if not os.path.lexists(final):
            raise
        discard(final)
        os.rename(folder, final)


def is_kept(final: Path) -> bool:
    """Whether there is an entry that can be used; a damaged one is removed, so that it can be made again."""
    if is_intact(final):
        return True
    if os.path.lexists(final):
        discard(final)
    return False


def is_intact(final: Path) -> bool:
    """Whether an entry is complete and unchanged and was made under its name."""
    try:
        told = json.loads((final / MANIFEST).read_bytes())
        return isinstance(told, dict) and told == {"name": final.name, "files": _files(final)}
    except (OSError, ValueError):
        return False


def _files(folder: Path) -> dict[str, str]:
    """Digests of the files of an entry, which has no folders that matter."""
    files = sorted(path for path in folder.iterdir() if path.name != MANIFEST and path.is_file())
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in files}


def discard(final: Path) -> None:
    """Remove an entry, or whatever has its name, in one step as others see it."""
    with usable(final.parent):
        away = Path(mkdtemp(prefix=MAKING, dir=final.parent))
        try:
            with suppress(FileNotFoundError):  # another process has just done it
                os.rename(final, away / final.name)
        finally:
            shutil.rmtree(away, ignore_errors=True)
