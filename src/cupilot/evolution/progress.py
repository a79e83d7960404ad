"""What an observer of a search is told, and why a search ends."""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.records import Individual, RunResult


@dataclass(frozen=True)
class Progress:
    """What an observer is told; ``kind`` is ``plain``, ``begun``, ``individual``, ``generation`` or ``stopping``.

    ``individual`` is the newest, where the event is about one; ``population`` are the fastest that parents are chosen
    from.  ``begun`` and ``taken`` count candidates, ``spent`` has the budget's words.
    """

    kind: str
    generation: int
    result: RunResult
    left: str = ""
    individual: Individual | None = None
    population: tuple[Individual, ...] = ()
    begun: int = 0
    taken: int = 0
    spent: tuple[tuple[str, float], ...] = ()


WHY = {
    "generations": "all generations were done",
    "plateau": "no gain for several generations",
    "limit": "the best kernel is within 5 % of the task's attainable limit on this device",
    "exhausted": "no strategy was found that had not been tried",
    "budget": "the budget is spent",
    "interrupted": "interrupted by the user",
}
