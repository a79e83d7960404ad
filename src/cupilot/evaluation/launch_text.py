"""A profile as plain text, for readers without a terminal: language models and coding agents.

`profile_lines` has what the page of `cupilot profile` has, in fewer words; `summary_lines` has one line per launch.
"""

from __future__ import annotations

from cupilot.evaluation.launch_view import (
    LaunchView,
    MemoryRow,
    ProfileView,
    lane_texts,
    occupancy_text,
    plural,
    shape_text,
    short,
    time_parts,
    waiting_text,
)
from cupilot.gpu.units import Unit
from cupilot.numbers import duration, percent, quantity
from cupilot.records import Task

DETAILED = 3
"""Launches that are shown in full: the longest."""
LISTED = 8
LEAST_SHARE = 0.03
"""A shorter launch is not shown in full."""
HOTTEST = 6
TEXT, NAME = 100, 60


def profile_lines(
    view: ProfileView, task: Task, detailed: int = DETAILED, beside: ProfileView | None = None
) -> list[str]:
    """Traffic of the whole call, then its launches, the longest in full.

    Launches that are the same in ``beside``, a profile that the reader has seen, are only named.
    """
    seen = [] if beside is None else [launch for launch in view.longest if any(map(launch.same, beside.launches))]
    new = [launch for launch in view.longest if launch not in seen]
    full = [launch for launch in new[:detailed] if launch.share >= LEAST_SHARE] or new[:1]
    others = [launch for launch in new if launch not in full]
    lines = traffic_lines(view, task)
    for launch in full:
        lines += launch_lines(launch, alone=len(view.launches) == 1)
    lines += [summary_line(launch) for launch in others[:LISTED]]
    if len(others) > LISTED:
        lines.append(f"and {plural(len(others) - LISTED, 'more launch', 'more launches')}")
    lines += [
        f"{step.label}: {duration(step.timing.time_s)}, {percent(step.share)} of the call" for step in view.operations
    ]
    if seen:
        names = ", ".join(f"{_name(launch)} ({duration(launch.timing.time_s)})" for launch in seen[:LISTED])
        lines.append(f"the same as in the profile above: {names}")
    return lines


def summary_lines(view: ProfileView, launches: int = DETAILED) -> list[str]:
    """One line for each of the longest launches."""
    shown = [launch for launch in view.longest[:launches] if launch.share >= LEAST_SHARE] or list(view.longest[:1])
    return [summary_line(launch) for launch in shown]


def traffic_lines(view: ProfileView, task: Task) -> list[str]:
    """What went through DRAM beside what must, and how many launches share the call."""
    read, written = (
        sum(launch.launch.counter(f"dram_{way}_bytes") for launch in view.launches) for way in ("read", "write")
    )
    steps = len(view.launches) + len(view.operations)
    gaps = f"; {duration(view.modelled.time_s)} with the gaps between them" if steps > 1 else ""
    kinds = plural(len(view.launches), "launch", "launches")
    if view.operations:
        kinds += f" and {plural(len(view.operations), 'fill or copy', 'fills and copies')}"
    return [
        f"{kinds}{gaps}; DRAM: {quantity(read, 'B')} read (arguments once: {quantity(task.input_bytes, 'B')}), "
        f"{quantity(written, 'B')} written (results once: {quantity(task.output_bytes, 'B')})"
    ]


def launch_lines(view: LaunchView, *, alone: bool = False) -> list[str]:
    """Everything about one launch; one that is ``alone`` has its traffic through DRAM in the line of the call."""
    rows = [row for row in view.memory if row.bytes and not (alone and row.name.startswith("DRAM"))]
    parts = ", ".join(f"{name} {percent(share)}" for name, share in time_parts(view.timing))
    lines = [
        f"{_name(view)}: {duration(view.timing.time_s)}, {percent(view.share)} of the call, limit {view.timing.limit}",
        shape_text(view),
        occupancy_text(view),
        f"where the time goes: {parts}",
        f"share of the peak rate: {', '.join(unit_text(unit) for unit in view.units)}",
        *map(memory_text, rows),
        *lane_texts(view.launch),
        *filter(None, (waiting_text(view.launch),)),
    ]
    if view.lines:
        lines.append("hottest lines, with their shares of this launch's time, instructions and global sectors:")
        lines += hot_texts(view)
    return [lines[0], *(f"  {line}" for line in lines[1:])]


def hot_texts(view: LaunchView, most: int = HOTTEST) -> list[str]:
    return [
        f"  {hot.line}: {percent(hot.cost)}, {percent(hot.instructions)}, {percent(hot.sectors)}  {cut(text, TEXT)}"
        for hot, text in view.lines[:most]
    ]


def summary_line(view: LaunchView) -> str:
    """One launch in one line: time, limit, resources, residence, the busiest units, the hottest line."""
    at, resources = view.residence, view.launch.resources
    spills = f", {resources.spill_bytes} bytes spilled" if resources.spill_bytes else ""
    busiest = sorted(view.units, key=lambda unit: -unit.share)[:3]
    small = f", at most {plural(at.most_warps, 'warp')} on an SM" if at.is_small else ""
    text = (
        f"{_name(view)}: {duration(view.timing.time_s)}, {percent(view.share)} of the call, limit {view.timing.limit}; "
        f"{resources.registers} registers{spills}; occupancy {percent(at.occupancy.fraction)} "
        f"({at.occupancy.limit}), {short(at.waves)} waves{small}; {', '.join(unit_text(unit) for unit in busiest)}"
    )
    return text + "".join(f"; hottest line {percent(hot.cost)}: {cut(line, TEXT)}" for hot, line in view.lines[:1])


def unit_text(unit: Unit) -> str:
    return f"{unit.name} {percent(unit.share)}"


def memory_text(row: MemoryRow) -> str:
    """Such as ``global loads: 4.19 MB, 4 sectors of 32 bytes for the 128 bytes of a request, 25 % of them in L1``."""
    text = f"{row.name}: {quantity(row.bytes, 'B')}"
    if row.sectors_per_request is not None and row.bytes_per_request is not None:
        asked, sectors = short(row.bytes_per_request), short(row.sectors_per_request)
        text += f", {sectors} sector{'s' * (sectors != '1')} of 32 bytes for {asked} bytes of a request"
    if row.hit_rate is not None:
        text += f", {percent(row.hit_rate)} hits"
    return text


def _name(view: LaunchView) -> str:
    return cut(view.label, NAME)


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
