"""Numbers for people: three digits and a unit that suits, or one unit for a whole column so that digits align."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, isfinite, log10

SPACE = "\u202f"
"""Narrow and never broken: between a number and its unit, and between thousands."""
_TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class TimeUnit:
    """One unit for all times of a column, with digits after the point."""

    name: str
    scale_s: float
    digits: int

    def number(self, time_s: float | None) -> str:
        """Without the unit, which the column's head has."""
        return "" if time_s is None else grouped(time_s / self.scale_s, self.digits)

    def text(self, time_s: float | None) -> str:
        return "" if time_s is None else f"{self.number(time_s)}{SPACE}{self.name}"


def time_unit(times_s: Iterable[float | None]) -> TimeUnit:
    """The unit in which the shortest of these times has three digits or more."""
    known = [time_s for time_s in times_s if time_s is not None and time_s > 0 and isfinite(time_s)]
    least = min(known, default=1e-3)
    name, scale = next((unit for unit in _TIMES if least >= unit[1]), _TIMES[-1])
    return TimeUnit(name, scale, max(0, 2 - floor(log10(max(least / scale, 1e-2)))))


def grouped(value: float, digits: int = 0) -> str:
    return f"{value:,.{digits}f}".replace(",", SPACE)


def duration(time_s: float) -> str:
    return time_unit((time_s,)).text(time_s)


def ratio(value: float | None) -> str:
    """A factor; three digits where it is small, none after the point where it is large."""
    if value is None or not isfinite(value):
        return ""
    return f"{grouped(value, 0 if value >= 100 else 1 if value >= 10 else 2)}×"


def percent(share: float | None) -> str:
    if share is None or not isfinite(share):
        return ""
    return f"{100 * share:.0f}{SPACE}%" if share >= 0.0995 or share == 0 else f"{100 * share:.1f}{SPACE}%"


def quantity(value: float, unit: str = "") -> str:
    """Three digits and a prefix, such as ``1.77 TB/s``."""
    for factor, prefix in _PREFIXES:
        if value >= factor:
            return f"{value / factor:.3g}{SPACE}{prefix}{unit}"
    return f"{value:.3g}{SPACE}{unit}".rstrip(SPACE)
