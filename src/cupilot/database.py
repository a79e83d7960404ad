"""An SQLite file: opened, changed all or nothing, and every error in one clear sentence.

What the files of runs, pools and recorded calls have in common; the tables are theirs.  Covered by the
sentences: no such folder, a full disk, a file that was removed, that is damaged or of another schema.  A file that was
replaced by another one is not noticed.  Text that no file can hold is kept as escapes: it must not lose a result.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cupilot.errors import DiskFull, StoreError

WAIT_S = 30.0
"""How long another process may keep the file locked."""


def open_database(path: Path, title: str, *, mode: str = "rwc", any_thread: bool = False) -> Database:
    """The file, in SQLite's ``mode`` (ro, rw or rwc); what was written is on disk when a call returns.

    The mode ``look`` is for onlookers: it is ``ro``, and no file of SQLite's own is made beside this one either.
    ``title`` is what errors call it.  ``any_thread`` leaves it to the caller that one thread uses it at a time.
    """
    access = _looking(path) if mode == "look" else f"mode={mode}"
    with clear_errors(title):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?{access}",
            uri=True, isolation_level=None, timeout=WAIT_S, check_same_thread=not any_thread,
        )  # fmt: skip
        connection.execute("PRAGMA synchronous = FULL")
    return Database(connection, title, path)


def _looking(path: Path) -> str:
    # without a log nobody writes, and SQLite would make one to find that out
    return "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"


def in_memory(title: str) -> Database:
    """A database that is gone when it is closed."""
    return Database(sqlite3.connect(":memory:", isolation_level=None), title, None)


class Database:
    """One connection in autocommit mode; made by `open_database` and `in_memory`."""

    def __init__(self, connection: sqlite3.Connection, title: str, path: Path | None) -> None:
        self.title = title
        self._connection = connection
        self._path = path

    def execute(self, statement: str, *values: object) -> list[Any]:
        """All rows that a statement gives."""
        with self._usable():
            return self._connection.execute(statement, _storable(values)).fetchall()

    def insert(self, statement: str, *values: object) -> int:
        """The number of the row that was inserted."""
        with self._usable():
            return int(self._connection.execute(statement, _storable(values)).lastrowid or 0)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, also when the body raises."""
        with self._usable():
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            finally:
                # still open only when something went wrong, Ctrl-C included
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def number(self, pragma: str) -> int:
        return int(self.execute(f"PRAGMA {pragma}")[0][0])

    def is_empty(self) -> bool:
        return not self.execute("SELECT 1 FROM sqlite_master LIMIT 1")

    def check_schema(self, known: int) -> None:
        """Refuse a file of another schema number."""
        found = self.number("user_version")
        if found != known:
            age = "a newer" if found > known else "an older"
            raise StoreError(
                f"{self.title} was written by {age} version of cupilot (schema {found}, this one reads {known})"
            )

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _usable(self) -> Iterator[None]:
        # SQLite would go on writing into a file that nobody can find any more
        if self._path is not None and not self._path.exists():
            raise StoreError(f"{self.title} was removed while it was in use")
        with clear_errors(self.title):
            yield


def _storable(values: tuple[object, ...]) -> tuple[object, ...]:
    """Halves of characters, which a compiler or a candidate may print and SQLite cannot hold, become escapes."""
    return tuple(
        value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value
        for value in values
    )


@contextmanager
def clear_errors(title: str) -> Iterator[None]:
    """SQLite's errors as `StoreError`s."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise StoreError(f"{title} holds this already: {error}") from error
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise DiskFull(f"{title} cannot be written: the disk is full") from error
        raise StoreError(f"{title} cannot be read or written: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{title} is damaged: {error}") from error
    except sqlite3.Error as error:
        raise StoreError(f"{title} cannot be used: {error}") from error
