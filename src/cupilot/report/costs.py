"""What kernels cost: by source line, by part of the time, and in a few counters, before and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cupilot.gpu import GpuSpec, occupancy
from cupilot.gpu.hot_lines import hot_lines
from cupilot.gpu.roofline import profile_work
from cupilot.gpu.timing import launch_parts
from cupilot.languages import visible_source
from cupilot.numbers import PAGE
from cupilot.records import Individual, Launch, Profile
from cupilot.report.steps import PartChange, parts

BY_TIME, BY_INSTRUCTIONS = "modelled time", "warp instructions"
SMALL = 0.005
"""Parts that have less than this share of both times stand in one row."""
KINDS = ("load", "store", "atomic")
WORDS = {
    "dram": "traffic to DRAM", "l2": "traffic to L2", "l1": "global accesses through L1", "shared": "shared memory",
    "fp32": "fp32 units", "fp16": "fp16 units", "fp64": "fp64 units", "tensor": "tensor cores",
    "int": "integer arithmetic", "sfu": "special function units", "issue": "instruction issue",
    "latency": "latency that nothing hides", "dependency": "waiting for earlier results", "launch": "launching",
    "atomic": "atomics", "pcie": "traffic over PCIe", "const": "constant memory at several addresses",
    "host": "waiting for the host", "migration": "pages of managed memory", "print": "printf", "heap": "device malloc",
}  # fmt: skip


@dataclass(frozen=True)
class LineShares:
    """Which share of a kernel's cost each source line has; ``basis`` says of what."""

    basis: str
    shares: tuple[tuple[int, float], ...]


def line_shares(individual: Individual, spec: GpuSpec | None) -> LineShares | None:
    """By the modelled time of all launches, or by instructions where the GPU is not known; None without a profile.

    Lines that the kernel's file does not have, such as those of a source that it puts together, are left out.
    """
    profile = individual.evaluation.profile
    if profile is None:
        return None
    text = visible_source(individual.kernel, profile.launches).split("\n")
    visible = {number for number, line in enumerate(text, start=1) if line.strip()}
    costs = ((hot.line, hot.cost) for hot in hot_lines(profile.launches, spec))
    shares = tuple(sorted((line, cost) for line, cost in costs if line in visible))
    return LineShares(BY_INSTRUCTIONS if spec is None else BY_TIME, shares) if shares else None


@dataclass(frozen=True)
class PartRow:
    """One part of the time of two kernels, with its shares of both."""

    limit: str
    words: str
    before_s: float
    after_s: float
    before_share: float
    after_share: float


def part_rows(before: Individual, after: Individual) -> tuple[PartRow, ...]:
    """The largest part of the first first, small ones together in the last; together they are the two times."""
    found = parts(before, after)
    was, now = (sum(part.before_s for part in found) or 1.0), (sum(part.after_s for part in found) or 1.0)
    large = [part for part in found if part.before_s >= SMALL * was or part.after_s >= SMALL * now]
    small = [part for part in found if part not in large]
    rows = [_row(part, was, now) for part in sorted(large, key=lambda p: (-p.before_s, -p.after_s, p.limit))]
    if small:
        rest = PartChange("other", sum(part.before_s for part in small), sum(part.after_s for part in small))
        rows.append(replace(_row(rest, was, now), words=", ".join(sorted(part.limit for part in small))))
    return tuple(rows)


def _row(part: PartChange, was_s: float, now_s: float) -> PartRow:
    words = WORDS.get(part.limit, part.limit)
    return PartRow(part.limit, words, part.before_s, part.after_s, part.before_s / was_s, part.after_s / now_s)


# --- counters ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fact:
    """One line of the comparison; values are empty where there is nothing to say."""

    name: str
    before: str
    after: str
    source: str


Reading = Callable[[Profile, GpuSpec | None], str]


