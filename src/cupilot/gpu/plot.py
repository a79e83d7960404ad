"""The roofline as a picture: one SVG file that needs nothing else, in light and dark.

Both axes are logarithmic.  Diagonals are the bandwidths of L1, L2 and DRAM, horizontals the two compute ceilings; bands
are the zones between the ridge points over DRAM.  A dot's shape is its level, its colour its group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import atan2, ceil, cos, degrees, floor, hypot, log10, sin
from xml.sax.saxutils import escape, quoteattr

from cupilot.gpu.plot_labels import Box, Labels, slanted_boxes, text_box, text_width
from cupilot.gpu.roofline import BETWEEN, COMPUTE_BOUND, LEVELS, MEMORY_BOUND, Roof
from cupilot.gpu.standing import Position
from cupilot.numbers import quantity

WIDTH, HEIGHT = 960, 600
FRAME = Box(84.0, 64.0, WIDTH - 28.0, HEIGHT - 72.0)
TITLE, TEXT, SMALL = 18.0, 13.0, 12.0
MOST_NAMED = 12
"""With more labels than this, dots are named only under the pointer."""
DOT = 10.0
"""Half of the room that a dot takes."""
COLOURS = ("#d55e00", "#0077bb", "#009e73", "#cc5599", "#b58900", "#8250df", "#3399cc")
RAMP = ((0x44, 0x88, 0xDD), (0xAA, 0x66, 0xBB), (0xEE, 0x77, 0x22))
"""Colours of more groups than that, which are taken to be in order (generations, say)."""
ZONE_COLOURS = {MEMORY_BOUND: "#0077bb", BETWEEN: "#8250df", COMPUTE_BOUND: "#009e73"}

STYLE = """
.roofline text { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; fill: #24292f;
  stroke: #ffffff; stroke-width: 3px; stroke-linejoin: round; paint-order: stroke }
.roofline .paper { fill: #ffffff }
.roofline text.faint { fill: #57606a }
.roofline .grid { stroke: #d0d7de; stroke-width: 1 }
.roofline .axis { stroke: #57606a; stroke-width: 1; fill: none }
.roofline .roof { stroke: #24292f; stroke-width: 2; fill: none; stroke-linecap: round }
.roofline .reached { stroke: #24292f; stroke-width: 1; stroke-dasharray: 5 4 }
.roofline .ridge { stroke: #57606a; stroke-width: 1; stroke-dasharray: 2 4 }
.roofline .band { fill-opacity: 0.07 }
.roofline .dot { stroke: #ffffff; stroke-width: 1.5 }
.roofline .mark { fill: #57606a }
@media (prefers-color-scheme: dark) {
.roofline text { fill: #e6edf3; stroke: #0d1117 }
.roofline .paper { fill: #0d1117 }
.roofline text.faint { fill: #9198a1 }
.roofline .grid { stroke: #30363d }
.roofline .axis, .roofline .ridge { stroke: #9198a1 }
.roofline .roof, .roofline .reached { stroke: #e6edf3 }
.roofline .band { fill-opacity: 0.16 }
.roofline .dot { stroke: #0d1117 }
.roofline .mark { fill: #9198a1 }
}
"""


@dataclass(frozen=True)
class Dot:
    """Operations per byte and per second; ``level`` is one of `LEVELS` or empty, ``group`` gives the colour."""

    label: str
    intensity: float
    flop_per_s: float
    level: str = ""
    group: str = ""


def dots_of(places: Sequence[Position]) -> tuple[Dot, ...]:
    """Three dots for each launch and for the whole call, which is left out where it is one launch and no more."""
    *launches, whole = places
    if len(launches) == 1 and [x.bytes for x in launches[0].levels] == [x.bytes for x in whole.levels]:
        # the launch under its own name, with the whole call's operations, which may be the task's
        shown = [(launches[0].label, whole)]
    else:
        shown = [(place.label, place) for place in places]
    return tuple(
        Dot(label, level.intensity, place.flop_per_s, level.level, label)
        for label, place in shown
        for level in place.levels
        if level.intensity is not None
    )


def roofline_svg(roof: Roof, dots: Sequence[Dot], title: str = "", subtitle: str = "") -> str:
    """The picture's text; dots without a place on logarithmic axes are left out."""
    return _Picture(roof, tuple(d for d in dots if d.intensity > 0 and d.flop_per_s > 0)).svg(title, subtitle)


@dataclass
class _Picture:
    roof: Roof
    dots: tuple[Dot, ...]
    parts: list[str] = field(default_factory=list)
    labels: Labels = field(default_factory=lambda: Labels(FRAME))

    def __post_init__(self) -> None:
        roof, dots = self.roof, self.dots
        peak = roof.tensor_flop_per_s
        self.x_range = (
            floor(log10(min([0.1, roof.ridge_low / 60, *(d.intensity / 1.5 for d in dots)]))),
            ceil(log10(max([roof.ridge_high * 5, *(d.intensity * 1.5 for d in dots)]))),
        )
        self.y_range = (
            floor(min([log10(peak) - 3.2, *(log10(d.flop_per_s) - 0.15 for d in dots)])),
            max([log10(peak) + 0.75, *(log10(d.flop_per_s) + 0.3 for d in dots)]),
        )
        self.groups = list(dict.fromkeys(dot.group for dot in dots))

    def svg(self, title: str, subtitle: str) -> str:
        legend = self._legend()
        height = HEIGHT + 22 * (legend[-1][1] if legend else 0)
        self.labels.take(_dot_box(self.x(d.intensity), self.y(d.flop_per_s)) for d in self.dots)
        self._zones()
        self._axes()
        self._roofs()
        self._dots()
        for text, row, x, mark in legend:
            y = HEIGHT - 12 + 22 * row
            self._add(mark.replace("@x", f"{x:.1f}").replace("@y", f"{y - 4:.1f}"))
            self._text(text, x + 14, y, SMALL)
        heading = title or f"Roofline of {self.roof.gpu}"
        self._text(_cut(heading, TITLE, FRAME.right - 24), 24, 30, TITLE, weight="600")
        self._text(_cut(subtitle, SMALL, FRAME.right - 24), 24, 48, SMALL, kind="faint")
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="roofline" viewBox="0 0 {WIDTH} {height:g}" '
            f'width="{WIDTH}" height="{height:g}" role="img" aria-label={quoteattr(heading)}>\n'
            f"<title>{escape(heading)}</title>\n<style>{STYLE}</style>\n"
            f'<rect class="paper" width="{WIDTH}" height="{height:g}"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )

    # --- from numbers to the page --------------------------------------------------------------

    def x(self, intensity: float) -> float:
        low, high = self.x_range
        return FRAME.left + (log10(intensity) - low) / (high - low) * (FRAME.right - FRAME.left)

    def y(self, flop_per_s: float) -> float:
        low, high = self.y_range
        return FRAME.bottom - (log10(flop_per_s) - low) / (high - low) * (FRAME.bottom - FRAME.top)

    def _add(self, part: str) -> None:
        self.parts.append(part)

    def _line(self, kind: str, x1: float, y1: float, x2: float, y2: float, title: str = "", more: str = "") -> None:
        tip = f"<title>{escape(title)}</title>" if title else ""
        self._add(f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{more}>{tip}</line>')

    def _text(
        self, text: str, x: float, y: float, size: float, anchor: str = "start", *, kind: str = "", weight: str = "",
        turn: float = 0.0,
    ) -> None:  # fmt: skip
        if not text:
            return
        more = f' class="{kind}"' if kind else ""
        more += f' font-weight="{weight}"' if weight else ""
        more += f' text-anchor="{anchor}"' if anchor != "start" else ""
        more += f' transform="rotate({turn:.2f} {x:.1f} {y:.1f})"' if turn else ""
        self._add(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}"{more}>{escape(text)}</text>')

    # --- what is drawn -------------------------------------------------------------------------

    def _zones(self) -> None:
        ridges = sorted({self.x(self.roof.ridge_low), self.x(self.roof.ridge_high)})
        names = (MEMORY_BOUND, BETWEEN, COMPUTE_BOUND) if len(ridges) > 1 else (MEMORY_BOUND, COMPUTE_BOUND)
        edges = [FRAME.left, *ridges, FRAME.right]
        for name, left, right in zip(names, edges, edges[1:], strict=False):
            self._add(
                f'<rect class="band" x="{left:.1f}" y="{FRAME.top:g}" width="{right - left:.1f}" '
                f'height="{FRAME.bottom - FRAME.top:g}" fill="{ZONE_COLOURS[name]}"><title>{name}</title></rect>'
            )
            box = text_box(name, TEXT, (left + right) / 2, FRAME.top + 18, "middle")
            if right - left > box.right - box.left and self.labels.first_free([[box]]) is not None:
                self._text(name, (left + right) / 2, FRAME.top + 18, TEXT, "middle", kind="faint", weight="600")

    def _axes(self) -> None:
        for decade in range(self.x_range[0], self.x_range[1] + 1):
            at = self.x(10.0**decade)
            self._line("grid", at, FRAME.top, at, FRAME.bottom)
            self._text(f"{10.0**decade:g}", at, FRAME.bottom + 18, SMALL, "middle")
        for decade in range(ceil(self.y_range[0]), floor(self.y_range[1]) + 1):
            at = self.y(10.0**decade)
            self._line("grid", FRAME.left, at, FRAME.right, at)
            self._text(quantity(10.0**decade, ""), FRAME.left - 8, at + 4, SMALL, "end")
        self._add(
            f'<rect class="axis" x="{FRAME.left:g}" y="{FRAME.top:g}" width="{FRAME.right - FRAME.left:g}" '
            f'height="{FRAME.bottom - FRAME.top:g}"/>'
        )
        middle = (FRAME.left + FRAME.right) / 2
        self._text("operations per byte", middle, FRAME.bottom + 38, TEXT, "middle")
        self._text("operations per second", 26, (FRAME.top + FRAME.bottom) / 2, TEXT, "middle", turn=-90)
        sides = (("end", -5, self.roof.ridge_low), ("start", 5, self.roof.ridge_high))
        for anchor, shift, ridge in sides if self.roof.has_tensor_cores else sides[:1]:
            at, text = self.x(ridge), f"ridge {ridge:.3g}"
            self._line("ridge", at, FRAME.top, at, FRAME.bottom, f"{text} operations per byte")
            if self.labels.first_free([[text_box(text, SMALL, at + shift, FRAME.bottom - 8, anchor)]]) is not None:
                self._text(text, at + shift, FRAME.bottom - 8, SMALL, anchor, kind="faint")

    def _roofs(self) -> None:
        roof = self.roof
        peak, top_bytes = roof.tensor_flop_per_s, max(roof.bytes_per_s(level) for level in LEVELS)
        tensor_name = "tf32" if roof.precision == "fp32" else roof.precision
        lines = [(f"CUDA cores, {'fp32' if roof.precision == 'tf32' else roof.precision}", roof.core_flop_per_s)]
        if roof.has_tensor_cores:
            lines.append((f"tensor cores, {tensor_name}", peak))
        for name, flop_per_s in lines:
            at, text = self.y(flop_per_s), f"{name}: {quantity(flop_per_s, 'flop/s')}"
            self._line("roof", self.x(flop_per_s / top_bytes), at, FRAME.right, at, text)
            # above its line, below it where another line is near, further left where dots are
            spots = [(FRAME.right - 8 - step, at + rise) for step in range(0, 400, 20) for rise in (-7, 16)]
            chosen = self.labels.first_free([[text_box(text, SMALL, x, y, "end")] for x, y in spots])
            if chosen is not None:
                self._text(text, *spots[chosen], SMALL, "end")
        reached = roof.dram_reached_bytes_per_s
        gap = log10(roof.dram_bytes_per_s / reached) * (self.y(1.0) - self.y(10.0))
        start, end = self._diagonal(reached)
        tip = f"DRAM, as streaming kernels reach it: {quantity(reached, 'B/s')}"
        self._line("reached", *start, *end, tip)
        for level in LEVELS:
            short = f"{level} {quantity(roof.bytes_per_s(level), 'B/s')}"
            text = f"{short}, {quantity(reached, 'B/s')} reached" if level == "DRAM" else short
            start, end = self._diagonal(roof.bytes_per_s(level))
            self._line("roof", *start, *end, text)
            rise = 15 + gap if level == "DRAM" else -6
            if not self._along(text, start, end, rise):
                self._along(short, start, end, rise)

    def _diagonal(self, bytes_per_s: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """From the frame's edge to the upper ceiling."""
        low = max(10.0 ** self.x_range[0], 10.0 ** self.y_range[0] / bytes_per_s)
        high = self.roof.tensor_flop_per_s / bytes_per_s
        return (self.x(low), self.y(low * bytes_per_s)), (self.x(high), self.y(high * bytes_per_s))

    def _along(self, text: str, start: tuple[float, float], end: tuple[float, float], rise: float) -> bool:
        """A label beside a diagonal, where no dot is; False where there is no such place."""
        angle = atan2(start[1] - end[1], end[0] - start[0])
        length = hypot(end[0] - start[0], end[1] - start[1])
        spots = []
        for step in range(14, max(15, int(length - text_width(text, SMALL))), 12):
            x, y = start[0] + step * cos(angle), start[1] - step * sin(angle)
            spots.append((x + rise * sin(angle), y + rise * cos(angle)))
        chosen = self.labels.first_free([slanted_boxes(text, SMALL, x, y, angle) for x, y in spots])
        if chosen is not None:
            self._text(text, *spots[chosen], SMALL, turn=-degrees(angle))
        return chosen is not None

    def _dots(self) -> None:
        together: dict[tuple[str, str, float], list[Dot]] = {}
        for dot in self.dots:
            together.setdefault((dot.label, dot.group, dot.flop_per_s), []).append(dot)
        for (_, group, flop_per_s), dots in together.items():
            ends = [self.x(dot.intensity) for dot in dots]
            if len(dots) > 1:
                at, stroke = self.y(flop_per_s), f' stroke="{self._colour(group)}" stroke-width="1.5"'
                self._line("link", min(ends), at, max(ends), at, more=stroke)
            for dot in dots:
                self._add(_mark(dot.level, self.x(dot.intensity), self.y(flop_per_s), self._colour(group), _tip(dot)))
        if len(together) <= MOST_NAMED:
            for (label, _, flop_per_s), dots in together.items():
                ends = [self.x(dot.intensity) for dot in dots]
                self._name(label, min(ends), max(ends), self.y(flop_per_s))

    def _name(self, label: str, left: float, right: float, y: float) -> None:
        """Beside the dots, or above or below them; nowhere if there is no room."""
        text, middle = _cut(label, SMALL, 260), (left + right) / 2
        spots = [(right + 13, y + 4, "start"), (left - 13, y + 4, "end")]
        for rise in (21, 35, 49):
            spots += [(middle, y - rise + 8, "middle"), (middle, y + rise + 2, "middle")]
        chosen = self.labels.first_free([[text_box(text, SMALL, *spot)] for spot in spots])
        if chosen is not None:
            x, at, anchor = spots[chosen]
            self._text(text, x, at, SMALL, anchor, weight="600")

    def _colour(self, group: str) -> str:
        number, count = self.groups.index(group), len(self.groups)
        if count <= len(COLOURS):
            return COLOURS[number]
        at = number / (count - 1) * (len(RAMP) - 1)
        low = min(int(at), len(RAMP) - 2)
        mixed = (round(a + (b - a) * (at - low)) for a, b in zip(RAMP[low], RAMP[low + 1], strict=True))
        return "#" + "".join(f"{value:02x}" for value in mixed)

    def _legend(self) -> list[tuple[str, int, float, str]]:
        """Text, row, x and mark of each entry: shapes by level, then colours by group (of many, first and last)."""
        entries = [
            (f"by bytes of {level}", _mark(level, None, None, "", ""))
            for level in LEVELS
            if any(dot.level == level for dot in self.dots)
        ]
        groups = [group for group in self.groups if group]
        if len(groups) > len(COLOURS):
            groups = [groups[0], groups[-1]]
        if len(groups) > 1 or len({dot.label for dot in self.dots}) > MOST_NAMED:
            entries += [
                (_cut(group, SMALL, 240), _mark("", None, None, self._colour(group), group)) for group in groups
            ]
        found, row, x = [], 0, FRAME.left
        for text, mark in entries:
            width = 14 + text_width(text, SMALL) + 18
            if x + width > FRAME.right and x > FRAME.left:
                row, x = row + 1, FRAME.left
            found.append((text, row, x, mark))
            x += width
        return found


def _mark(level: str, x: float | None, y: float | None, colour: str, tip: str) -> str:
    """A circle for L1, a square for L2, a diamond for DRAM: each fits into the one before, where all have one place."""
    at = f"{'@x' if x is None else f'{x:.1f}'} {'@y' if y is None else f'{y:.1f}'}"
    shape = {
        "L1": '<circle r="9"',
        "L2": '<path d="M-6 -6H6V6H-6Z"',
        "DRAM": '<path d="M0 -6.5L6.5 0L0 6.5L-6.5 0Z"',
    }.get(level, '<circle r="6"')
    paint = f' fill="{colour}"' if colour else ""
    body = f"><title>{escape(tip)}</title></{shape[1:].partition(' ')[0]}>" if tip else "/>"
    return f'{shape} class="{"dot" if colour else "mark"}" transform="translate({at})"{paint}{body}'


def _tip(dot: Dot) -> str:
    by = f" by bytes of {dot.level}" if dot.level else ""
    group = f" ({dot.group})" if dot.group not in ("", dot.label) else ""
    speed = quantity(dot.flop_per_s, "flop/s")
    return f"{dot.label}{group}{by}: {dot.intensity:.3g} operations per byte, {speed}"


def _dot_box(x: float, y: float) -> Box:
    return Box(x - DOT, y - DOT, x + DOT, y + DOT)


def _cut(text: str, size: float, width: float) -> str:
    while text and text_width(text, size) > width:
        text = text[:-2].rstrip() + "…"
    return text
