"""How children are made, and how often each way is taken: shares follow what has paid off."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

OPERATORS = ("cross", "mutate")
# no way is given up for good: what does not pay now may pay in another zone
FLOOR = 0.2


@dataclass
class Shares:
    """Wins and uses of each operator; a win is a child faster than all its parents."""

    wins: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OPERATORS, 0))
    uses: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OPERATORS, 0))

    def record(self, operator: str, won: bool) -> None:
        self.uses[operator] += 1
        self.wins[operator] += won

    def share(self, operator: str) -> float:
        """Success rates (with one success and two uses to begin with), normalised, above the floor."""
        rates = {name: (self.wins[name] + 1) / (self.uses[name] + 2) for name in OPERATORS}
        return FLOOR + (1 - FLOOR * len(OPERATORS)) * rates[operator] / sum(rates.values())

    def draw(self, rng: Random) -> str:
        return "mutate" if rng.random() < self.share("mutate") else "cross"

    def __str__(self) -> str:
        return ", ".join(f"{n} {self.share(n):.0%} ({self.wins[n]} of {self.uses[n]} paid)" for n in OPERATORS)
