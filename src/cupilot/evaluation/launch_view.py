"""A profile as people, language models and coding agents are shown it: each launch with what follows from its counters.

`cupilot profile`, the prompts and the MCP tools take their numbers and sentences from here; each has its own layout.
Shares of the time are modelled, wherever the time of the whole call is from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, isclose

from cupilot.gpu.hot_lines import HotLine, hot_lines
from cupilot.gpu.occupancy import WARP, Occupancy, occupancy
from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.timing import model_time
from cupilot.gpu.units import Unit, sources_of, units
from cupilot.languages import visible_source
from cupilot.numbers import percent, quantity
from cupilot.records import Kernel, Launch, MemoryOperation, Profile, Timing
from cupilot.toolchain.names import short_name

KINDS = ("load", "store", "atomic")
SECTOR_BYTES = 32
LUKEWARM = 0.02
"""A line that takes less than this share of a launch is not hot."""
SMALL_PART = 0.005


@dataclass(frozen=True)
class MemoryRow:
    """What lanes asked of a space, or what passed between two levels; what is not known is None."""

    name: str
    bytes: float
    source: str
    requests: float | None = None
    sectors: float | None = None
    hit_rate: float | None = None

    @property
    def sectors_per_request(self) -> float | None:
        return self.sectors / self.requests if self.requests and self.sectors is not None else None

    @property
    def bytes_per_request(self) -> float | None:
        return self.bytes / self.requests if self.requests else None


@dataclass(frozen=True)
class Residence:
    """How a launch fills the GPU.

    ``occupancy`` is what the resources of an SM allow; a small grid leaves ``busy_sms`` with ``most_warps`` at most on
    each, and all other SMs idle.
    """

    occupancy: Occupancy
    waves: float
    busy_sms: int
    most_warps: int

    @property
    def is_small(self) -> bool:
        """Whether the grid, not the occupancy, says how many warps are resident."""
        return self.most_warps < self.occupancy.warps_per_sm


@dataclass(frozen=True)
class LaunchView:
    """One launch; ``label`` tells it from others of the call, ``share`` is that of the call's modelled time."""

    label: str
    launch: Launch
    timing: Timing
    share: float
    spec: GpuSpec
    kernel: Kernel

    @cached_property
    def residence(self) -> Residence:
        return residence(self.launch, self.spec)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        return units(self.launch, self.spec, self.timing.time_s)

    @cached_property
    def memory(self) -> tuple[MemoryRow, ...]:
        return memory_rows(self.launch)

    def same(self, other: LaunchView) -> bool:
        """Whether it is a launch of the same shape and resources that takes as long, to a hundredth."""
        one, two = self.launch, other.launch
        shapes = (one.grid, one.block, one.dynamic_shared_bytes, one.resources) == (
            two.grid, two.block, two.dynamic_shared_bytes, two.resources,
        )  # fmt: skip
        return shapes and self.label == other.label and isclose(self.timing.time_s, other.timing.time_s, rel_tol=0.01)

    @cached_property
    def lines(self) -> tuple[tuple[HotLine, str], ...]:
        """The lines that take longest by the model, with their text; those without text are left out."""
        text = visible_source(self.kernel, (self.launch,)).split("\n")
        found = [hot for hot in hot_lines((self.launch,), self.spec) if 1 <= hot.line <= len(text)]
        return tuple((hot, text[hot.line - 1].strip()) for hot in found if hot.cost >= LUKEWARM)


@dataclass(frozen=True)
class OperationView:
    """A fill, copy or operator that PyTorch computes."""

    operation: MemoryOperation
    timing: Timing
    share: float

    @property
    def label(self) -> str:
        return f"{self.operation.kind}, {quantity(self.operation.bytes, 'B')}"


@dataclass(frozen=True)
class ProfileView:
    """All that a call did; ``modelled`` is the time of which the parts have their shares."""

    modelled: Timing
    launches: tuple[LaunchView, ...]
    operations: tuple[OperationView, ...]

    @property
    def longest(self) -> tuple[LaunchView, ...]:
        """The launches, the longest first."""
        return tuple(sorted(self.launches, key=lambda view: -view.timing.time_s))


