"""What the runtime counted, turned into the counters of a profile (docs/counters.md lists them).

Instruction counts are static mixes times executions of basic blocks; they are those of the PTX.  Counts of memory
instructions come in as the machine code makes them where that is known (`widths`), and say so.  L1 and a block's share
of L2 are simulated while blocks run; how much of the L2 traffic reaches DRAM is estimated here:

* what one block reads twice at a distance that its share of L2 cannot hold is read twice (`passes`);
* blocks that run at the same time advance together and share what they read, so one wave reads a
  buffer, or the stretch of it that its blocks are at (`stretch`), at most once per pass;
* when all buffers together fit into L2, every later wave and pass finds them there; where they almost do, a part
  of them (`overflow`).

Of constant memory the passes are counted, one for each address that the lanes of a request differ in, and what its
small cache does not have.  Memory of the host is read and written over PCIe; managed memory is the device's after the
launch that touches it first (`host_traffic`).

Not covered: the lanes that a guard (``@p``) switches off within a basic block: they count as
active for instructions and floating-point operations, not for memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from types import MappingProxyType

from cupilot.records import INTENSIVE, Counter, LineCost
from cupilot.records.evaluation import SassLine
from cupilot.vgpu.emit import KernelCode, Site
from cupilot.vgpu.lower.cost import at_line
from cupilot.vgpu.uneven import PATH, BlockCosts, busiest_blocks, chain, critical_sums, kept_waves, machine_costs
from cupilot.vgpu.widths import SiteCount, kind_of

SECTOR_BYTES, LINE_BYTES = 32, 128
TELLING = 4
"""Blocks that must be known before their order says anything."""
MACHINE_SUMS = PATH | {"local": "local_machine_bytes"}
UNCOUNTED = ("const", "param", "group")  # a group's members count
PLACES = ("device", "host", "managed")
"""Where a buffer is (cudart_control.cpp: vgc_launch_place); managed: the launch brought its pages to the device."""


@dataclass
class Sum:
    """A counter as it grows; from the SASS as soon as one part of it is."""

    value: float = 0.0
    source: str = "PTX"

    def add(self, amount: float, source: str = "PTX") -> None:
        self.value += amount
        if source == "SASS":
            self.source = source


class Sums(dict[str, Sum]):
    """Counters by name."""

    def add(self, name: str, amount: float, source: str = "PTX") -> None:
        self.setdefault(name, Sum()).add(amount, source)

    def value(self, name: str) -> float:
        return self[name].value if name in self else 0.0


@dataclass(frozen=True)
class BufferTraffic:
    """32-byte sectors that blocks moved to and from one buffer; blocks of one wave read within a stretch of it."""

    bytes: int
    l2_read: int
    l2_write: int
    miss_read: int
    miss_write: int
    unique_read: int
    unique_write: int
    stretch_bytes: float
    place: str = "device"


def instruction_counters(code: KernelCode, counts: Sequence[tuple[int, int]], warps: float) -> Sums:
    """Static mix of each basic block times how often warps and lanes executed it."""
    totals = Sums()
    for block, (executions, lanes) in zip(code.blocks, counts, strict=True):
        for name, amount in block.counters.items():
            if "@" in name:
                continue  # of one line
            # floating-point operations are those of active lanes, the rest is per warp, matrix products too
            times = lanes if name.startswith("flop_") and not name.startswith("flop_tensor") else executions
            totals.add(name, amount * times)
        totals.add("lane_instructions", block.counters.get("warp_instructions", 0.0) * lanes)
    totals.add("critical_loads", totals.value("load_groups") / max(warps, 1))
    return totals


def machine_counters(code: KernelCode, counts: Sequence[tuple[int, int]], lines: Sequence[SassLine]) -> Sums:
    """The machine code's instructions and path: what its lines of PTX cost, times how often warps executed them."""
    totals = Sums()
    for costs, (executions, _) in zip(machine_costs(code, lines), counts, strict=True):
        for name, amount in costs:
            if name in MACHINE_SUMS:
                totals.add(MACHINE_SUMS[name], amount * executions, "SASS")
            else:
                totals.add(f"sass_{name}", amount * executions, "SASS")
                totals.add("sass_instructions", amount * executions, "SASS")
    return totals


