"""``--json FILE``: one JSON object in every case, a result or ``{"error": {"kind", "message"}}``.

With ``-`` the object has stdout for itself: whatever else writes to the process's stdout (a task, a library, a child)
comes out on stderr.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

from cupilot.errors import ErrorReport, StoreError, UserError, unwritable
from cupilot.evolution.result import replace_file, to_json

STDOUT = "-"
SAME_AS_STDOUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
SHORTEST = "--js"
"""argparse takes beginnings of options; a shorter one could also be ``--jobs``."""


class JsonOutput:
    """The object that ``--json`` asks for, written once; nothing where it was not asked for."""

    def __init__(self, target: str | None = None, stdout: TextIO | None = None) -> None:
        self.target = target
        self.written = False
        self._stdout = stdout

    def write(self, data: dict[str, Any]) -> None:
        """Write the command's result."""
        assert not self.written, "a command has one result"
        text = to_json(data)
        self.written = True
        if self.target == STDOUT:
            stdout = self._stdout or sys.stdout
            if stdout is not None:  # it is None when the process was started without one
                stdout.write(text)
                stdout.flush()
        elif self.target is not None:
            _write_file(Path(self.target), text)

    def write_error(self, error: ErrorReport) -> None:
        """Write why there is no result, unless there is one; the sentence on stderr says it as well."""
        if not self.written:
            with suppress(OSError, StoreError, ValueError):
                self.write({"error": {"kind": error.kind, "message": error.message}})


def _write_file(path: Path, text: str) -> None:
    if path.exists() and not path.is_file():  # a pipe or a terminal, which must not be replaced
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise unwritable(path, error) from error
    else:
        replace_file(path, text)


def chosen_target(options: Namespace) -> str | None:
    """Where the object goes by a command's options; a place that cannot be written is a mistake, said at once."""
    target: str | None = getattr(options, "json", None)
    if target in SAME_AS_STDOUT:
        return STDOUT
    if target is None or target == STDOUT:
        return target
    if not target or "\0" in target:
        raise UserError("--json needs the name of a file, or - for stdout")
    path = Path(target)
    try:
        folder = path.absolute().parent
        if not folder.is_dir():
            raise UserError(f"--json {target}: there is no folder {folder}")
        if path.is_dir():
            raise UserError(f"--json {target}: that is a folder")
        if not os.access(path if path.exists() and not path.is_file() else folder, os.W_OK):
            raise UserError(f"--json {target}: it may not be written")
    except OSError as error:
        raise UserError(f"--json {target}: {error.strerror}") from error
    return target


def mistaken_target(words: Sequence[str]) -> str | None:
    """Where an error goes when the options themselves could not be read: stdout, if that was asked for.

    Files are left alone: which of them was meant is not certain.
    """
    own = words[: words.index("--")] if "--" in words else words
    for word, following in pairwise((*own, "")):
        name, equals, value = word.partition("=")
        if name.startswith(SHORTEST) and "--json".startswith(name) and (value if equals else following) == STDOUT:
            return STDOUT
    return None


@contextmanager
def reserved_stdout(target: str | None) -> Iterator[JsonOutput]:
    """The object's output; while the command runs, other writes to the real stdout go to stderr."""
    if target != STDOUT or not _is_real(sys.stdout, 1):
        yield JsonOutput(target)
        return
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace") as saved:
        _redirect(1)
        try:
            yield JsonOutput(target, saved)
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
            os.dup2(saved.fileno(), 1)


def _is_real(stream: TextIO | None, descriptor: int) -> bool:
    try:
        return stream is not None and stream.fileno() == descriptor
    except (OSError, ValueError, AttributeError):
        return False


def _redirect(descriptor: int) -> None:
    try:
        os.dup2(2, descriptor)
    except OSError:  # started without a stderr
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), descriptor)