def profile_view(
    profile: Profile,
    spec: GpuSpec,
    kernel: Kernel,
    modelled: Timing,
    launches: Sequence[Timing],
    operations: Sequence[Timing],
) -> ProfileView:
    """The view of a profile, with the times of the whole call, of each launch and of each operation."""
    labels = unlike([short_name(launch.kernel) for launch in profile.launches])
    return ProfileView(
        modelled,
        tuple(
            LaunchView(label, launch, timing, timing.time_s / modelled.time_s, spec, kernel)
            for label, launch, timing in zip(labels, profile.launches, launches, strict=True)
        ),
        tuple(
            OperationView(operation, timing, timing.time_s / modelled.time_s)
            for operation, timing in zip(profile.operations, operations, strict=True)
        ),
    )


def part_times(profile: Profile, time: Callable[[Profile], Timing]) -> tuple[tuple[Timing, ...], tuple[Timing, ...]]:
    """The time of each launch and of each operation alone."""
    launches = (replace(profile, launches=(launch,), operations=()) for launch in profile.launches)
    operations = (replace(profile, launches=(), operations=(operation,)) for operation in profile.operations)
    return tuple(map(time, launches)), tuple(map(time, operations))


def modelled_view(profile: Profile, spec: GpuSpec, kernel: Kernel) -> ProfileView:
    """The view of a profile with all times modelled, for whoever has records only and no device."""

    def time(part: Profile) -> Timing:
        return model_time(part, spec, profile.device)

    return profile_view(profile, spec, kernel, time(profile), *part_times(profile, time))


def unlike(names: Sequence[str]) -> list[str]:
    """Names that occur several times get a number."""
    found: list[str] = []
    for place, name in enumerate(names):
        found.append(f"{name} #{names[: place + 1].count(name)}" if names.count(name) > 1 else name)
    return found


# --- numbers of one launch ---------------------------------------------------------------------


