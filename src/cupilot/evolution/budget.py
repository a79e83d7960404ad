"""What a run may spend, and what it has spent.

Caps are checked before each candidate is begun.  Evaluations are reserved for a candidate and what it did not need
is given back, so their cap is never exceeded; tokens and USD are checked before each call as well (see
`cupilot.llm.CappedModel`); wall time and device time may be exceeded by the candidates in flight.  A run
that goes on has its wall and device time anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import fields

from cupilot.records import Budget

WORDS = {
    "evaluations": "{:.0f} evaluations",
    "wall_s": "{:.0f} s of wall time",
    "device_s": "{:.0f} s on the device",
    "tokens": "{:.0f} tokens",
    "usd": "{:.2f} USD",
}


class Spending:
    """Counts what is spent; safe to use from several threads.

    ``clock`` gives seconds; ``calls`` gives (tokens, USD) that language models have cost so far.
    """

    def __init__(
        self,
        budget: Budget,
        clock: Callable[[], float],
        calls: Callable[[], tuple[int, float]] = lambda: (0, 0.0),
    ) -> None:
        self.budget = budget
        self._clock = clock
        self._calls = calls
        self._began_s = clock()
        self._lock = threading.Lock()
        self._evaluations = 0
        self._device_s = 0.0

    def reserve(self, most: int) -> int:
        """Set up to ``most`` evaluations aside, at least one, as many as the cap leaves; how many it were."""
        with self._lock:
            cap = self.budget.evaluations
            count = most if cap is None else max(1, min(most, cap - self._evaluations))
            self._evaluations += count
            return count

    def give_back(self, count: int) -> None:
        """Evaluations that were reserved and not made."""
        with self._lock:
            self._evaluations -= count

    def add_device_s(self, seconds: float) -> None:
        with self._lock:
            self._device_s += seconds

    def spent(self) -> dict[str, float]:
        tokens, usd = self._calls()
        with self._lock:
            return {
                "evaluations": self._evaluations,
                "wall_s": self._clock() - self._began_s,
                "device_s": self._device_s,
                "tokens": tokens,
                "usd": usd,
            }

    def exhausted(self) -> str:
        """The cap that is reached, in words; empty while there is room for another candidate."""
        spent = self.spent()
        for field in fields(self.budget):
            cap = getattr(self.budget, field.name)
            if cap is not None and spent[field.name] >= cap:
                return WORDS[field.name].format(cap)
        return ""

    def left(self) -> str:
        """What remains under each cap, for people."""
        spent = self.spent()
        parts = []
        for field in fields(self.budget):
            cap = getattr(self.budget, field.name)
            if cap is not None:
                parts.append(WORDS[field.name].format(max(cap - spent[field.name], 0)))
        return ", ".join(parts)