def by_space(site: Site, count: SiteCount) -> list[tuple[str, SiteCount]]:
    """A generic instruction's part in shared memory apart from the rest, which counts as global."""
    if site.space in ("shared", "local"):
        return [(site.space, count)]
    if not count.shared_requests:
        return [("global", count)]
    inside = SiteCount(
        count.shared_requests, 0.0, count.shared_wavefronts, count.shared_bytes, count.shared_ideal,
        count.same_address * count.shared_requests / count.requests, source=count.source,
    )  # fmt: skip
    outside = replace(
        count, requests=count.requests - inside.requests, wavefronts=count.wavefronts - inside.wavefronts,
        lane_bytes=count.lane_bytes - inside.lane_bytes, ideal=count.ideal - inside.ideal,
        same_address=count.same_address - inside.same_address,
    )  # fmt: skip
    return [("shared", inside), ("global", outside)]


def memory_counters(code: KernelCode, sites: Sequence[SiteCount]) -> Sums:
    """Requests, sectors, wavefronts, conflicts by space and kind."""
    totals = Sums()
    for site, whole in zip(code.sites, sites, strict=True):
        if site.space == "const":
            for name, amount in (("requests", whole.requests), ("passes", whole.wavefronts), ("misses", whole.sectors)):
                totals.add(f"const_{name}", amount)
        if site.space in UNCOUNTED:
            continue
        kind = kind_of(site)
        for space, count in by_space(site, whole):
            parts = {"requests": count.requests, "wavefronts": count.wavefronts, "bytes": count.lane_bytes}
            if space == "shared":
                parts["conflicts"] = count.wavefronts - count.ideal
            else:
                parts["sectors"] = count.sectors
            if kind == "atomic":
                parts |= {"lanes": count.lane_bytes / site.bytes, "steps": count.same_address}
            for name, amount in parts.items():
                # what lanes ask for does not depend on the width
                source = "PTX" if name == "bytes" and amount else count.source
                totals.add(f"{space}_{kind}_{name}", amount, source)
            # a copy also counts as the load and the store that it is
            if site.text.startswith("cp.") and kind == "load":
                totals.add("async_copy_requests", count.requests)
                totals.add("async_copy_bytes", count.lane_bytes)
        if whole.merged:
            totals.add("merged_requests", whole.merged, whole.source)
    return totals


def overflow(footprint_bytes: float, l2_bytes: int, everywhere: bool) -> float:
    """The share of what is asked for again that L2 has lost meanwhile.

    A single SM's data fill the L2 before any is lost.  What SMs all over the chip read is kept twice, once for each
    half of them, so it begins to be lost at half the size (A100 and H100: pointer chases and L2 curves).
    """
    begin, end = (0.48, 1.2) if everywhere else (1.0, 1.45)
    return min(1.0, max(0.0, (footprint_bytes / l2_bytes - begin) / (end - begin)))


def stretch(extents: Sequence[tuple[int, int, int]], size: int, blocks: int) -> float:
    """Bytes of a buffer within which so many blocks in a row read, from (block, first line, last line) of some.

    Known where blocks with higher numbers read further back, as in a batch; everywhere else it is the whole buffer.
    """
    known = sorted(extents)
    firsts = [first for _, first, _ in known]
    if len(known) < TELLING or firsts != sorted(firsts):
        return float(size)
    between = known[-1][0] - known[0][0]
    step = (firsts[-1] - firsts[0]) / max(between, 1)
    length = sum(last + 1 - first for _, first, last in known) / len(known)
    return min(float(size), (step * blocks + length) * LINE_BYTES)


