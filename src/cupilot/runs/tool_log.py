"""Answers of tools in the run's own file: a run that is resumed or replayed gets the same ones and pays once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from cupilot.database import Database, open_database
from cupilot.errors import DataError, StoreError
from cupilot.records import ToolUse, from_plain, to_plain

_TABLE = (
    "CREATE TABLE IF NOT EXISTS tool_call (key TEXT PRIMARY KEY, added INTEGER NOT NULL, tool TEXT NOT NULL,"
    " device_s REAL NOT NULL, record TEXT NOT NULL)"
)


@dataclass(frozen=True)
class ToolRecord:
    """One answer about one kernel; ``time_s`` is the kernel's, None when it is not known to be right."""

    text: str
    use: ToolUse
    time_s: float | None = None
    failed: bool = False


def tool_key(*parts: object) -> str:
    """What an answer depends on: the tool, its kernel and arguments, the task, the device and how it judges."""
    return hashlib.sha256(json.dumps(to_plain(parts), sort_keys=True).encode()).hexdigest()


class ToolLog:
    """A table of the run's file; thread-safe.  The first answer put under a key stays.

    ``earlier`` is the file of a run that is replayed: its answers are looked up too, and copied.
    """

    def __init__(self, path: Path, earlier: Path | None = None) -> None:
        self._path = path
        self._lock = Lock()
        self._database = open_database(path, f"the file of recorded tools {path}", any_thread=True)
        self._database.execute(_TABLE)
        self._earlier: Database | None = None
        if earlier is not None:
            self._earlier = open_database(earlier, f"the run {earlier}", mode="look", any_thread=True)
            if not self._earlier.execute("SELECT 1 FROM sqlite_master WHERE name = 'tool_call'"):
                self._earlier.close()
                self._earlier = None

    def get(self, key: str) -> ToolRecord | None:
        with self._lock:
            record = self._find(self._database, key)
            if record is None and self._earlier is not None:
                record = self._find(self._earlier, key)
                if record is not None:
                    self._add(key, record)
            return record

    def put(self, key: str, record: ToolRecord) -> ToolRecord:
        """Keep an answer; returns the one that is kept, which another thread may have put first."""
        with self._lock:
            self._add(key, record)
            return self._find(self._database, key) or record

    def _find(self, database: Database, key: str) -> ToolRecord | None:
        rows = database.execute("SELECT record FROM tool_call WHERE key = ?", key)
        return self._decode(rows[0][0]) if rows else None

    def _add(self, key: str, record: ToolRecord) -> None:
        self._database.execute(
            "INSERT OR IGNORE INTO tool_call VALUES (?, (SELECT count(*) FROM tool_call), ?, ?, ?)",
            key, record.use.tool, record.use.device_s, json.dumps(to_plain(record)),
        )  # fmt: skip

    def close(self) -> None:
        with self._lock:
            self._database.close()
            if self._earlier is not None:
                self._earlier.close()

    def _decode(self, text: str) -> ToolRecord:
        try:
            return from_plain(ToolRecord, json.loads(text))
        except (ValueError, DataError) as error:
            raise StoreError(f"{self._path} holds a tool's answer that cannot be read: {error}") from error
