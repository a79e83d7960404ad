"""How children are made, and how often each way is taken: shares follow what has paid off."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

OPERATORS = ("cross", "mutate")
# no way is given up for good: what does not pay now may pay in another zone
FLOOR = 0.2
LEAST_CROSSED = 1 / 3
"""Crossing is what the method is about: of the children so far at least this share, wherever two strategies differ."""


@dataclass
class Shares:
    """Wins and uses of each operator, and how many children were begun with it.

    A win is a child faster than all its parents; a tie is none.
    """

    wins: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OPERATORS, 0))
    uses: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OPERATORS, 0))
    begun: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OPERATORS, 0))

    def begin(self, operator: str) -> None:
        self.begun[operator] += 1

    def record(self, operator: str, won: bool, begun: str = "") -> None:
        """A child is there; ``begun`` is the operator that it was begun with, if it came to be by another."""
        self.uses[operator] += 1
        self.wins[operator] += won
        if begun and begun != operator:
            self.begun[begun] -= 1
            self.begun[operator] += 1

    def share(self, operator: str) -> float:
        """Success rates (with one success and two uses to begin with), normalised, above the floor."""
        rates = {name: (self.wins[name] + 1) / (self.uses[name] + 2) for name in OPERATORS}
        return FLOOR + (1 - FLOOR * len(OPERATORS)) * rates[operator] / sum(rates.values())

    def draw(self, rng: Random) -> str:
        """By the shares, but crossing where there would be too few crossings otherwise."""
        drawn = "mutate" if rng.random() < self.share("mutate") else "cross"
        return "cross" if self.begun["cross"] < LEAST_CROSSED * (sum(self.begun.values()) + 1) else drawn

    def __str__(self) -> str:
        return ", ".join(f"{n} {self.share(n):.0%} ({self.wins[n]} of {self.uses[n]} paid)" for n in OPERATORS)
