"""Where labels go in a picture, so that none covers another, a dot, or leaves the frame.

Widths are estimated, because nobody knows the reader's font: a little too wide for the usual ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import cos, sin

LETTER = 0.6
"""Mean width of a letter as a share of the font's size."""
GAP = 0.5
"""Kept between labels; more than what rounding the coordinates in the picture moves them."""


@dataclass(frozen=True)
class Box:
    """A rectangle; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def grown(self, by: float) -> Box:
        return Box(self.left - by, self.top - by, self.right + by, self.bottom + by)

    def holds(self, other: Box) -> bool:
        across = self.left <= other.left and other.right <= self.right
        return across and self.top <= other.top and other.bottom <= self.bottom


def text_width(text: str, size: float) -> float:
    return LETTER * size * len(text)


def text_box(text: str, size: float, x: float, y: float, anchor: str = "start") -> Box:
    """Of a line of text whose baseline is at y."""
    width = text_width(text, size)
    left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    return Box(left, y - 0.8 * size, left + width, y + 0.25 * size)


def slanted_boxes(text: str, size: float, x: float, y: float, angle: float) -> tuple[Box, ...]:
    """Small boxes along a text that starts at a point and is turned by an angle (in radians, upwards)."""
    width, half = text_width(text, size), 0.55 * size
    steps = max(2, int(width / half))
    middle = 0.28 * size  # of the letters, over the baseline
    found = []
    for step in range(steps + 1):
        along = width * step / steps
        cx, cy = x + along * cos(angle) - middle * sin(angle), y - along * sin(angle) - middle * cos(angle)
        found.append(Box(cx - half, cy - half, cx + half, cy + half))
    return tuple(found)


@dataclass
class Labels:
    """What is taken already, within a frame."""

    frame: Box
    taken: list[Box] = field(default_factory=list)

    def take(self, boxes: Iterable[Box]) -> None:
        self.taken += boxes

    def is_free(self, boxes: Sequence[Box]) -> bool:
        return all(
            self.frame.holds(box) and not any(box.grown(GAP).overlaps(other) for other in self.taken) for box in boxes
        )

    def first_free(self, candidates: Sequence[Sequence[Box]]) -> int | None:
        """The first candidate that is free, which then is taken; None where there is none."""
        for number, boxes in enumerate(candidates):
            if self.is_free(boxes):
                self.take(boxes)
                return number
        return None
