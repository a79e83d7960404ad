"""A profile on the terminal: one compact page per device, or one row for each of several."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape

from cupilot.cli.terminal import Terminal
from cupilot.evaluation.launch_view import (
    LaunchView,
    MemoryRow,
    OperationView,
    ProfileView,
    count,
    lane_texts,
    occupancy_text,
    residence,
    shape_text,
    time_parts,
    waiting_text,
)
from cupilot.evaluation.profiling import Profiled
from cupilot.expert.prophet import WORDS
from cupilot.gpu import GpuSpec
from cupilot.gpu.roofline import LATENCY_BOUND, Roof
from cupilot.numbers import duration, percent, quantity, ratio
from cupilot.records import Kernel, Profile, Timing
from cupilot.tasks.lower_bound import TaskLimit
from cupilot.tasks.roofline_position import RooflinePoint, RooflinePosition, shown_points

DETAILED = 3
"""Launches that are shown in full: the longest."""
LISTED, HOTTEST = 20, 6
BAR, TEXT = 30, 84
NAME = 48
NOT_VERIFIED = "not verified here: cupilot evaluate does that"


def show(found: Profiled, spec: GpuSpec, kernel: Kernel, terminal: Terminal) -> None:
    """Everything about one device."""
    view = found.view(spec, kernel)
    launches = view.launches
    longest = sorted(range(len(launches)), key=lambda n: -launches[n].timing.time_s)[:DETAILED]
    if len(launches) + len(view.operations) > 1:
        _show_steps(view, terminal)
    for number in sorted(longest):
        title = cut(launches[number].label, NAME)
        many = f", launch {number + 1} of {len(launches)}" if len(launches) > 1 else ""
        terminal.line(f"\n{title}{many}")
        _show_launch(launches[number], terminal)
    if found.finding is not None:
        terminal.line(f"\nfinding: {found.finding.message} (so this kernel does not pass cupilot evaluate)")
    terminal.line("\nroofline")
    _show_places(found, terminal)
    for line in (*standing_lines(found.standing, found.timing, found.roof), *source_lines(found.profile, found.timing)):
        terminal.line(line)


def compare(rows: Sequence[tuple[Profiled, GpuSpec]], terminal: Terminal) -> None:
    """A row for each device; the fastest stands out."""
    cells = [
        (
            found.device, duration(found.timing.time_s), found.timing.source, found.standing.limit, found.standing.zone,
            f"{headroom(found.standing)} the limit", _occupancy_of(found, spec),
        )
        for found, spec in rows
    ]  # fmt: skip
    fastest = min(range(len(rows)), key=lambda n: rows[n][0].timing.time_s, default=None)
    columns = ("device", "time", "source", "limit", "zone", "headroom", "occupancy")
    terminal.table(columns, cells, emphasis=fastest)


# --- launches ----------------------------------------------------------------------------------


def _show_steps(view: ProfileView, terminal: Terminal) -> None:
    """All launches, fills and copies, with their shares of the time."""
    listed: list[LaunchView | OperationView] = [*view.launches, *view.operations]
    rows = [
        (cut(step.label, NAME), duration(step.timing.time_s), percent(step.share), step.timing.limit) for step in listed
    ]
    steps = len(view.launches)
    copies = f", fills and copies: {len(view.operations)}" if view.operations else ""
    terminal.line(f"\nlaunches: {steps}{copies}; {duration(view.modelled.time_s)} with the gaps between them")
    terminal.table(("", "time", "of the call", "limit"), rows[:LISTED])
    if len(rows) > LISTED:
        terminal.line(f"and {len(rows) - LISTED} more, which --json has")
    if steps > DETAILED:
        terminal.line(f"the {DETAILED} longest launches follow, --json has all")


def _show_launch(view: LaunchView, terminal: Terminal) -> None:
    for line in (shape_text(view), occupancy_text(view), _time_line(view.timing)):
        terminal.line(f"  {line}")
    terminal.line("\nwhere the time goes (modelled)")
    for line in bars(view.timing):
        terminal.line(f"  {line}")
    terminal.line()
    rows = [
        (u.name, quantity(u.rate, f"{u.unit}/s"), quantity(u.ceiling, f"{u.unit}/s"), percent(u.share), u.source)
        for u in view.units
    ]
    terminal.table(("unit", "reached", "ceiling", "share", "source"), rows)
    terminal.line()
    columns = ("memory", "requests", "sectors", "per request", "hit rate", "bytes", "source")
    terminal.table(columns, [_memory_cells(row) for row in view.memory])
    for line in (*lane_texts(view.launch), *filter(None, (waiting_text(view.launch),))):
        terminal.line(line)
    if view.lines:
        terminal.line()
        terminal.table(("hottest lines", "time", "instructions", "sectors"), _line_cells(view))


def _time_line(timing: Timing) -> str:
    spread = f" ± {percent(timing.uncertainty)}" if timing.uncertainty else ""
    where = f"{timing.source}, {timing.device}"
    return f"time {duration(timing.time_s)}{spread} ({where}), limit {timing.limit or 'not known'}"


def bars(timing: Timing) -> list[str]:
    """The breakdown, longest part first."""
    shown = time_parts(timing)
    width = max((len(name) for name, _ in shown), default=0)
    return [f"{name:<{width}} {'█' * round(BAR * share):<{BAR}} {percent(share):>7}" for name, share in shown]


def _memory_cells(row: MemoryRow) -> tuple[str, ...]:
    per = row.sectors_per_request
    requests, sectors = ("" if number is None else count(number) for number in (row.requests, row.sectors))
    each = "" if per is None else f"{per:.3g}"
    return row.name, requests, sectors, each, percent(row.hit_rate), quantity(row.bytes, "B"), row.source


def _line_cells(view: LaunchView) -> list[tuple[str, str, str, str]]:
    """The source lines that take longest, by the model, with what they do."""
    shown = view.lines[:HOTTEST]
    width = max(len(str(hot.line)) for hot, _ in shown)
    return [
        (
            # cells of tables may carry markup, and source has brackets of its own
            escape(f"{hot.line:>{width}}  {cut(text, TEXT)}"), percent(hot.cost), percent(hot.instructions),
            percent(hot.sectors),
        )
        for hot, text in shown
    ]  # fmt: skip


# --- the roofline ------------------------------------------------------------------------------


def _show_places(found: Profiled, terminal: Terminal) -> None:
    roof = found.roof
    tensor = f", {quantity(roof.tensor_flop_per_s, 'flop/s')} tensor cores" if roof.has_tensor_cores else ""
    reached = quantity(roof.dram_reached_bytes_per_s, "B/s")
    terminal.line(
        f"  {roof.precision}: {quantity(roof.core_flop_per_s, 'flop/s')} CUDA cores{tensor}; "
        f"L1 {quantity(roof.l1_bytes_per_s, 'B/s')}, L2 {quantity(roof.l2_bytes_per_s, 'B/s')}, "
        f"DRAM {quantity(roof.dram_bytes_per_s, 'B/s')} ({reached} reached by streaming)"
    )
    terminal.table(
        ("operations per byte of", "L1", "L2", "DRAM", "speed", "zone"),
        [place_row(p) for p in shown_points(found.places)],
    )
    if found.places[-1].flop_source == "task":
        terminal.line("the kernel executes no counted floating-point operations; the task's count is used")


def place_row(place: RooflinePoint) -> tuple[str, ...]:
    cells = ["-" if level.intensity is None else f"{level.intensity:.3g}" for level in place.levels]
    return cut(place.label, NAME), *cells, quantity(place.flop_per_s, "flop/s"), place.zone


def standing_lines(at: RooflinePosition, timing: Timing, roof: Roof) -> list[str]:
    """Zone and headroom, with the arithmetic."""
    ridges = dict.fromkeys(f"{ridge:.3g}" for ridge in (roof.ridge_low, roof.ridge_high))
    kernel = "latency-bound, near no ceiling," if at.zone == LATENCY_BOUND else "near a ceiling"
    return [
        f"the task is {at.task_zone}: {at.intensity:.3g} operations per byte that must move, "
        f"{'ridges' if len(ridges) > 1 else 'ridge'} at {' and '.join(ridges)}; "
        f"the kernel is {kernel} and held back by {WORDS.get(at.limit, at.limit)}",
        f"{headroom(at)} the limit: {duration(timing.time_s)} against {_limit_arithmetic(at.least)}",
    ]


def _limit_arithmetic(least: TaskLimit) -> str:
    bound, datasheet = least.attainable, least.datasheet
    moved = f"{quantity(bound.bytes, 'B')} / {quantity(bound.bytes_per_s, 'B/s')} = {duration(bound.bytes_s)}"
    moved += f" ({duration(datasheet.bytes_s)} by the datasheet's {quantity(datasheet.bytes_per_s, 'B/s')})"
    if not bound.flop:
        return moved
    done = f"{quantity(bound.flop, 'flop')} / {quantity(bound.flop_per_s, 'flop/s')} = {duration(bound.flop_s)}"
    return f"{duration(least.time_s)}, the larger of {moved} and {done}"


def headroom(at: RooflinePosition) -> str:
    """Such as ``2.3x above``; fp32 products made of several tf32 ones may be below the CUDA cores' limit."""
    return f"{ratio(at.headroom)} above" if at.headroom >= 1 else f"{ratio(1 / at.headroom)} below"