def dram_bytes(
    traffic: Iterable[BufferTraffic], scale: float, waves: float, l2_bytes: int, everywhere: bool = True
) -> dict[str, float]:
    """Bytes that cross L2 and DRAM in the whole grid (see the module's text)."""
    buffers = [t for t in traffic if (t.l2_read or t.l2_write) and t.place != "host"]
    # a sector takes the place of its line
    touched = [min(t.bytes, max(t.unique_read, t.unique_write) * LINE_BYTES * scale) for t in buffers]
    lost = overflow(sum(touched), l2_bytes, everywhere)
    totals = {
        "footprint_bytes": sum(touched),
        "l2_read_sectors": 0.0,
        "l2_write_sectors": 0.0,
        "dram_read_bytes": 0.0,
        "dram_write_bytes": 0.0,
    }
    for t in buffers:
        totals["l2_read_sectors"] += t.l2_read * scale
        totals["l2_write_sectors"] += t.l2_write * scale
        for way, missed, unique in (("read", t.miss_read, t.unique_read), ("write", t.miss_write, t.unique_write)):
            if not missed:
                continue
            asked, size = missed * scale * SECTOR_BYTES, max(t.bytes, SECTOR_BYTES)
            together = min(size, t.stretch_bytes) if way == "read" else size
            once = min(unique * scale * SECTOR_BYTES, size)
            again = max(once, min(asked, waves * missed / max(unique, 1) * together))
            totals[f"dram_{way}_bytes"] += once + lost * (again - once)
    return totals


def host_traffic(traffic: Iterable[BufferTraffic], scale: float) -> dict[str, float]:
    """Bytes that cross PCIe: requests to the host's memory, which L2 does not keep, and managed pages, once."""
    found = {"host_read_bytes": 0.0, "host_write_bytes": 0.0, "migrated_bytes": 0.0}
    for t in traffic:
        if t.place == "host":
            found["host_read_bytes"] += t.l2_read * scale * SECTOR_BYTES
            found["host_write_bytes"] += t.l2_write * scale * SECTOR_BYTES
        elif t.place == "managed":
            found["migrated_bytes"] += min(t.bytes, max(t.unique_read, t.unique_write) * scale * SECTOR_BYTES)
    return found


@dataclass(frozen=True)
class Sampled:
    """What the runtime says of the blocks of a launch: how many there are and what those that ran cost.

    ``scale`` is from counts to the whole grid, ``critical`` how often the slowest warps of blocks executed each basic
    block, ``resident`` how many blocks an SM has at a time.
    """

    blocks: int
    scale: float
    heaviest: int
    warps_per_block: int
    resident: int
    critical: Sequence[int] = ()
    costs: BlockCosts | None = None
    blocks_run: int = 0
    chain_cycles: int = 0
    chain_hops: int = 0


def launch_counters(
    code: KernelCode,
    counts: Sequence[tuple[int, int]],
    sites: Sequence[SiteCount],
    traffic: Sequence[BufferTraffic],
    ran: Sampled,
    *,
    sms: int,
    l2_bytes: int,
    machine_code: Sequence[SassLine] = (),
    aside: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Counter, ...]:
    """All counters of one launch, scaled to the whole grid."""
    scale, blocks = ran.scale, ran.blocks
    measured = Sums(
        instruction_counters(code, counts, blocks / scale * ran.warps_per_block)
        | memory_counters(code, sites)
        | machine_counters(code, counts, machine_code)
    )
    for name, value in critical_sums(code, ran.critical, machine_code).items() if ran.critical else ():
        measured.add(name, value, "SASS" if machine_code and name != "critical_instructions" else "PTX")
    groups = measured.pop("load_groups", Sum()).value
    loads = measured.get("global_load_requests", Sum())
    measured["independent_loads"] = Sum(max(1.0, loads.value / groups) if groups else 1.0, loads.source)
    measured["heaviest_block"] = Sum(float(ran.heaviest))
    measured["local_frame_bytes"] = Sum(float(code.local_bytes))
    waves = ceil(blocks / max(ran.resident * sms, 1))
    modelled = dram_bytes(traffic, scale, waves, l2_bytes, everywhere=2 * blocks > sms)
    # stores that are merged write a sector once
    modelled["l2_write_sectors"] = max(0.0, modelled["l2_write_sectors"] - scale * merged_sectors(code, sites))
    modelled |= (hosts := host_traffic(traffic, scale))
    from_host = hosts["host_read_bytes"] / SECTOR_BYTES
    modelled |= hits(modelled, scale * measured.value("global_load_sectors") - from_host)
    modelled |= unevenness(ran, sms)
    modelled |= chain(ran.chain_cycles, ran.chain_hops, ran.blocks, ran.blocks_run)
    found = [
        Counter(name, total.value if name in INTENSIVE else total.value * scale, total.source)
        for name, total in sorted(measured.items())
    ]
    found += [Counter(name, value, "model") for name, value in sorted(modelled.items())]
    found += [Counter(name, value, "PTX") for name, value in sorted(aside.items())]
    return tuple(counter for counter in found if counter.value)


