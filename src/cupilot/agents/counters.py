"""The counters to show for a limit and a zone, each beside its bound from the device or the task.

`counters.toml` lists them; this module computes their values.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path

from cupilot import numbers
from cupilot.errors import DataError
from cupilot.gpu.hot_lines import HotLine, hot_lines
from cupilot.gpu.occupancy import WARP, occupancy
from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.timing.model import BY_SECTORS
from cupilot.records import INTENSIVE, Evaluation, Guidance, Launch, Profile, Task, from_plain

SECTOR_BYTES = 32
SHOWN_PARTS, SHOWN_LINES = 4, 6
LEAST_SHARE = 0.03
"""A line with a smaller share of both instructions and sectors is not shown."""

BOUNDS: Mapping[str, Callable[[Task, GpuSpec], float]] = {
    "dram": lambda task, spec: spec.dram_bytes_per_s,
    "dram_read": lambda task, spec: spec.dram_read_bytes_per_s,
    "dram_write": lambda task, spec: spec.dram_write_bytes_per_s,
    "l2": lambda task, spec: spec.l2_bytes_per_s,
    "input_bytes": lambda task, spec: task.input_bytes,
    "output_bytes": lambda task, spec: task.output_bytes,
    "fp32": lambda task, spec: spec.fp32_flop_per_s,
    "int": lambda task, spec: spec.sms * spec.clock_hz * spec.int32_lanes_per_sm / WARP,
    "sfu": lambda task, spec: spec.sms * spec.clock_hz * spec.sfu_lanes_per_sm / WARP,
    "issue": lambda task, spec: spec.sms * spec.clock_hz * spec.schedulers_per_sm,
    "wavefronts": lambda task, spec: spec.sms * spec.clock_hz * spec.lsu_lanes_per_sm / WARP,
    "warps_per_sm": lambda task, spec: spec.warps_per_sm,
    "registers_per_thread": lambda task, spec: spec.registers_per_thread,
    "sms": lambda task, spec: spec.sms,
}


@dataclass(frozen=True)
class CounterRow:
    """One row of `counters.toml`, where the keys are explained."""

    title: str
    value: str
    good: str
    per: str = ""
    unit: str = ""
    ceiling: str = ""
    floor: str = ""
    best: float | None = None

    def __post_init__(self) -> None:
        if self.good not in ("large", "small"):
            raise DataError(f"good is large or small, not {self.good!r}")
        for bound in (self.ceiling, self.floor):
            if bound and bound not in BOUNDS:
                raise DataError(f"the bound {bound!r} is none of {', '.join(BOUNDS)}")
        if bool(self.ceiling) + bool(self.floor) + (self.best is not None) > 1:
            raise DataError(f"{self.title}: only one of ceiling, floor and best can be given")


@dataclass(frozen=True)
class ShownCounter:
    """A counter as text; bounds that do not apply are empty."""

    title: str
    value: str
    good: str
    ceiling: str = ""
    floor: str = ""
    best: str = ""


@dataclass(frozen=True)
class _Table:
    rows: Mapping[str, CounterRow]
    limits: Mapping[str, tuple[str, ...]]
    zones: Mapping[str, tuple[str, ...]]


@cache
def table() -> _Table:
    """The contents of `counters.toml`, checked."""
    data = tomllib.loads(Path(__file__).with_name("counters.toml").read_text(encoding="utf-8"))
    unknown = sorted(set(data) - {"rows", "limits", "zones"})
    if unknown:
        raise DataError(f"counters.toml: unknown table {unknown[0]!r}")
    rows = {name: from_plain(CounterRow, row, f"counters.toml, rows.{name}") for name, row in data["rows"].items()}
    for names in (*data["limits"].values(), *data["zones"].values()):
        absent = [name for name in names if name not in rows]
        if absent:
            raise DataError(f"counters.toml: there is no row {absent[0]!r}")
    limits = {name: tuple(names) for name, names in data["limits"].items()}
    return _Table(rows, limits, {name: tuple(names) for name, names in data["zones"].items()})


def relevant_counters(
    guidance: Guidance, task: Task, evaluation: Evaluation, spec: GpuSpec
) -> tuple[ShownCounter, ...]:
    """The counters for the guidance's limit and zone; none without a profile and a time."""
    if evaluation.profile is None or evaluation.timing is None:
        return ()
    quantities = _quantities(evaluation.profile, evaluation.timing.time_s, task, spec)
    known = table()
    names = dict.fromkeys((*known.limits.get(guidance.limit, ()), *known.zones.get(guidance.zone, ())))
    return tuple(row for name in names if (row := _shown(known.rows[name], quantities, task, spec)) is not None)


