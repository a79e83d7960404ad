"""Numbers for people: three digits and a unit that suits, or one unit for a whole column so that digits align.

`PLAIN` is for terminals, prompts and whatever is searched or copied; `PAGE` is for pages that are read.  Both have the
same digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, isfinite, log10

_TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Typography:
    """``space`` is between a number and its unit, and between thousands; ``times`` ends a factor."""

    space: str
    times: str

    def grouped(self, value: float, digits: int = 0) -> str:
        return f"{value:,.{digits}f}".replace(",", self.space)

    def time_unit(self, times_s: Iterable[float | None]) -> TimeUnit:
        """The unit in which the shortest of these times has three digits or more."""
        known = [time_s for time_s in times_s if time_s is not None and time_s > 0 and isfinite(time_s)]
        least = min(known, default=1e-3)
        name, scale = next((unit for unit in _TIMES if least >= unit[1]), _TIMES[-1])
        return TimeUnit(name, scale, max(0, 2 - floor(log10(max(least / scale, 1e-2)))), self)

    def duration(self, time_s: float) -> str:
        return self.time_unit((time_s,)).text(time_s)

    def ratio(self, value: float | None) -> str:
        """A factor; three digits where it is small, none after the point where it is large."""
        if value is None or not isfinite(value):
            return ""
        return f"{self.grouped(value, 0 if value >= 100 else 1 if value >= 10 else 2)}{self.times}"

    def percent(self, share: float | None) -> str:
        if share is None or not isfinite(share):
            return ""
        return f"{100 * share:.{0 if share >= 0.0995 or share == 0 else 1}f}{self.space}%"

    def quantity(self, value: float, unit: str = "") -> str:
        """Three digits and a prefix, such as ``1.77 TB/s``."""
        factor, prefix = next((step for step in _PREFIXES if value >= step[0]), (1.0, ""))
        value /= factor
        digits = f"{value:.3g}" if value < 999.5 else f"{value:.0f}"  # 999.9 would be 1e+03
        return f"{digits}{self.space}{prefix}{unit}" if prefix or unit else digits


@dataclass(frozen=True)
class TimeUnit:
    """One unit for all times of a column, with digits after the point."""

    name: str
    scale_s: float
    digits: int
    typography: Typography

    def number(self, time_s: float | None) -> str:
        """Without the unit, which the column's head has."""
        return "" if time_s is None else self.typography.grouped(time_s / self.scale_s, self.digits)

    def text(self, time_s: float | None) -> str:
        return "" if time_s is None else f"{self.number(time_s)}{self.typography.space}{self.name}"


PLAIN = Typography(space=" ", times="x")
PAGE = Typography(space="\u202f", times="×")
"""Its space is narrow and never broken."""
duration, ratio, percent, quantity = PLAIN.duration, PLAIN.ratio, PLAIN.percent, PLAIN.quantity
