"""Logs of recorded calls: a table in an SQLite file, or a file of JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from cupilot.contracts import Reply, Request, ToolSpec
from cupilot.database import open_database
from cupilot.errors import DataError, StoreError, unwritable
from cupilot.llm.recording import RecordedCall, abridged
from cupilot.llm.role import role_of
from cupilot.records import from_plain, to_plain

# the columns besides `record` are copies, for reading with the sqlite3 shell
_TABLE = (
    "CREATE TABLE IF NOT EXISTS llm_call (key TEXT PRIMARY KEY, added INTEGER NOT NULL, role TEXT NOT NULL,"
    " model TEXT NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, price_usd REAL,"
    " record TEXT NOT NULL)"
)


class SqliteCallLog:
    """Complete calls in a table of their own; the file may be a run's store.

    A call is on disk when `put` returns.  Other processes may read and write the file at the same time.
    ``readonly`` is for replaying: the file is not changed, and must contain recorded calls.
    """

    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        self._path = path
        self._lock = Lock()
        if readonly and not path.is_file():
            raise StoreError(f"{path} does not exist, so there is nothing to replay")
        mode = "look" if readonly else "rwc"
        # one connection for all threads, used under the lock
        self._database = open_database(path, f"the file of recorded calls {path}", mode=mode, any_thread=True)
        if not readonly:
            self._database.execute(_TABLE)
        if readonly and not self._rows("SELECT 1 FROM sqlite_master WHERE name = 'llm_call'"):
            self.close()
            raise StoreError(f"{path} holds no recorded calls")

    def get(self, key: str) -> Reply | None:
        rows = self._rows("SELECT record FROM llm_call WHERE key = ?", key)
        return self._decode(rows[0][0]).reply if rows else None

    def put(self, key: str, request: Request, reply: Reply, price_usd: float | None) -> None:
        call = RecordedCall(key, reply.model, request, reply, price_usd)
        self._rows(
            "INSERT OR IGNORE INTO llm_call VALUES (?, (SELECT count(*) FROM llm_call), ?, ?, ?, ?, ?, ?)",
            key, role_of(request), reply.model, reply.input_tokens, reply.output_tokens, price_usd,
            json.dumps(to_plain(call)),
        )  # fmt: skip

    def calls(self) -> Iterator[RecordedCall]:
        for row in self._rows("SELECT record FROM llm_call ORDER BY added"):
            yield self._decode(row[0])

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _rows(self, statement: str, *values: object) -> list[Any]:
        with self._lock:
            return self._database.execute(statement, *values)

    def _decode(self, text: str) -> RecordedCall:
        try:
            return from_plain(RecordedCall, json.loads(text))
        except (ValueError, DataError) as error:
            raise StoreError(f"{self._path} holds a call that cannot be read: {error}") from error


class JsonLinesCallLog:
    """One call per line with digests of the prompt's texts: small, and readable in a diff.

    The whole file is held in memory.  An incomplete last line, of a process that was killed, is dropped; any other line
    that cannot be read is an error.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._calls: dict[str, RecordedCall] = {}
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"{path} cannot be read: {error}") from error
        *lines, self._rest = text.split("\n")
        for number, line in enumerate(lines, start=1):
            call = self._decode(line, number)
            self._calls.setdefault(call.key, call)

    def get(self, key: str) -> Reply | None:
        with self._lock:
            return self._calls[key].reply if key in self._calls else None

    def put(self, key: str, request: Request, reply: Reply, price_usd: float | None) -> None:
        tools = tuple(ToolSpec(tool.name, "", "") for tool in request.tools)
        kept = replace(request, messages=tuple(abridged(message) for message in request.messages), tools=tools)
        call = RecordedCall(key, reply.model, kept, reply, price_usd)
        with self._lock:
            if key not in self._calls:
                self._append(json.dumps(to_plain(call)))
                self._calls[key] = call

    def calls(self) -> Iterator[RecordedCall]:
        with self._lock:
            return iter(tuple(self._calls.values()))

    def _append(self, line: str) -> None:
        try:
            with self._path.open("r+b" if self._path.exists() else "wb") as file:
                file.seek(-len(self._rest.encode()), os.SEEK_END)
                file.truncate()
                file.write(line.encode() + b"\n")
        except OSError as error:
            raise unwritable(self._path, error) from error
        self._rest = ""

    def _decode(self, line: str, number: int) -> RecordedCall:
        try:
            return from_plain(RecordedCall, json.loads(line))
        except (ValueError, DataError) as error:
            raise StoreError(f"{self._path}, line {number}: {error}") from error