def largest_parts(evaluation: Evaluation) -> tuple[tuple[str, float], ...]:
    """The parts that take the most time, with their shares of it."""
    timing = evaluation.timing
    if timing is None:
        return ()
    shares = [(name, time_s / timing.time_s) for name, time_s in timing.breakdown]
    return tuple(sorted(shares, key=lambda part: -part[1])[:SHOWN_PARTS])


def hottest_lines(guidance: Guidance, source: str, profile: Profile | None) -> tuple[tuple[HotLine, str], ...]:
    """The lines with the largest share of what limits the kernel, each with its text."""
    text = source.split("\n")
    launches = profile.launches if profile is not None else ()
    lines = [hot for hot in hot_lines(launches, None) if 1 <= hot.line <= len(text)]
    if guidance.limit in BY_SECTORS:
        lines.sort(key=lambda hot: -hot.sectors)
    shown = [hot for hot in lines[:SHOWN_LINES] if max(hot.instructions, hot.sectors) >= LEAST_SHARE]
    return tuple((hot, text[hot.line - 1].strip()) for hot in shown)


def _quantities(profile: Profile, time_s: float, task: Task, spec: GpuSpec) -> dict[str, float]:
    """Every number that a row may name: counters, and what follows from launches and task."""
    quantities: dict[str, float] = {}
    for launch in profile.launches:
        for counter in launch.counters:
            before = quantities.get(counter.name, 0.0)
            intensive = counter.name in INTENSIVE
            quantities[counter.name] = max(before, counter.value) if intensive else before + counter.value
    launches = profile.launches
    quantities |= {
        "time_s": time_s,
        "minimal_bytes": float(task.minimal_bytes),
        "l2_read_bytes": quantities.get("l2_read_sectors", 0.0) * SECTOR_BYTES,
        "launches": float(len(launches) + len(profile.operations)),
    }
    if launches:
        longest = max(launches, key=lambda launch: launch.counter("warp_instructions"))
        quantities |= {
            "warps": float(sum(launch.blocks * -(-launch.threads // WARP) for launch in launches)),
            "blocks": float(longest.blocks),
            "registers": float(max(launch.resources.registers for launch in launches)),
            **_residence(longest, spec),
        }
    return quantities


def _residence(launch: Launch, spec: GpuSpec) -> dict[str, float]:
    resident = occupancy(spec, launch.threads, launch.resources, launch.dynamic_shared_bytes)
    waves = ceil(launch.blocks / (spec.sms * max(resident.blocks_per_sm, 1)))
    return {"resident_warps": float(resident.warps_per_sm), "waves": float(waves)}


def _shown(row: CounterRow, quantities: Mapping[str, float], task: Task, spec: GpuSpec) -> ShownCounter | None:
    divisor = quantities.get(row.per, 0.0) if row.per else 1.0
    if row.value not in quantities or divisor <= 0:
        return None

    def bound(name: str) -> str:
        return quantity(BOUNDS[name](task, spec), row.unit) if name else ""

    best = "" if row.best is None else quantity(row.best, row.unit)
    value = quantity(quantities[row.value] / divisor, row.unit)
    return ShownCounter(row.title, value, row.good, bound(row.ceiling), bound(row.floor), best)


def quantity(value: float, unit: str = "") -> str:
    """A number with three digits and a prefix, such as ``1.77 TB/s``; without a unit, with an exponent."""
    if unit:
        return numbers.quantity(value, unit)
    return f"{value:.3g}" if value < 1e5 else f"{value:.3e}"