def facts(before: Individual, after: Individual, spec: GpuSpec | None) -> tuple[Fact, ...]:
    """Of the whole call, or of its longest launch where the name says so; what neither has is left out."""
    profiles = [one.evaluation.profile for one in (before, after)]
    found = []
    for name, source, read in READINGS:
        values = ["" if profile is None or not profile.launches else read(profile, spec) for profile in profiles]
        if any(values):
            found.append(Fact(name, values[0], values[1], source))
    return tuple(found)


def _longest(profile: Profile, spec: GpuSpec | None) -> Launch:
    if spec is None:
        return max(profile.launches, key=lambda launch: launch.counter("warp_instructions"))
    return max(profile.launches, key=lambda launch: sum(launch_parts(launch, spec).values()))


def _shape(profile: Profile, spec: GpuSpec | None) -> str:
    launch = _longest(profile, spec)
    return " × ".join("x".join(str(n) for n in _used(size)) for size in (launch.grid, launch.block))


def _used(size: tuple[int, int, int]) -> tuple[int, ...]:
    """Without ones at the end."""
    return size[: max(1, *(n + 1 for n in range(3) if size[n] > 1))] if size != (1, 1, 1) else (1,)


def _shared(profile: Profile, spec: GpuSpec | None) -> str:
    launch = _longest(profile, spec)
    return PAGE.quantity(launch.resources.static_shared_bytes + launch.dynamic_shared_bytes, "B")


def _occupancy(profile: Profile, spec: GpuSpec | None) -> str:
    if spec is None:
        return ""
    launch = _longest(profile, spec)
    return PAGE.percent(occupancy(spec, launch.threads, launch.resources, launch.dynamic_shared_bytes).fraction)


def _per_request(profile: Profile, spec: GpuSpec | None) -> str:
    requests, sectors = (
        sum(profile.total(f"global_{kind}_{what}") for kind in KINDS) for what in ("requests", "sectors")
    )
    return f"{sectors / requests:.3g}" if requests else ""


def _conflicts(profile: Profile, spec: GpuSpec | None) -> str:
    conflicts, wavefronts = (
        sum(profile.total(f"shared_{kind}_{what}") for kind in KINDS) for what in ("conflicts", "wavefronts")
    )
    return PAGE.percent(conflicts / wavefronts) if wavefronts else ""


def _lanes(profile: Profile, spec: GpuSpec | None) -> str:
    instructions = profile.total("warp_instructions")
    return f"{profile.total('lane_instructions') / instructions:.1f}" if instructions else ""


READINGS: tuple[tuple[str, str, Reading], ...] = (
    ("launches", "run", lambda profile, spec: str(len(profile.launches))),
    ("fills and copies", "run", lambda profile, spec: str(len(profile.operations)) if profile.operations else ""),
    ("blocks × threads, longest launch", "run", _shape),
    ("registers per thread, longest launch", "ptxas", lambda p, spec: str(_longest(p, spec).resources.registers)),
    ("bytes spilled, longest launch", "ptxas", lambda p, spec: str(_longest(p, spec).resources.spill_bytes)),
    ("shared memory per block, longest launch", "ptxas, run", _shared),
    ("occupancy, longest launch", "model", _occupancy),
    ("warp instructions", "PTX", lambda profile, spec: PAGE.quantity(profile.total("warp_instructions"))),
    ("active lanes of 32", "PTX", _lanes),
    ("operations", "PTX", lambda profile, spec: PAGE.quantity(profile_work(profile).flop, "flop")),
    ("sectors per global request", "PTX, SASS", _per_request),
    ("wavefronts lost to bank conflicts", "PTX, SASS", _conflicts),
    ("bytes through L2", "model", lambda profile, spec: PAGE.quantity(profile_work(profile).l2_bytes, "B")),
    ("bytes through DRAM", "model", lambda profile, spec: PAGE.quantity(profile_work(profile).dram_bytes, "B")),
    ("barriers", "PTX", lambda profile, spec: PAGE.grouped(profile.total("barriers"))),
)
"""What is compared: its name, where it is from, and how it is read."""
