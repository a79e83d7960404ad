"""Renders the templates.  All values are escaped, and an unknown name is an error."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from math import log
from urllib.parse import quote

import jinja2

from cupilot import __version__
from cupilot.numbers import PAGE

STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
MARKS = {"running": "▶", "stopped": "■", "finished": "✓", "unreadable": "!"}
"""A symbol beside each state's name."""
WIDTH, HEIGHT, EDGE = 240, 48, 2.0


class Pages:
    """The templates of this package."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader("cupilot.ui", "templates"),
            undefined=jinja2.StrictUndefined,
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "duration": PAGE.duration, "ratio": PAGE.ratio, "percent": PAGE.percent, "ago": self._ago, "moment": moment,
            "polyline": polyline, "url_path": quote, "fingerprint": fingerprint,
        }  # fmt: skip
        self._environment.globals |= {"version": __version__, "marks": MARKS, "width": WIDTH, "height": HEIGHT}

    def render(self, template: str, **values: object) -> str:
        return self._environment.get_template(template).render(values)

    def _ago(self, time_s: float) -> str:
        return ago(self._clock() - time_s)


def ago(passed_s: float) -> str:
    """How long ago, in the largest unit that fits; the page's script updates it in the same words."""
    for unit, length_s in (("d", 86400), ("h", 3600), ("min", 60)):
        if passed_s >= length_s:
            return f"{int(passed_s // length_s)} {unit} ago"
    return "just now"


def moment(time_s: float) -> str:
    """A time in the format of HTML's ``datetime`` attribute."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def polyline(best_times_s: Sequence[float]) -> str:
    """The points of a step line of best times, on a logarithmic scale."""
    logs = [log(time_s) for time_s in best_times_s]
    if len(logs) < 2:
        return ""
    low, high = min(logs), max(logs)
    scale = (HEIGHT - 2 * EDGE) / (high - low) if high > low else 0.0
    across = WIDTH / len(logs)
    points = []
    for index, each in enumerate(logs):
        y = EDGE + scale * (high - each)
        points += [(index * across, y), ((index + 1) * across, y)]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def fingerprint(value: object) -> str:
    """A digest of the value, by which the page's script finds changed rows."""
    return sha256(repr(value).encode()).hexdigest()[:16]


def static(name: str) -> str | None:
    """A static file of this package; None for any other name."""
    return (files("cupilot.ui") / "static" / name).read_text(encoding="utf-8") if name in STATIC else None


def as_json(**values: str | int | bool) -> str:
    return json.dumps(values)
