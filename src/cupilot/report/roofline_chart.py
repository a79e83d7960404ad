"""The roofline as a chart, for reports and for ``cupilot profile --plot``: one specification, two kinds of points.

Both axes are logarithmic.  Diagonals are the bandwidths of L1, L2 and DRAM (dashed: what streaming kernels reach of
DRAM), horizontals the compute ceilings; dotted lines are the ridges between the zones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cupilot.gpu.roofline import BETWEEN, COMPUTE_BOUND, LEVELS, MEMORY_BOUND, Roof
from cupilot.numbers import PAGE, duration, quantity
from cupilot.report.chart import Json, Row, chart, decades, part, picture
from cupilot.tasks.roofline_position import WHOLE, RooflinePoint, shown_points

LOW, HIGH = 1 / 3, 3.0
"""Room around what is drawn, as factors on logarithmic axes."""
HEADING = 0.15
"""Room above the highest roof for its label and the names of the zones, as a share of what is below it."""
SIZE = 820, 460
COLOURS = ("#d55e00", "#0077bb", "#009e73", "#cc5599", "#b58900", "#8250df", "#3399cc")
"""Of the longest launches."""
CALL_COLOUR, OTHERS_COLOUR = "#24292f", "#8c959f"


def compute_ceilings(roof: Roof) -> list[tuple[str, float]]:
    """The peaks of the units, with the precision that they compute in."""
    core = "fp32" if roof.precision == "tf32" else roof.precision
    tensor = "tf32" if roof.precision == "fp32" else roof.precision
    found = [(f"CUDA cores, {core}", roof.core_flop_per_s)]
    return [*found, (f"tensor cores, {tensor}", roof.tensor_flop_per_s)] if roof.has_tensor_cores else found


def roofline_chart(
    roof: Roof,
    ceilings: Sequence[tuple[str, float]],
    word: str,
    unit: str,
    *,
    points: Mapping[str, Json],
    datasets: Mapping[str, Sequence[Row]],
    xs: Sequence[float],
    ys: Sequence[float],
    description: str,
) -> str:
    """A specification's JSON; ``points`` are its parameters and the layers on top, which lie at ``xs`` and ``ys``."""
    peak = max(value for _, value in ceilings)
    ridges = sorted(value / roof.dram_bytes_per_s for _, value in ceilings)
    x_domain = [min([*xs, ridges[-1] / 30]) * LOW, max([*xs, ridges[-1]]) * HIGH]
    lowest, highest = min([*ys, peak / 300]) * LOW, max([*ys, peak])
    y_domain = [lowest, highest * (highest / lowest) ** HEADING]
    edges = [x_domain[0], *ridges, x_domain[1]]
    zones = (MEMORY_BOUND, COMPUTE_BOUND) if len(ridges) == 1 else (MEMORY_BOUND, BETWEEN, COMPUTE_BOUND)
    labels: list[Row] = []
    lines: list[Row] = []
    for level in LEVELS:
        speed = roof.bytes_per_s(level)
        lines += [{"roof": level, **end} for end in _diagonal(speed, peak, x_domain, y_domain)]
        name = f"{level} {PAGE.quantity(speed, 'B/s')}"
        if level == "DRAM":
            name += f", {PAGE.quantity(roof.dram_reached_bytes_per_s, 'B/s')} reached"
        labels.append({"label": name, "side": "left", **_diagonal(speed, peak, x_domain, y_domain)[0]})
    for name, value in ceilings:
        left = max(x_domain[0], value / roof.l1_bytes_per_s)
        lines += [{"roof": name, "x": x, "y": value} for x in (left, x_domain[1])]
        text = f"{name}: {PAGE.quantity(value, f'{unit}/s')}"
        labels.append({"label": text, "x": x_domain[1], "y": value, "side": "right"})
    drawn: dict[str, Sequence[Row]] = {
        **datasets, "roofs": lines, "roof_labels": labels,
        "reached": _diagonal(roof.dram_reached_bytes_per_s, peak, x_domain, y_domain),
        "ridges": [{"x": ridge, "label": f"ridge {ridge:.3g}"} for ridge in ridges],
        "zones": [{"zone": name, "x": (edges[n] * edges[n + 1]) ** 0.5} for n, name in enumerate(zones)],
    }  # fmt: skip
    rise, run = (f"log({high} / {low})" for low, high in (y_domain, x_domain))
    return chart(
        "roofline", drawn, description=description, params=points["params"], points=points["layer"],
        x_domain=x_domain, y_domain=y_domain, x_ticks=decades(*x_domain), y_ticks=decades(*y_domain),
        x_title=f"{word} per byte", y_title=f"{word} per second, {unit}/s",
        angle=f"-atan2(height / {rise}, width / {run}) * 180 / PI",
    )  # fmt: skip


def _diagonal(
    speed: float, peak: float, x_domain: Sequence[float], y_domain: Sequence[float]
) -> list[dict[str, float]]:
    """A bandwidth, from the edge of the chart to the highest ceiling."""
    left = max(x_domain[0], y_domain[0] / speed)
    return [{"x": x, "y": x * speed} for x in (left, peak / speed)]


# --- the launches of one call --------------------------------------------------------------------


def launches_picture(roof: Roof, points: Sequence[RooflinePoint], title: str, subtitle: str, suffix: str) -> bytes:
    """The picture's file; a point is a mark for each level that bytes passed, joined by a line."""
    return picture(launches_chart(roof, points), title, subtitle, SIZE, suffix)


def launches_chart(roof: Roof, points: Sequence[RooflinePoint]) -> str:
    """The specification; points without counted operations are left out."""
    shown = [point for point in shown_points(points) if point.flop_per_s > 0]
    legend = _legend(shown)
    marks: list[Row] = []
    spans: list[Row] = []
    for point, (name, _) in zip(shown, legend, strict=True):
        rate = point.flop_per_s
        placed = {level.level: level.intensity for level in point.levels if level.intensity is not None}
        for level, x in placed.items():
            text = f"{point.label} by bytes of {level}: {x:.3g} operations per byte, {quantity(rate, 'flop/s')}"
            marks.append({"name": name, "level": level, "x": x, "y": rate, "label": text})
        if placed:
            spans.append({"name": name, "x": min(placed.values()), "x2": max(placed.values()), "y": rate})
    # the shorter launches after those with a colour of their own, the whole call last
    colours = dict(sorted(legend, key=lambda each: (each[1] == CALL_COLOUR, each[1] == OTHERS_COLOUR)))
    return roofline_chart(
        roof, compute_ceilings(roof), "operations", "flop",
        points=part("roofline_launches", names=list(colours), colours=list(colours.values())),
        datasets={"points": marks, "spans": spans},
        xs=[float(str(mark["x"])) for mark in marks],
        ys=[float(str(mark["y"])) for mark in marks],
        description=f"Roofline of {roof.gpu} with {len(shown)} points",
    )  # fmt: skip


def _legend(shown: Sequence[RooflinePoint]) -> list[tuple[str, str]]:
    """A name and a colour for each point: the longest launches have their own, the others share one."""
    launches = [n for n, point in enumerate(shown) if point.label != WHOLE]
    longest = sorted(launches, key=lambda n: -shown[n].time_s)[: len(COLOURS)]
    own = dict(zip(sorted(longest), COLOURS, strict=False))
    others = f"{len(launches) - len(longest)} shorter launches", OTHERS_COLOUR
    return [
        (f"{point.label}, {duration(point.time_s)}", own.get(n, CALL_COLOUR))
        if n in own or point.label == WHOLE
        else others
        for n, point in enumerate(shown)
    ]
