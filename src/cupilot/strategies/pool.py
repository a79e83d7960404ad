"""The pool: strategies that worked in earlier runs, retrieved by similarity.

A pool is a file of the user's own records together with the shipped records, which are read-only: they can be
superseded or hidden, never changed.  Retrieval is by operator tags, sizes, zone, limit and words (see
`cupilot.strategies.pool_rank`); there is no semantic search.  A `Pool` is for one thread at a time; other processes may
read and write the same file meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType

from cupilot.errors import StoreError, UserError
from cupilot.records.pool import PoolRecord
from cupilot.strategies.algebra import same
from cupilot.strategies.pool_features import PoolQuery, features, pool_record
from cupilot.strategies.pool_file import PoolFile, in_memory, open_file
from cupilot.strategies.pool_lines import check, read_lines, write_lines
from cupilot.strategies.pool_rank import PoolMatch, rank

__all__ = ["SHIPPED", "Pool", "PoolMatch", "PoolQuery", "features", "open_pool", "pool_record"]

SHIPPED = Path(__file__).with_name("seed_pool.jsonl")
# ids may be cut to this many characters when they are typed
SHORTEST_NAME = 4


def open_pool(path: Path | None, seed: bool = True) -> Pool:
    """The pool in a file, created if necessary; None keeps nothing.  ``seed`` includes the shipped records."""
    shipped = in_memory(read_lines(SHIPPED) if seed else (), SHIPPED.name)
    try:
        return Pool(in_memory((), "in memory") if path is None else open_file(path), shipped)
    except BaseException:
        shipped.close()
        raise


class Pool:
    """Made by `open_pool`."""

    def __init__(self, own: PoolFile, shipped: PoolFile) -> None:
        self._own = own
        self._shipped = shipped

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with closing(self._own), closing(self._shipped):
            pass

    # --- looking -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(len(ids) for ids in self._visible())

    def records(self, *, shipped: bool = True) -> list[PoolRecord]:
        """All visible records, by task and then by time; with ``shipped`` False only the user's own."""
        own, others = self._visible()
        found = [record for record in self._own.records() if record.id in own]
        if shipped:
            found += [record for record in self._shipped.records() if record.id in others]
        return sorted(found, key=lambda record: (record.task, record.problem, record.time_s, record.id))

    def find(self, name: str) -> PoolRecord:
        """The one record with this id (or the beginning of it) or kernel digest."""
        found = self._named(name)
        if len(found) > 1:
            raise UserError(f"{name!r} names {len(found)} records of the pool: {', '.join(sorted(found))}")
        record = self._record(found.pop(), self.shipped())
        if record is None:
            raise StoreError(f"the record {name!r} was removed from the pool {self._own.name} just now")
        return record

    def shipped(self) -> set[str]:
        """The ids of the visible shipped records."""
        return self._visible()[1]

    def similar(self, query: PoolQuery, count: int, *, besides: str = "") -> list[PoolMatch]:
        """The ``count`` most promising records for a query, best first, no two with the same moves.

        ``besides`` is the digest of a task (as in `Proof`) whose own records are left out.
        """
        own, shipped = self._visible()
        facts = [facts for facts in self._own.candidates(query) if facts.id in own]
        facts += [facts for facts in self._shipped.candidates(query) if facts.id in shipped]
        chosen: list[PoolMatch] = []
        for fact, likeness, octaves in rank(query, facts):
            if len(chosen) >= count:
                break
            record = self._record(fact.id, shipped)
            if record is None or record.proof.task == besides:
                continue
            if not any(same(record.strategy, other.record.strategy) for other in chosen):
                chosen.append(PoolMatch(record, likeness, octaves, fact.id in shipped))
        return chosen

    def export_lines(self, path: Path, *, shipped: bool = False) -> int:
        """Write the user's own records (and the shipped ones) as JSON lines; returns how many."""
        return write_lines(path, self.records(shipped=shipped))

    # --- changing ----------------------------------------------------------------------------

    def add(self, record: PoolRecord) -> bool:
        """Keep a record; False when the same moves did as well for this task, or its kernel is known to fail.

        An invalid record (see `cupilot.strategies.pool_lines.check`) is a `DataError`.
        """
        check(record)
        return self._add((record,)) == 1

    def import_lines(self, path: Path) -> int:
        """Add all records of a file, or none if a line is invalid; returns how many were new or better."""
        return self._add(tuple(read_lines(path)))

    def forget(self, name: str) -> tuple[str, ...]:
        """Remove a record by its id or a prefix of it, or all records of a kernel by its digest; returns the ids.

        Shipped records are hidden.  Later runs may find the same strategies again.
        """
        found = self._named(name)
        if len(found) > 1 and not found <= self._own.ids(kernel=name) | self._shipped.ids(kernel=name):
            raise UserError(f"{name!r} names {len(found)} records of the pool: {', '.join(sorted(found))}")
        with self._own.transaction():
            for id_ in found:
                self._own.remove(id_)
                if self._shipped.time_s(id_) is not None:
                    self._own.hide(id_)
        return tuple(sorted(found))

    def drop_failed(self, kernel: str) -> tuple[str, ...]:
        """Remove the records of a kernel that failed verification, and never accept it again; returns the ids."""
        with self._own.transaction():
            found = self._own.ids(kernel=kernel) | (self._shipped.ids(kernel=kernel) & self.shipped())
            self._own.fail(kernel)
        return tuple(sorted(found))

    # --- internals ---------------------------------------------------------------------------

    def _visible(self) -> tuple[set[str], set[str]]:
        """The ids of the visible own and shipped records; of two with one id the faster, else the own."""
        own, shipped = self._own.ids(), self._shipped.ids() - self._own.hidden()
        for kernel in self._own.failed():
            shipped -= self._shipped.ids(kernel=kernel)
        for id_ in sorted(own & shipped):
            outdone = (self._shipped.time_s(id_) or 0.0) < (self._own.time_s(id_) or 0.0)
            (own if outdone else shipped).remove(id_)
        return own, shipped

    def _record(self, id_: str, shipped: set[str]) -> PoolRecord | None:
        """The record, or None when another process has just removed it."""
        return (self._shipped if id_ in shipped else self._own).record(id_)

    def _named(self, name: str) -> set[str]:
        visible = set().union(*self._visible())
        found: set[str] = set()
        for file in (self._own, self._shipped):
            found |= file.ids(kernel=name) | (file.ids(beginning=name) if len(name) >= SHORTEST_NAME else set())
        if not found & visible:
            raise UserError(f"the pool {self._own.name} has no record {name!r}")
        return found & visible

    def _add(self, records: Sequence[PoolRecord]) -> int:
        added = 0
        with self._own.transaction():
            failed, hidden = self._own.failed(), self._own.hidden()
            for record in records:
                known = [self._own.time_s(record.id), None if record.id in hidden else self._shipped.time_s(record.id)]
                if record.kernel not in failed and all(time_s is None or record.time_s < time_s for time_s in known):
                    self._own.put(record)
                    added += 1
        return added
