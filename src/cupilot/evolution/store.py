"""A run on disk: one SQLite file per run folder, complete at every moment.

One process writes, which a lock beside the file sees to; any number read meanwhile (write-ahead log).  What a
caller added is on disk
when the call returns, so a killed run loses at most the candidates in flight.  Files of another
schema number are refused, not converted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import IO, TypeVar

from cupilot.database import Database, open_database
from cupilot.errors import DataError, MachineError, StoreError, unwritable
from cupilot.records import Individual, Outline, RunInfo, RunResult, from_plain, to_plain

T = TypeVar("T")

FILE = "run.sqlite"
LOCK = FILE + ".lock"
LOG = FILE + "-wal"
SCHEMA = 2
ONCE = "once: "

# the columns beside `record` are copies, for people who look with the sqlite3 shell
_TABLES = (
    "CREATE TABLE run (name TEXT PRIMARY KEY, record TEXT NOT NULL)",
    "CREATE TABLE individual (id INTEGER PRIMARY KEY, added INTEGER UNIQUE NOT NULL, generation INTEGER NOT NULL,"
    " origin TEXT NOT NULL, time_s REAL, failure TEXT, record TEXT NOT NULL)",
    "CREATE TABLE note (added INTEGER PRIMARY KEY, kind TEXT NOT NULL, text TEXT NOT NULL)",
    f"PRAGMA user_version = {SCHEMA}",
)


def next_folder(runs: Path, task: str) -> Path:
    """Make and return ``runs/<task>-<n>`` with the next free number; two runs never share one."""
    number = 1
    while True:
        folder = runs / f"{task}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        except OSError as error:
            raise MachineError(f"the run folder {folder} cannot be made: {error.strerror}") from error
        else:
            return folder


def holds_run(folder: Path) -> bool:
    """Whether there is a store in this folder, of whatever state."""
    return (folder / FILE).exists()


def create_store(folder: Path) -> SqliteStore:
    """A new, empty store; the folder is made if need be and must not hold a run yet."""
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the run folder {folder} cannot be made: {error.strerror}") from error
    if holds_run(folder):
        raise StoreError(f"{folder} already holds a run")
    lock = _lock(folder)
    try:
        if holds_run(folder):  # somebody else was faster
            raise StoreError(f"{folder} already holds a run")
        database = open_database(path, str(path))
        database.execute("PRAGMA journal_mode = WAL")
        with database.transaction():
            for statement in _TABLES:
                database.execute(statement)
    except BaseException:
        lock.close()
        raise
    return SqliteStore(path, database, lock)


def open_store(folder: Path) -> SqliteStore:
    """The store of an existing run, for reading it or going on with it."""
    return _open(folder, _mode(folder))


def read_store(folder: Path) -> SqliteStore:
    """The store of an existing run for an onlooker, who changes no file, whoever else is at work on it.

    A run that begins while this is open may not be seen, or be seen as a damaged file: look again then.
    """
    return _open(folder, "look")


def _open(folder: Path, mode: str) -> SqliteStore:
    path = folder / FILE
    if not path.is_file():
        raise StoreError(f"{folder} holds no run: there is no {FILE} in it")
    database = open_database(path, str(path), mode=mode)
    try:
        if database.number("user_version") == 0:  # SQLite's own default: not ours, or killed before the tables
            raise StoreError(f"{path} holds no run")
        database.check_schema(SCHEMA)
    except BaseException:
        database.close()
        raise
    return SqliteStore(path, database)


def _mode(folder: Path) -> str:
    """For a folder that may not be written (somebody else's, an archive): reading, which is all that can be done."""
    writable = os.access(folder, os.W_OK) and os.access(folder / FILE, os.W_OK)
    return "rw" if writable else "look"


def _lock(folder: Path) -> IO[str]:
    """The right to write into a run's folder, until the file is closed or the process ends, however it ends."""
    path = folder / LOCK
    try:
        lock = path.open("w", encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        flock(lock, LOCK_EX | LOCK_NB)
    except OSError as error:
        lock.close()
        raise StoreError(f"another process is at work on the run in {folder}") from error
    return lock


def discard_store(folder: Path) -> None:
    """Remove a store that nothing was put into, and its folder when nothing else is in it."""
    for path in folder.glob(FILE + "*"):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


class SqliteStore:
    """See `cupilot.contracts.Store`; made by `create_store` and `open_store`."""

    def __init__(self, path: Path, database: Database, lock: IO[str] | None = None) -> None:
        self.path = path
        self._database = database
        self._lock = lock  # None: for reading only, until the run is repeated
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
        self._lock = self._lock or _lock(self.path.parent)
        self._repeating = True
        self._notes_to_skip = len(self._database.execute("SELECT added FROM note"))
        return tuple(self.individuals())

    def _is_repeated(self, individual: Individual) -> bool:
        if not self._repeating:
            return False
        rows = self._database.execute("SELECT record FROM individual WHERE id = ?", individual.id)
        if rows and self._decode(Individual, rows[0][0]).kernel != individual.kernel:
            raise StoreError(
                f"{self.path} cannot be continued: individual {individual.id} came out differently this time"
            )
        return bool(rows)

    def add(self, individual: Individual) -> None:
        if self._is_repeated(individual):
            return
        failure = individual.evaluation.failure
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO individual VALUES (?, (SELECT count(*) FROM individual), ?, ?, ?, ?, ?)",
                individual.id,
                individual.generation,
                individual.origin,
                individual.time_s,
                None if failure is None else f"{failure.stage}: {failure.kind}",
                json.dumps(to_plain(individual)),
            )

    def note(self, kind: str, text: str) -> None:
        if self._notes_to_skip > 0:
            self._notes_to_skip -= 1
            return
        with self._database.transaction():
            self._database.execute("INSERT INTO note (kind, text) VALUES (?, ?)", kind, text)

    def finish(self, result: RunResult) -> None:
        self._keep("result", result)

    def info(self) -> RunInfo:
        record = self._run_record("info")
        if record is None:
            raise StoreError(f"{self.path} holds a run that was never begun")
        return self._decode(RunInfo, record)

    def result(self) -> RunResult | None:
        record = self._run_record("result")
        return None if record is None else self._decode(RunResult, record)

    def once(self, name: str, kind: type[T], ask: Callable[[], tuple[T, ...]]) -> tuple[T, ...]:
        record = self._run_record(ONCE + name)
        if record is None:
            answer = ask()
            self._keep(ONCE + name, answer)
            return answer
        return tuple(self._decode(kind, json.dumps(one)) for one in json.loads(record))

    def inherit(self, other: SqliteStore) -> None:
        known = other._database.execute("SELECT name, record FROM run WHERE substr(name, 1, ?) = ?", len(ONCE), ONCE)
        with self._database.transaction():
            for name, record in known:
                self._database.execute("INSERT OR IGNORE INTO run VALUES (?, ?)", name, record)

    def individuals(self) -> Iterator[Individual]:
        for row in self._database.execute("SELECT record FROM individual ORDER BY added"):
            yield self._decode(Individual, row[0])

    def counts(self) -> tuple[int, int]:
        ((individuals, notes),) = self._database.execute(
            "SELECT (SELECT count(*) FROM individual), (SELECT count(*) FROM note)"
        )
        return individuals, notes

    def outlines(self) -> tuple[Outline, ...]:
        # their records stay undecoded, which is much faster
        timing = "json_extract(record, '$.evaluation.timing.{}')"
        rows = self._database.execute(
            f"SELECT id, generation, origin, time_s, failure, {timing.format('source')}, {timing.format('device')}"
            " FROM individual ORDER BY added"
        )
        return tuple(Outline(*row) for row in rows)

    def individual(self, number: int) -> Individual:
        rows = self._database.execute("SELECT record FROM individual WHERE id = ?", number)
        if not rows:
            raise StoreError(f"{self.path} has no individual {number}")
        return self._decode(Individual, rows[0][0])

    def notes(self) -> Iterator[tuple[str, str]]:
        yield from self._database.execute("SELECT kind, text FROM note ORDER BY added")

    def close(self) -> None:
        self._database.close()
        if self._lock is not None:
            self._lock.close()

    def _keep(self, name: str, record: object) -> None:
        with self._database.transaction():
            self._database.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", name, json.dumps(to_plain(record)))

    def _run_record(self, name: str) -> str | None:
        rows = self._database.execute("SELECT record FROM run WHERE name = ?", name)
        return rows[0][0] if rows else None

    def _decode(self, kind: type[T], text: str) -> T:
        try:
            return from_plain(kind, json.loads(text))
        except (ValueError, DataError) as error:
            raise StoreError(f"{self.path} holds a record that cannot be read: {error}") from error
