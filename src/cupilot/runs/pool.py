"""The pool as a run uses it: similar strategies and new cards come from it, the best of each epoch goes into it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from cupilot.contracts import Store
from cupilot.errors import DataError, StoreError
from cupilot.records import Card, Evaluation, Guidance, Individual, PoolRecord, RunInfo, Task
from cupilot.strategies import Deck, load_deck

POOL_FILE = "pool.sqlite"
SIMILAR = 6


def pool_path(store: Store, chosen: Path | None, cache: Path) -> Path:
    """The pool's file, the same when the run is resumed: the one chosen, else the user's own below ``cache``."""
    asked = "" if chosen is None else str(chosen.absolute())
    (kept,) = store.once("pool", str, lambda: (asked,))
    return Path(kept) if kept else cache / POOL_FILE


class RunPool:
    """Answers of the pool are kept with the run, so that a resumed run gets the same ones.

    Records of the very same task are left out: repeating a run must not depend on having run it.
    """

    def __init__(self, task: Task, info: RunInfo, store: Store, path: Path) -> None:
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
    """Similar records among those that come with cupilot: a benchmark must not depend on what was run before."""
    from cupilot.strategies.pool import features, open_pool

    with open_pool(None) as pool:
        matches = pool.similar(features(task, evaluation), SIMILAR, besides=sha256(task.source.encode()).hexdigest())
    return tuple(match.record for match in matches)