def unevenness(ran: Sampled, sms: int) -> dict[str, float]:
    """How blocks of unequal work keep the machine busy, where enough is known of them."""
    costs = ran.costs
    if costs is None or not costs.block.size:
        return {}
    places = max(ran.resident, 1)
    return {
        "kept_waves": kept_waves(costs, ran.blocks, places * sms),
        "busiest_sm_blocks": busiest_blocks(costs, costs.work, ran.blocks, sms, places),
        "busiest_sm_wavefronts": busiest_blocks(costs, costs.wavefronts, ran.blocks, sms, places),
        "busiest_sm_sectors": busiest_blocks(costs, costs.sectors, ran.blocks, sms, places),
        "block_spread": costs.spread,
        "sample_error": costs.work_error,
        "stored_error": costs.stored_error,
        "sampled_store_bytes": float(costs.stored.sum()),
    }


def merged_sectors(code: KernelCode, sites: Sequence[SiteCount]) -> float:
    """Sectors of global stores that other stores of the machine code write at the same time."""
    return sum(
        count.sectors * count.merged / count.requests
        for site, count in zip(code.sites, sites, strict=True)
        if count.requests and count.merged and site.space == "global" and kind_of(site) == "store"
    )


def hits(modelled: dict[str, float], load_sectors: float) -> dict[str, float]:
    """Sectors that a level had."""
    from_dram = modelled["dram_read_bytes"] / SECTOR_BYTES
    return {
        "l1_hit_sectors": max(0.0, load_sectors - modelled["l2_read_sectors"]),
        "l2_hit_sectors": max(0.0, modelled["l2_read_sectors"] - from_dram),
    }


# --- source lines -------------------------------------------------------------------------------


def line_costs(
    code: KernelCode, counts: Sequence[tuple[int, int]], sites: Sequence[SiteCount], scale: float
) -> tuple[LineCost, ...]:
    """What each source line executed and moved."""
    lines: dict[int, Sums] = {}
    for block, (executions, lanes) in zip(code.blocks, counts, strict=True):
        for line, instructions in block.lines.items():
            of_line = lines.setdefault(line, Sums())
            of_line.add("warp_instructions", instructions * executions)
            of_line.add("lane_instructions", instructions * lanes)
            of_line.add("flop", block.counters.get(at_line("flop", line), 0.0) * lanes)
            of_line.add("flop", block.counters.get(at_line("flop_tensor", line), 0.0) * executions)
    for site, whole in zip(code.sites, sites, strict=True):
        if site.space in UNCOUNTED:
            continue
        of_line = lines.setdefault(site.line, Sums())
        for space, count in by_space(site, whole):
            for name, amount in _line_parts(space, kind_of(site), count).items():
                of_line.add(name, amount, count.source if count.requests or count.merged else "PTX")
    return tuple(_line_cost(line, lines[line], scale) for line in sorted(lines) if line)


def _line_parts(space: str, kind: str, count: SiteCount) -> dict[str, float]:
    parts = {"atomic_requests": count.requests} if kind == "atomic" else {}
    if space == "shared":
        conflicts = count.wavefronts - count.ideal
        return parts | {"shared_requests": count.requests, "shared_wavefronts": count.wavefronts,
                        "shared_conflicts": conflicts}  # fmt: skip
    if space == "local":
        return parts | {"local_sectors": count.sectors}
    return parts | {"global_requests": count.requests, "global_sectors": count.sectors,
                    "global_bytes": count.lane_bytes}  # fmt: skip


def _line_cost(line: int, sums: Sums, scale: float) -> LineCost:
    source = "SASS" if any(total.source == "SASS" for total in sums.values()) else "PTX"
    instructions = sums.pop("warp_instructions", Sum()).value
    values = {name: total.value * scale for name, total in sums.items()}
    return LineCost(line, instructions * scale, source=source, **values)