def residence(launch: Launch, spec: GpuSpec) -> Residence:
    held = occupancy(spec, launch.threads, launch.resources, launch.dynamic_shared_bytes)
    blocks = min(held.blocks_per_sm, ceil(launch.blocks / spec.sms))
    return Residence(
        held, launch.blocks / (spec.sms * max(held.blocks_per_sm, 1)), min(launch.blocks, spec.sms),
        blocks * -(-launch.threads // WARP),
    )  # fmt: skip


def time_parts(timing: Timing) -> tuple[tuple[str, float], ...]:
    """The parts of a time with their shares, the longest first; what is under half a percent is added up."""
    shares = sorted(((name, time_s / timing.time_s) for name, time_s in timing.breakdown), key=lambda part: -part[1])
    shown = [part for part in shares if part[1] >= SMALL_PART]
    rest = sum(share for _, share in shares[len(shown) :])
    return (*shown, ("others", rest)) if rest >= SMALL_PART / 10 else tuple(shown)


def memory_rows(launch: Launch) -> tuple[MemoryRow, ...]:
    """Requests of lanes by space and kind, then what passed between the levels."""
    rows: list[MemoryRow] = []
    hits = {"global_load": share_of(launch.counter("l1_hit_sectors"), launch.counter("global_load_sectors"))}
    for space, kind in ((s, k) for s in ("global", "local") for k in KINDS):
        stem = f"{space}_{kind}"
        requests = launch.counter(f"{stem}_requests")
        if requests:
            source = sources_of(launch, (f"{stem}_requests", f"{stem}_sectors"))
            rows.append(
                MemoryRow(
                    f"{space} {kind}s", launch.counter(f"{stem}_bytes"), source, requests,
                    launch.counter(f"{stem}_sectors"), hits.get(stem),
                )
            )  # fmt: skip
    for way, word in (("read", "reads"), ("write", "writes")):
        sectors = launch.counter(f"l2_{way}_sectors")
        hit = share_of(launch.counter("l2_hit_sectors"), sectors) if way == "read" else None
        source = sources_of(launch, (f"l2_{way}_sectors",))
        rows.append(MemoryRow(f"L2 {word}", sectors * SECTOR_BYTES, source, None, sectors, hit))
    for way, word in (("read", "read"), ("write", "written")):
        source = sources_of(launch, (f"dram_{way}_bytes",))
        rows.append(MemoryRow(f"DRAM {word}", launch.counter(f"dram_{way}_bytes"), source))
    return tuple(rows)


def share_of(part: float, whole: float) -> float | None:
    return part / whole if whole else None


# --- sentences of one launch -------------------------------------------------------------------


def shape_text(view: LaunchView) -> str:
    """Grid, block and resources."""
    launch, resources = view.launch, view.launch.resources
    shared = resources.static_shared_bytes + launch.dynamic_shared_bytes
    spills = f", {resources.spill_bytes} bytes spilled" if resources.spill_bytes else ""
    return (
        f"grid {size_text(launch.grid)}, block {size_text(launch.block)}; {resources.registers} registers per thread, "
        f"{f'{shared} bytes' if shared else 'no'} shared memory{spills} (ptxas)"
    )


def occupancy_text(view: LaunchView) -> str:
    """Occupancy with its limiter, waves, and what a small grid leaves idle."""
    at, spec, launch = view.residence, view.spec, view.launch
    held = at.occupancy
    text = (
        f"occupancy {percent(held.fraction)}: {held.warps_per_sm} of {spec.warps_per_sm} warps per SM in "
        f"{plural(held.blocks_per_sm, 'block')}, limited by {held.limit}; {short(at.waves)} waves"
    )
    if not at.is_small:
        return text
    idle = spec.sms - at.busy_sms
    return (
        f"{text}; {plural(launch.blocks, 'block')} for {spec.sms} SMs: at most {plural(at.most_warps, 'warp')} on an SM"
        f"{f', {idle} SMs idle' if idle else ''}"
    )


def lane_texts(launch: Launch) -> tuple[str, ...]:
    """Bank conflicts, contended atomics and divergence."""
    requests, wavefronts, conflicts = (
        sum(launch.counter(f"shared_{kind}_{what}") for kind in KINDS)
        for what in ("requests", "wavefronts", "conflicts")
    )
    found = []
    if requests:
        found.append(
            f"shared memory: {count(requests)} requests in {count(wavefronts)} wavefronts, "
            f"{count(conflicts)} of them ({percent(share_of(conflicts, wavefronts))}) for bank conflicts"
        )
    atomics = launch.counter("global_atomic_requests")
    if atomics:
        steps = launch.counter("global_atomic_steps") / atomics
        found.append(f"atomics: {count(atomics)} requests, {short(steps)} lanes at the busiest address of each")
    if launch.active_lanes:
        found.append(f"active lanes: {launch.active_lanes:.1f} of 32 on average")
    return tuple(found)


def waiting_text(launch: Launch) -> str:
    """What a warp waits for; empty where nothing was counted."""
    loads, waits = launch.counter("independent_loads"), launch.counter("critical_loads")
    warps = launch.blocks * -(-launch.threads // WARP)
    barriers = launch.counter("barriers") / warps if warps else 0.0
    found = []
    if waits:
        under_way = f", with {short(loads)} load{'s' * (short(loads) != '1')} under way each time" if loads else ""
        found.append(f"a warp waits for global loads {short(waits)} times, one after another{under_way}")
    if barriers:
        found.append(f"{short(barriers)} barriers per warp")
    return "; ".join(found)


def short(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{value:.3g}" if value < 999.5 else count(round(value))


def size_text(size: tuple[int, int, int]) -> str:
    return "x".join(map(str, size))


def plural(number: int, noun: str, several: str = "") -> str:
    return f"{number} {noun if number == 1 else several or f'{noun}s'}"


def count(value: float) -> str:
    """Three digits and a factor, such as ``6.29 M``."""
    if value < 1e4:
        return f"{value:.4g}"
    factor, letter = next(step for step in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= step[0])
    return f"{value / factor:.3g} {letter}"
