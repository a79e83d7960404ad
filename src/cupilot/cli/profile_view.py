"""A profile on the terminal: one compact page per device, or one row for each of several."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape

from cupilot.cli.terminal import Terminal
from cupilot.evaluation.profiling import Profiled
from cupilot.expert.prophet import WORDS
from cupilot.gpu import GpuSpec, occupancy
from cupilot.gpu.hot_lines import hot_lines
from cupilot.gpu.roofline import LATENCY_BOUND, Roof
from cupilot.gpu.units import sources_of, units
from cupilot.languages import visible_source
from cupilot.numbers import duration, percent, quantity, ratio
from cupilot.records import Kernel, Launch, Profile, Timing
from cupilot.tasks.roofline_position import RooflinePoint, RooflinePosition, shown_points

DETAILED = 3
"""Launches that are shown in full: the longest."""
LISTED, HOTTEST = 20, 6
LUKEWARM = 0.02
"""A line that takes less than this share of a launch is not hot."""
BAR, TEXT = 30, 84
NAME = 48
KINDS = ("load", "store", "atomic")
NOT_VERIFIED = "not verified here: cupilot evaluate does that"


def show(found: Profiled, spec: GpuSpec, kernel: Kernel, terminal: Terminal) -> None:
    """Everything about one device."""
    launches = found.profile.launches
    longest = sorted(range(len(launches)), key=lambda n: -found.times[n].time_s)[:DETAILED]
    if len(launches) + len(found.operations) > 1:
        _show_steps(found, terminal)
    for number in sorted(longest):
        title = cut(found.places[number].label, NAME)
        many = f", launch {number + 1} of {len(launches)}" if len(launches) > 1 else ""
        terminal.line(f"\n{title}{many}")
        _show_launch(launches[number], found.times[number], spec, kernel, terminal)
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


def _show_steps(found: Profiled, terminal: Terminal) -> None:
    """All launches, fills and copies, with their shares of the time."""
    steps = [(place.label, time) for place, time in zip(found.places, found.times, strict=False)]
    named = [(f"{o.kind}, {quantity(o.bytes, 'B')}", time) for o, time in zip(
        found.profile.operations, found.operations, strict=True)]  # fmt: skip
    total = found.timing.time_s
    rows = [(cut(label, NAME), duration(t.time_s), percent(t.time_s / total), t.limit) for label, t in steps + named]
    copies = f", fills and copies: {len(named)}" if named else ""
    terminal.line(f"\nlaunches: {len(steps)}{copies}; {duration(total)} with the gaps between them")
    terminal.table(("", "time", "of the call", "limit"), rows[:LISTED])
    if len(rows) > LISTED:
        terminal.line(f"and {len(rows) - LISTED} more, which --json has")
    if len(steps) > DETAILED:
        terminal.line(f"the {DETAILED} longest launches follow, --json has all")


def _show_launch(launch: Launch, timing: Timing, spec: GpuSpec, kernel: Kernel, terminal: Terminal) -> None:
    for line in (*shape_lines(launch, spec), _time_line(timing)):
        terminal.line(f"  {line}")
    terminal.line("\nwhere the time goes (modelled)")
    for line in bars(timing):
        terminal.line(f"  {line}")
    terminal.line()
    rows = [
        (u.name, quantity(u.rate, f"{u.unit}/s"), quantity(u.ceiling, f"{u.unit}/s"), percent(u.share), u.source)
        for u in units(launch, spec, timing.time_s)
    ]
    terminal.table(("unit", "reached", "ceiling", "share", "source"), rows)
    terminal.line()
    terminal.table(("memory", "requests", "sectors", "per request", "hit rate", "bytes", "source"), memory_rows(launch))
    for line in lane_lines(launch):
        terminal.line(line)
    lines = line_rows(launch, spec, kernel)
    if lines:
        terminal.line()
        terminal.table(("hottest lines", "time", "instructions", "sectors"), lines)


def shape_lines(launch: Launch, spec: GpuSpec) -> tuple[str, str]:
    """Grid, block, resources; occupancy and waves."""
    resources = launch.resources
    shared = resources.static_shared_bytes + launch.dynamic_shared_bytes
    spills = f", {resources.spill_bytes} bytes spilled" if resources.spill_bytes else ""
    shape = (
        f"grid {times(launch.grid)}, block {times(launch.block)}; {resources.registers} registers per thread, "
        f"{f'{shared} bytes' if shared else 'no'} shared memory{spills} (ptxas)"
    )
    held = occupancy(spec, launch.threads, resources, launch.dynamic_shared_bytes)
    waves = launch.blocks / (spec.sms * max(held.blocks_per_sm, 1))
    idle = f"; {launch.blocks} blocks for {spec.sms} SMs" if launch.blocks < spec.sms else ""
    return shape, (
        f"occupancy {percent(held.fraction)}: {held.warps_per_sm} of {spec.warps_per_sm} warps per SM in "
        f"{held.blocks_per_sm} block{'s' * (held.blocks_per_sm != 1)}, limited by {held.limit}; {waves:.3g} waves{idle}"
    )


def _time_line(timing: Timing) -> str:
    spread = f" ± {percent(timing.uncertainty)}" if timing.uncertainty else ""
    where = f"{timing.source}, {timing.device}"
    return f"time {duration(timing.time_s)}{spread} ({where}), limit {timing.limit or 'not known'}"


def bars(timing: Timing) -> list[str]:
    """The breakdown, longest part first; what is under half a percent is added up."""
    shares = sorted(((name, time_s / timing.time_s) for name, time_s in timing.breakdown), key=lambda part: -part[1])
    shown = [part for part in shares if part[1] >= 0.005]
    rest = sum(share for _, share in shares[len(shown) :])
    if rest >= 0.0005:
        shown.append(("others", rest))
    width = max((len(name) for name, _ in shown), default=0)
    return [f"{name:<{width}} {'█' * round(BAR * share):<{BAR}} {percent(share):>7}" for name, share in shown]


def memory_rows(launch: Launch) -> list[tuple[str, ...]]:
    """Requests of lanes by space and kind, then what passed between the levels."""
    rows: list[tuple[str, ...]] = []
    hits = {"global_load": rate(launch.counter("l1_hit_sectors"), launch.counter("global_load_sectors"))}
    for space, kind in ((s, k) for s in ("global", "local") for k in KINDS):
        stem = f"{space}_{kind}"
        requests, sectors = launch.counter(f"{stem}_requests"), launch.counter(f"{stem}_sectors")
        if requests:
            source = sources_of(launch, (f"{stem}_requests", f"{stem}_sectors"))
            rows.append((f"{space} {kind}s", count(requests), count(sectors), f"{sectors / requests:.3g}",
                         hits.get(stem, ""), quantity(launch.counter(f"{stem}_bytes"), "B"), source))  # fmt: skip
    for way, word in (("read", "reads"), ("write", "writes")):
        sectors = launch.counter(f"l2_{way}_sectors")
        hit = rate(launch.counter("l2_hit_sectors"), sectors) if way == "read" else ""
        source = sources_of(launch, (f"l2_{way}_sectors",))
        rows.append((f"L2 {word}", "", count(sectors), "", hit, quantity(sectors * 32, "B"), source))
    for way, word in (("read", "read"), ("write", "written")):
        moved = launch.counter(f"dram_{way}_bytes")
        rows.append((f"DRAM {word}", "", "", "", "", quantity(moved, "B"), sources_of(launch, (f"dram_{way}_bytes",))))
    return rows


def lane_lines(launch: Launch) -> list[str]:
    """Bank conflicts and divergence."""
    requests, wavefronts, conflicts = (
        sum(launch.counter(f"shared_{kind}_{what}") for kind in KINDS)
        for what in ("requests", "wavefronts", "conflicts")
    )
    found = []
    if requests:
        found.append(
            f"shared memory: {count(requests)} requests in {count(wavefronts)} wavefronts, "
            f"{count(conflicts)} of them ({rate(conflicts, wavefronts)}) for bank conflicts"
        )
    atomics = launch.counter("global_atomic_requests")
    if atomics:
        steps = launch.counter("global_atomic_steps") / atomics
        found.append(f"atomics: {count(atomics)} requests, {steps:.3g} lanes at the busiest address of each")
    if launch.active_lanes:
        found.append(f"active lanes: {launch.active_lanes:.1f} of 32 on average")
    return found


def line_rows(launch: Launch, spec: GpuSpec, kernel: Kernel) -> list[tuple[str, str, str, str]]:
    """The source lines that take longest, by the model, with their text and what they do."""
    text = visible_source(kernel, (launch,)).split("\n")
    known = [hot for hot in hot_lines((launch,), spec) if 1 <= hot.line <= len(text)]
    shown = [hot for hot in known[:HOTTEST] if hot.cost >= LUKEWARM]
    width = max((len(str(hot.line)) for hot in shown), default=0)
    return [
        (
            # cells of tables may carry markup, and source has brackets of its own
            escape(f"{hot.line:>{width}}  {cut(text[hot.line - 1].strip(), TEXT)}"), percent(hot.cost),
            percent(hot.instructions), percent(hot.sectors),
        )
        for hot in shown
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
    bound = at.least.attainable
    return [
        f"the task is {at.task_zone}: {at.intensity:.3g} operations per byte that must move, "
        f"{'ridges' if len(ridges) > 1 else 'ridge'} at {' and '.join(ridges)}; "
        f"the kernel is {kernel} and held back by {WORDS.get(at.limit, at.limit)}",
        f"{headroom(at)} the limit: {duration(timing.time_s)} against {duration(at.bound_s)}, the larger of "
        f"{quantity(bound.bytes, 'B')} / {quantity(bound.bytes_per_s, 'B/s')} = {duration(bound.bytes_s)} and "
        f"{quantity(bound.flop, 'flop')} / {quantity(bound.flop_per_s, 'flop/s')} = {duration(bound.flop_s)}; "
        f"{duration(at.least.datasheet.time_s)} by the datasheet's {quantity(at.least.datasheet.bytes_per_s, 'B/s')}",
    ]


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
    launch = found.profile.launches[longest]
    return percent(occupancy(spec, launch.threads, launch.resources, launch.dynamic_shared_bytes).fraction)


# --- numbers -----------------------------------------------------------------------------------


def times(size: tuple[int, int, int]) -> str:
    return "x".join(map(str, size))


def rate(part: float, whole: float) -> str:
    return percent(part / whole) if whole else ""


def count(value: float) -> str:
    """Three digits and a factor, such as ``6.29 M``."""
    if value < 1e4:
        return f"{value:.4g}"
    factor, letter = next(step for step in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= step[0])
    return f"{value / factor:.3g} {letter}"


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
