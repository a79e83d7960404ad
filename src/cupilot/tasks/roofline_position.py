"""Where a kernel lies on the roofline: the numbers behind the Prophet's words and the points of the chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cupilot.gpu.roofline import (
    LATENCY_BOUND,
    LEVELS,
    Roof,
    Work,
    achieved_fraction,
    is_near,
    launch_work,
    place,
    precision_in_use,
    profile_work,
    roof_of,
    zone_of,
)
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Evaluation, Profile, Task, Timing
from cupilot.tasks.flop import task_flop
from cupilot.tasks.lower_bound import TaskLimit, task_limit

# what most likely binds in a zone, where the timing does not say
LIKELY = {"memory-bound": "dram", "between": "l2", "compute-bound": "fp32", "latency-bound": "latency"}
# parts of a time for which nobody has moves of their own, and those whose moves help them
KIN = {"dependency": "latency", "atomic": "l2", "fp16": "fp32", "fp64": "fp32", "pcie": "launch",
       "const": "shared", "host": "launch", "migration": "launch", "print": "launch", "heap": "launch"}  # fmt: skip
WHOLE = "the whole call"


@dataclass(frozen=True)
class RooflinePosition:
    """``task_zone`` is the task's, ``zone`` the kernel's, ``limit`` what binds it, as strategies name it.

    ``least`` is the least time of the task and ``headroom`` the kernel's time over it, infinite when the
    kernel has no time.
    """

    task_zone: str
    zone: str
    limit: str
    intensity: float
    headroom: float
    least: TaskLimit

    @property
    def bound_s(self) -> float:
        """The least time that is attainable."""
        return self.least.time_s


def roofline_position(task: Task, evaluation: Evaluation, spec: GpuSpec) -> RooflinePosition:
    """Zone by the task's intensity, or latency-bound when the kernel is near no ceiling; limit as timed.

    Bytes are the task's least possible traffic: what a kernel wastes shows in its limit, not in its zone.  A kernel
    that is busy with what it wastes is near a ceiling all the same, so nearness is by what was counted, at any level.
    """
    flop = task_flop(task)
    where = place(spec, flop, task.minimal_bytes, task.precision)
    least = task_limit(spec, task)
    timing = evaluation.timing
    if timing is None:
        likely = LIKELY[where.zone]
        return RooflinePosition(where.zone, where.zone, likely, where.intensity, float("inf"), least)
    fraction = achieved_fraction(spec, where, flop, task.minimal_bytes, timing.time_s)
    if evaluation.profile is not None:
        counted = profile_work(evaluation.profile)
        roof = roof_of(spec, precision_in_use(evaluation.profile.launches, task.precision))
        fraction = max(fraction, counted.nearest(roof, timing.time_s))
    zone = zone_of(spec, where, fraction)
    binds = KIN.get(timing.limit, timing.limit) or LIKELY[zone]
    return RooflinePosition(where.zone, zone, binds, where.intensity, timing.time_s / least.time_s, least)


@dataclass(frozen=True)
class Level:
    """A kernel at one level of the hierarchy; ``share`` is of the level's bandwidth.

    ``intensity`` is None where the kernel moved nothing or no operations were counted.
    """

    level: str
    bytes: float
    intensity: float | None
    share: float


@dataclass(frozen=True)
class RooflinePoint:
    """A launch, or a whole call, on the roofline, by what was counted.

    ``flop_source`` is ``counted``, or ``task`` where the kernel executes no counted floating-point operations
    (comparisons, copies) and the task's count is used.
    """

    label: str
    time_s: float
    flop: float
    flop_per_s: float
    flop_source: str
    zone: str
    limit: str
    levels: tuple[Level, ...]


def roofline_point(roof: Roof, label: str, work: Work, timing: Timing, flop_source: str = "counted") -> RooflinePoint:
    """Where counted work lies: the zone by bytes of DRAM, or latency-bound when no ceiling is near."""
    levels = tuple(
        Level(level, moved, work.intensity(level), moved / timing.time_s / roof.bytes_per_s(level))
        for level in LEVELS
        for moved in (work.bytes(level),)
    )
    intensity = work.flop / work.dram_bytes if work.dram_bytes > 0 else float("inf")
    zone = roof.zone(intensity) if is_near(roof, work.nearest(roof, timing.time_s)) else LATENCY_BOUND
    rate = work.flop / timing.time_s
    return RooflinePoint(label, timing.time_s, work.flop, rate, flop_source, zone, timing.limit or LIKELY[zone], levels)


def roofline_points(
    roof: Roof, task: Task, profile: Profile, timing: Timing, labels: Sequence[str], times: Sequence[Timing]
) -> tuple[RooflinePoint, ...]:
    """One for each launch, with its label and its time, and last the whole call."""
    each = [
        roofline_point(roof, label, launch_work(launch), time)
        for launch, label, time in zip(profile.launches, labels, times, strict=True)
    ]
    work, source = profile_work(profile), "counted"
    if not work.flop:
        work, source = replace(work, core_flop=task_flop(task)), "task"
    return (*each, roofline_point(roof, WHOLE, work, timing, source))


def shown_points(points: Sequence[RooflinePoint]) -> tuple[RooflinePoint, ...]:
    """Of `roofline_points`, what people are shown: a lone launch is the whole call, under its own name."""
    *launches, whole = points
    if len(launches) == 1 and [x.bytes for x in launches[0].levels] == [x.bytes for x in whole.levels]:
        return (replace(whole, label=launches[0].label),)
    return tuple(points)
