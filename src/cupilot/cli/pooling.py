"""The pool as a run sees it: asked for similar strategies and new cards, told the best at the end of each epoch."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from cupilot.cli.environment import cache_folder
from cupilot.errors import DataError, StoreError
from cupilot.evolution.store import SqliteStore
from cupilot.records import Card, Evaluation, Guidance, Individual, PoolRecord, RunInfo, Task
from cupilot.strategies import Deck, load_deck

POOL_FILE = "pool.sqlite"
SIMILAR = 6


def pool_path(store: SqliteStore, chosen: Path | None) -> Path:
    """The file that a run asks and feeds, also when it goes on later: the one chosen, else the user's own."""
    asked = "" if chosen is None else str(chosen.absolute())
    (kept,) = store.once("pool", str, lambda: (asked,))
    return Path(kept) if kept else cache_folder() / POOL_FILE


class PoolMemory:
    """What the pool says is kept with the run, so that a run that goes on hears the same again.

    Records of the very same task are left out: repeating a run must not depend on having run it.
    """

    def __init__(self, task: Task, info: RunInfo, store: SqliteStore, path: Path) -> None:
        self._task = task
        self._info = info
        self._store = store
        self._path = path
        self._asked = 0
        self._own = sha256(task.source.encode()).hexdigest()

    def deck(self) -> Deck:
        """The shipped cards, and those for moves that language models invented and that proved themselves."""
        shipped = load_deck()
        proven = self._store.once("cards", Card, lambda: self._proven(shipped)) if self._info.pooled else ()
        return Deck((*shipped.values(), *proven))

    def recall(self, task: Task, evaluation: Evaluation) -> tuple[PoolRecord, ...]:
        if not self._info.pooled:
            return ()
        self._asked += 1
        return self._store.once(f"recalled {self._asked}", PoolRecord, lambda: self._look(evaluation))

    def remember(self, plain: Individual, best: Individual, guidance: Guidance | None) -> None:
        from cupilot.strategies.pool import open_pool, pool_record

        if guidance is None or not self._info.pooled:
            return
        record = pool_record(self._task, plain, best, guidance, version=self._info.version)
        if record is None:
            return
        try:
            with open_pool(self._path) as pool:
                pool.add(record)
        except (DataError, StoreError) as error:
            # a run's result must not be lost because the pool cannot take it
            self._store.note("pool", f"{best.id} is not in the pool: {error}")

    def _proven(self, shipped: Deck) -> tuple[Card, ...]:
        from cupilot.strategies.pool import open_pool
        from cupilot.strategies.pool_cards import proven_cards

        with open_pool(self._path) as pool:
            return proven_cards(pool, shipped, besides=self._own)

    def _look(self, evaluation: Evaluation) -> tuple[PoolRecord, ...]:
        from cupilot.strategies.pool import features, open_pool

        with open_pool(self._path) as pool:
            matches = pool.similar(features(self._task, evaluation), SIMILAR, besides=self._own)
        return tuple(match.record for match in matches)


def shipped_records(task: Task, evaluation: Evaluation) -> tuple[PoolRecord, ...]:
    """What the records that come with the program say: a benchmark must not depend on what was run before."""
    from cupilot.strategies.pool import features, open_pool

    with open_pool(None) as pool:
        matches = pool.similar(features(task, evaluation), SIMILAR, besides=sha256(task.source.encode()).hexdigest())
    return tuple(match.record for match in matches)
