"""Pool records in SQLite: a table, and a full-text index over tags, zone, limit and text.

One process writes at a time, any number read meanwhile (write-ahead log).  Files of another schema
number are refused, not converted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from cupilot.database import Database, open_database
from cupilot.database import in_memory as database_in_memory
from cupilot.errors import DataError, StoreError
from cupilot.records.pool import PoolRecord, Sizes
from cupilot.strategies.algebra import canonical
from cupilot.strategies.pool_features import PoolQuery
from cupilot.strategies.pool_lines import line_of, record_of
from cupilot.strategies.pool_rank import Facts
from cupilot.strategies.pool_tags import with_families

SCHEMA = 1
# tells a pool from any other SQLite file, a run's store included
APPLICATION = 0x6375706C
# weights of the index's columns, in their order
WEIGHTS = {"operators": 10.0, "dtype": 1.0, "zone": 2.0, "limit": 2.0, "text": 1.0}

_TABLES = (
    "CREATE TABLE record (number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, problem TEXT NOT NULL,"
    " kernel TEXT NOT NULL, operators TEXT NOT NULL, elements INTEGER NOT NULL, row INTEGER, m INTEGER, n INTEGER,"
    ' k INTEGER, zone TEXT NOT NULL, "limit" TEXT NOT NULL, precision TEXT NOT NULL, device TEXT NOT NULL,'
    " time_s REAL NOT NULL, gain REAL NOT NULL, line TEXT NOT NULL)",
    "CREATE INDEX record_kernel ON record (kernel)",
    # shipped records that are not to be seen, and kernels that failed verification and never come back
    "CREATE TABLE hidden (id TEXT PRIMARY KEY)",
    "CREATE TABLE failed (kernel TEXT PRIMARY KEY)",
    """CREATE VIRTUAL TABLE search USING fts5(operators, dtype, zone, "limit", text,"""
    """ tokenize = "unicode61 tokenchars '_-:'")""",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {SCHEMA}",
)
_WORD = re.compile(r"[\w:-]+")
MOST_WORDS = 64
_FACTS = (
    'r.id, r.problem, r.operators, r.elements, r.row, r.m, r.n, r.k, r.zone, r."limit", r.precision, r.device,'
    " r.time_s, r.gain"
)


def open_file(path: Path) -> PoolFile:
    """The pool in a file, which is made when it is not there."""
    if path.exists() and not path.is_file():
        raise StoreError(f"{path} is not a pool: it is no ordinary file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the folder of the pool {path} cannot be made: {error.strerror}") from error
    database = open_database(path, f"the pool {path}")
    try:
        _make_ready(database, str(path))
    except BaseException:
        database.close()
        raise
    return PoolFile(str(path), database)


def in_memory(records: Iterable[PoolRecord], name: str) -> PoolFile:
    """A pool that is gone when it is closed."""
    database = database_in_memory(f"the pool {name}")
    _make_ready(database, name)
    file = PoolFile(name, database)
    with file.transaction():
        for record in records:
            file.put(record)
    return file


def _make_ready(database: Database, name: str) -> None:
    """Check that this is a pool of this schema; an empty file becomes one."""
    if database.number("user_version") == 0:
        # whoever comes second finds the tables there
        with database.transaction():
            if database.number("user_version") == 0 and database.is_empty():
                for statement in _TABLES:
                    database.execute(statement)
    if database.number("application_id") != APPLICATION:
        raise StoreError(f"{name} is not a pool")
    database.check_schema(SCHEMA)
    database.execute("PRAGMA journal_mode = WAL")


class PoolFile:
    """The tables; made by `open_file` and `in_memory`.  Knows nothing of what is shipped."""

    def __init__(self, name: str, database: Database) -> None:
        self.name = name
        self._database = database

    # --- reading -----------------------------------------------------------------------------

    def records(self) -> Iterator[PoolRecord]:
        """Everything, by id."""
        for (line,) in self._database.execute("SELECT line FROM record ORDER BY id"):
            yield self._decode(line)

    def record(self, id_: str) -> PoolRecord | None:
        rows = self._database.execute("SELECT line FROM record WHERE id = ?", id_)
        return self._decode(rows[0][0]) if rows else None

    def time_s(self, id_: str) -> float | None:
        rows = self._database.execute("SELECT time_s FROM record WHERE id = ?", id_)
        return float(rows[0][0]) if rows else None

    def ids(self, *, beginning: str = "", kernel: str | None = None) -> set[str]:
        """Ids that begin with a text, or that have this kernel."""
        rows = (
            self._database.execute("SELECT id FROM record WHERE substr(id, 1, ?) = ?", len(beginning), beginning)
            if kernel is None
            else self._database.execute("SELECT id FROM record WHERE kernel = ?", kernel)
        )
        return {row[0] for row in rows}

    def hidden(self) -> set[str]:
        """Ids of shipped records that are not to be seen."""
        return {row[0] for row in self._database.execute("SELECT id FROM hidden")}

    def failed(self) -> set[str]:
        """Digests of kernels that failed verification."""
        return {row[0] for row in self._database.execute("SELECT kernel FROM failed")}

    def candidates(self, query: PoolQuery) -> list[Facts]:
        """What shares an operator or a family with the query or, when it names none, anything at all.

        An empty query finds everything.  Only a query with words has a relevance: without them the index
        would rank by the length of texts.
        """
        expression = match_expression(query)
        if not expression:
            rows = self._database.execute(f"SELECT {_FACTS}, 0.0 FROM record r")
        else:
            weights = ", ".join(map(str, WEIGHTS.values()))
            relevance = f"-bm25(search, {weights})" if _terms("text", query.text) else "0.0"
            rows = self._database.execute(
                f"SELECT {_FACTS}, {relevance} FROM search JOIN record r ON r.number = search.rowid"
                " WHERE search MATCH ?",
                expression,
            )
        return [_facts(row) for row in rows]

    # --- writing, inside a transaction ---------------------------------------------------------

    def put(self, record: PoolRecord) -> None:
        """Add a record in the place of the one with the same id, if there is one."""
        self.remove(record.id)
        sizes = record.sizes
        number = self._database.insert(
            "INSERT INTO record VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            record.id, record.problem, record.kernel, " ".join(record.operators), sizes.elements, sizes.row,
            *(sizes.product or (None, None, None)), record.zone, record.limit, record.precision, record.device,
            record.time_s, record.gain, line_of(record),
        )  # fmt: skip
        self._database.execute(
            'INSERT INTO search (rowid, operators, dtype, zone, "limit", text) VALUES (?, ?, ?, ?, ?, ?)',
            number,
            " ".join(with_families(record.operators)),
            f"{record.dtype} {record.precision}",
            record.zone,
            record.limit,
            f"{record.task}\n{record.text}\n{canonical(record.strategy)}",
        )

    def remove(self, id_: str) -> None:
        self._database.execute("DELETE FROM search WHERE rowid = (SELECT number FROM record WHERE id = ?)", id_)
        self._database.execute("DELETE FROM record WHERE id = ?", id_)

    def hide(self, id_: str) -> None:
        self._database.execute("INSERT OR IGNORE INTO hidden VALUES (?)", id_)

    def fail(self, kernel: str) -> None:
        """Remove all records of a kernel and remember it."""
        for id_ in self.ids(kernel=kernel):
            self.remove(id_)
        self._database.execute("INSERT OR IGNORE INTO failed VALUES (?)", kernel)

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing."""
        return self._database.transaction()

    # --- underneath ----------------------------------------------------------------------------

    def close(self) -> None:
        self._database.close()

    def _decode(self, line: str) -> PoolRecord:
        try:
            return record_of(line, "record")
        except DataError as error:
            raise StoreError(f"{self.name} holds a record that cannot be read: {error}") from error


def match_expression(query: PoolQuery) -> str:
    """The query in the index's language; every word is quoted, so that no text can be taken for syntax.

    With operators in the query one of them, or a family, must be there; the rest only adds to the relevance.
    """
    operators = _terms("operators", " ".join(with_families(query.operators)))
    others = [
        *_terms("dtype", f"{query.dtype} {query.precision}"),
        *_terms("zone", query.zone),
        *_terms("limit", query.limit),
        *_terms("text", query.text),
    ]
    if not operators:
        return " OR ".join(others)
    return f"({' OR '.join(operators)}) AND ({' OR '.join([*operators, *others])})"


def _terms(column: str, text: str) -> list[str]:
    words = dict.fromkeys(_WORD.findall(text.lower()))
    return [f'{column} : "{word}"' for word in list(words)[:MOST_WORDS]]


def _facts(row: tuple[Any, ...]) -> Facts:
    id_, problem, operators, elements, length, m, n, k, *rest = row
    return Facts(id_, problem, operators, Sizes(elements, length, None if m is None else (m, n, k)), *rest)