def picture_line(found: Profiled) -> str:
    """What stands under the picture's title."""
    timing, at = found.timing, found.standing
    counted = "counted" if found.places[-1].flop_source == "counted" else "the task's"
    return (
        f"{duration(timing.time_s)} ({timing.source}), {headroom(at)} the limit, held back by "
        f"{WORDS.get(at.limit, at.limit)}; operations {counted}, L2 and DRAM modelled"
    )


SOURCES = {
    "PTX": "PTX as it ran", "SASS": "SASS as the machine code makes of it", "ncu": "ncu on the GPU",
    "model": "model of caches and DRAM",
}  # fmt: skip


def source_lines(profile: Profile, timing: Timing) -> list[str]:
    """What was counted, what is modelled, and what was not done."""
    total, ran = (sum(getattr(x, name) for x in profile.launches) for name in ("blocks", "blocks_run"))
    blocks = f"{ran} of {total} blocks ran and were scaled up" if profile.sampled else f"all {total} blocks ran"
    used = {counter.source for launch in profile.launches for counter in launch.counters}
    sources = "".join(f"; {words}" for source, words in SOURCES.items() if source in used)
    return [f"counted: {blocks}{sources}; the time is {timing.source}", NOT_VERIFIED]


def _occupancy_of(found: Profiled, spec: GpuSpec) -> str:
    """Of the longest launch."""
    if not found.times:
        return ""
    longest = max(range(len(found.times)), key=lambda n: found.times[n].time_s)
    return percent(residence(found.profile.launches[longest], spec).occupancy.fraction)


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
