"""A profile as a short text for a model: each launch with its time and limit, then its hottest lines.

The numbers are those of ``cupilot profile``; what is left out for length is said.
"""

from __future__ import annotations

from cupilot.evaluation.profiling import Profiled
from cupilot.gpu import GpuSpec, occupancy
from cupilot.gpu.hot_lines import hot_lines
from cupilot.gpu.units import units
from cupilot.languages import visible_source
from cupilot.numbers import duration, percent, quantity, ratio
from cupilot.records import Kernel, Launch, Timing

LAUNCHES, LINES, LINE_CHARACTERS = 4, 8, 110
LEAST_SHARE, LEAST_LINE = 0.02, 0.01
KINDS = ("load", "store", "atomic")


def profile_text(found: Profiled, spec: GpuSpec, kernel: Kernel) -> str:
    """The whole call in two lines, then its longest launches in the order of the call."""
    timing, at = found.timing, found.standing
    total_s = timing.time_s
    where = f"{ratio(at.headroom)} the task's limit of {duration(at.bound_s)}" if at.headroom >= 1 else "at the limit"
    lines = [f"whole call: {_time(timing)}, held back by {at.limit}; {where}"]
    others = sum(operation.time_s for operation in found.operations)
    if found.operations:
        lines.append(f"fills, copies and PyTorch's own operators: {len(found.operations)}, {percent(others / total_s)}")
    launches = found.profile.launches
    longest = sorted(range(len(launches)), key=lambda n: -found.times[n].time_s)[:LAUNCHES]
    for number in sorted(longest):
        name = found.places[number].label
        lines += _launch_lines(f"{number + 1} {name}", launches[number], found.times[number], total_s, spec, kernel)
    if len(launches) > len(longest):
        rest = sum(time.time_s for n, time in enumerate(found.times) if n not in longest)
        lines.append(
            f"{len(launches) - len(longest)} more launches are left out: {percent(rest / total_s)} of the time"
        )
    if found.finding is not None:
        lines.append(f"finding: {found.finding.message}")
    return "\n".join(lines)


def resources_line(launch: Launch, spec: GpuSpec) -> str:
    """Grid, block, what ptxas says, and what an SM holds of it."""
    resources = launch.resources
    shared = resources.static_shared_bytes + launch.dynamic_shared_bytes
    held = occupancy(spec, launch.threads, resources, launch.dynamic_shared_bytes)
    waves = launch.blocks / (spec.sms * max(held.blocks_per_sm, 1))
    spills = f", {resources.spill_bytes} BYTES SPILLED" if resources.spill_bytes else ", no spills"
    return (
        f"grid {_size(launch.grid)}, block {_size(launch.block)}; {resources.registers} registers, {shared} bytes of "
        f"shared memory{spills}; occupancy {percent(held.fraction)} ({held.blocks_per_sm} blocks per SM, limited by "
        f"{held.limit}), {waves:.3g} waves of blocks on {spec.sms} SMs"
    )


def _launch_lines(
    title: str, launch: Launch, timing: Timing, total_s: float, spec: GpuSpec, kernel: Kernel
) -> list[str]:
    time_s = timing.time_s
    parts = sorted(timing.breakdown, key=lambda part: -part[1])
    shares = [f"{name} {percent(s / time_s)}" for name, s in parts if s >= LEAST_SHARE * time_s]
    busy = [f"{u.name} {percent(u.share)}" for u in units(launch, spec, time_s) if u.share >= LEAST_SHARE]
    lines = [
        f"\nlaunch {title}: {duration(time_s)}, {percent(time_s / total_s)} of the call, limit {timing.limit}",
        f"  {resources_line(launch, spec)}",
        f"  time goes to: {', '.join(shares)}",
        f"  share of each unit's peak: {', '.join(busy) or 'all under 2 %'}",
        f"  memory: {_memory(launch)}",
    ]
    if launch.active_lanes:
        lines.append(f"  active lanes: {launch.active_lanes:.1f} of 32")
    return lines + _hot(launch, spec, kernel)


def _memory(launch: Launch) -> str:
    found = []
    for space in ("global", "local"):
        for kind in KINDS:
            requests = launch.counter(f"{space}_{kind}_requests")
            sectors = launch.counter(f"{space}_{kind}_sectors")
            if requests:
                moved = quantity(launch.counter(f"{space}_{kind}_bytes"), "B")
                found.append(f"{space} {kind}s of {moved} in {sectors / requests:.3g} sectors per request")
    waves, lost = (sum(launch.counter(f"shared_{k}_{what}") for k in KINDS) for what in ("wavefronts", "conflicts"))
    if waves:
        found.append(f"shared memory {percent(lost / waves)} of wavefronts lost to bank conflicts")
    found.append(
        f"DRAM {quantity(launch.counter('dram_read_bytes'), 'B')} read, "
        f"{quantity(launch.counter('dram_write_bytes'), 'B')} written"
    )
    return "; ".join(found)


def _hot(launch: Launch, spec: GpuSpec, kernel: Kernel) -> list[str]:
    text = visible_source(kernel, (launch,)).split("\n")
    known = [hot for hot in hot_lines((launch,), spec) if 1 <= hot.line <= len(text) and hot.cost >= LEAST_LINE]
    if not known:
        return []
    rows = [
        f"    {hot.line}: {percent(hot.cost)} | {percent(hot.instructions)} | {percent(hot.sectors)} | "
        f"{text[hot.line - 1].strip()[:LINE_CHARACTERS]}"
        for hot in known[:LINES]
    ]
    return ["  hottest lines (line: time | instructions | global sectors | source):", *rows]


def _time(timing: Timing) -> str:
    spread = f" ± {percent(timing.uncertainty)}" if timing.uncertainty else ""
    return f"{duration(timing.time_s)}{spread} ({timing.source}, {timing.device})"


def _size(size: tuple[int, int, int]) -> str:
    return "x".join(map(str, size))
