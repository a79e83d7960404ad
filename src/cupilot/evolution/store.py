"""A run on disk: one SQLite file per run folder, complete at every moment.

One process writes; any number read meanwhile (write-ahead log).  What a caller added is on disk
when the call returns, so a killed run loses at most the candidates in flight.  Files of another
schema number are refused, not converted.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from cupilot.errors import DataError, StoreError
from cupilot.records import Individual, PoolRecord, RunInfo, RunResult, from_plain, to_plain

T = TypeVar("T")

FILE = "run.sqlite"
SCHEMA = 1

# the columns beside `record` are copies, for people who look with the sqlite3 shell
_TABLES = (
    "CREATE TABLE run (name TEXT PRIMARY KEY, record TEXT NOT NULL)",
    "CREATE TABLE individual (id INTEGER PRIMARY KEY, added INTEGER UNIQUE NOT NULL, generation INTEGER NOT NULL,"
    " origin TEXT NOT NULL, time_s REAL, failure TEXT, record TEXT NOT NULL)",
    "CREATE TABLE note (added INTEGER PRIMARY KEY, kind TEXT NOT NULL, text TEXT NOT NULL)",
    f"PRAGMA user_version = {SCHEMA}",
)


def holds_run(folder: Path) -> bool:
    """Whether there is a store in this folder, of whatever state."""
    return (folder / FILE).exists()


def create_store(folder: Path) -> SqliteStore:
    """A new, empty store; the folder is made if need be and must not hold a run yet."""
    path = folder / FILE
    if holds_run(folder):
        raise StoreError(f"{folder} already holds a run")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the run folder {folder} cannot be made: {error.strerror}") from error
    with _clear_errors(path):
        connection = _connect(path, "rwc")
        connection.execute("PRAGMA journal_mode = WAL")
    store = SqliteStore(path, connection)
    with store.transaction():
        for statement in _TABLES:
            connection.execute(statement)
    return store


def open_store(folder: Path) -> SqliteStore:
    """The store of an existing run, for reading it or going on with it."""
    path = folder / FILE
    if not path.is_file():
        raise StoreError(f"{folder} holds no run: there is no {FILE} in it")
    with _clear_errors(path):
        connection = _connect(path, "rw")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA:
        connection.close()
        if version == 0:  # SQLite's own default: not ours, or killed before the tables were made
            raise StoreError(f"{path} holds no run")
        age = "a newer" if version > SCHEMA else "an older"
        raise StoreError(f"{path} was written by {age} version of cupilot (schema {version}, this one reads {SCHEMA})")
    return SqliteStore(path, connection)


def discard_store(folder: Path) -> None:
    """Remove a store that nothing was put into, and its folder when nothing else is in it."""
    for path in folder.glob(FILE + "*"):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


class SqliteStore:
    """See `cupilot.contracts.Store`; made by `create_store` and `open_store`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._repeating = False
        self._notes_to_skip = 0

    @property
    def begun(self) -> bool:
        return self._run_record("info") is not None

    def begin(self, info: RunInfo) -> None:
        if self._repeating and self.begun:
            if self.info() != info:
                raise StoreError(f"{self.path} holds a run that was asked for something else")
            return
        if self.begun:
            raise StoreError(f"{self.path} already holds a run")
        self._keep("info", info)

    def repeat(self) -> tuple[Individual, ...]:
        """Go on with a run by repeating it: what is here already is compared instead of added again."""
        self._repeating = True
        self._notes_to_skip = len(self._rows("SELECT added FROM note"))
        return tuple(self.individuals())

    def _is_repeated(self, individual: Individual) -> bool:
        rows = self._rows("SELECT record FROM individual WHERE id = ?", individual.id) if self._repeating else []
        if rows and self._decode(Individual, rows[0][0]).kernel != individual.kernel:
            raise StoreError(
                f"{self.path} cannot be continued: individual {individual.id} came out differently this time"
            )
        return bool(rows)

    def add(self, individual: Individual) -> None:
        if self._is_repeated(individual):
            return
        failure = individual.evaluation.failure
        with self.transaction():
            self._connection.execute(
                "INSERT INTO individual VALUES (?, (SELECT count(*) FROM individual), ?, ?, ?, ?, ?)",
                (
                    individual.id,
                    individual.generation,
                    individual.origin,
                    individual.time_s,
                    None if failure is None else f"{failure.stage}: {failure.kind}",
                    json.dumps(to_plain(individual)),
                ),
            )

    def note(self, kind: str, text: str) -> None:
        if self._notes_to_skip > 0:
            self._notes_to_skip -= 1
            return
        with self.transaction():
            self._connection.execute("INSERT INTO note (kind, text) VALUES (?, ?)", (kind, text))

    def finish(self, result: RunResult) -> None:
        self._keep("result", result)

    def info(self) -> RunInfo:
        record = self._run_record("info")
        if record is None:
            raise StoreError(f"{self.path} holds a run that was never begun")
        return self._decode(RunInfo, record)

    def result(self) -> RunResult | None:
        """The outcome; None while the run is going on, or when it was killed."""
        record = self._run_record("result")
        return None if record is None else self._decode(RunResult, record)

    def recalled(self, number: int, ask: Callable[[], tuple[PoolRecord, ...]]) -> tuple[PoolRecord, ...]:
        """What the pool answered the n-th question; a repeated run gets the same answer again."""
        name = f"recalled {number}"
        record = self._run_record(name)
        if record is None:
            answer = ask()
            self._keep(name, answer)
            return answer
        return tuple(self._decode(PoolRecord, json.dumps(one)) for one in json.loads(record))

    def individuals(self) -> Iterator[Individual]:
        for row in self._rows("SELECT record FROM individual ORDER BY added"):
            yield self._decode(Individual, row[0])

    def notes(self) -> Iterator[tuple[str, str]]:
        yield from self._rows("SELECT kind, text FROM note ORDER BY added")

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, also when the body raises."""
        with _clear_errors(self.path):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            finally:
                # still open only when something went wrong, Ctrl-C included
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _keep(self, name: str, record: object) -> None:
        with self.transaction():
            self._connection.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (name, json.dumps(to_plain(record))))

    def _run_record(self, name: str) -> str | None:
        rows = self._rows("SELECT record FROM run WHERE name = ?", name)
        return rows[0][0] if rows else None

    def _rows(self, query: str, *values: object) -> list[Any]:
        with _clear_errors(self.path):
            return self._connection.execute(query, values).fetchall()

    def _decode(self, kind: type[T], text: str) -> T:
        try:
            return from_plain(kind, json.loads(text))
        except (ValueError, DataError) as error:
            raise StoreError(f"{self.path} holds a record that cannot be read: {error}") from error


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # autocommit mode: transactions are begun and ended in one place, above
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise StoreError(f"{path} already holds this individual: {error}") from error
    except sqlite3.OperationalError as error:
        raise StoreError(f"{path} cannot be read or written: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path} is damaged: {error}") from error
