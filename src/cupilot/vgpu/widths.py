"""How the machine code of a build makes the PTX's loads and stores: which width, and what follows for the counters.

A merged access of W bytes replaces W/w accesses of w bytes at neighbouring addresses.  Aligned down to W, each of them
has the addresses of the merged one, so the passes through the banks at width W, counted at every PTX request and
divided by W/w, are exactly those of the merged requests.  A merged access stays within a 32-byte sector, so its sectors
are those of each of its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cupilot.records.evaluation import SassAccess, SassFunction
from cupilot.vgpu.emit import Site

# bits that tell the runtime what to look at (engine.h: Wanted)
WIDE_8, WIDE_16, SAME_ADDRESS, WAITS = 1, 2, 4, 8
WANTED = {8: WIDE_8, 16: WIDE_16}
Place = tuple[int, str, str, int]  # source line, space, kind, bytes


@dataclass(frozen=True)
class SiteCount:
    """What one memory instruction did, see docs/counters.md; ``wide`` is by width: wavefronts and their ideal."""

    requests: float
    sectors: float
    wavefronts: float
    lane_bytes: float
    ideal: float = 0.0
    same_address: float = 0.0
    shared_requests: float = 0.0
    shared_wavefronts: float = 0.0
    shared_bytes: float = 0.0
    shared_ideal: float = 0.0
    wide: tuple[tuple[float, float], tuple[float, float]] = ((0.0, 0.0), (0.0, 0.0))
    merged: float = 0.0  # PTX requests that are part of another one in the machine code
    source: str = "PTX"

    def __add__(self, other: SiteCount) -> SiteCount:
        names = ("requests", "sectors", "wavefronts", "lane_bytes", "ideal", "same_address", "shared_requests",
                 "shared_wavefronts", "shared_bytes", "shared_ideal")  # fmt: skip
        first, second = ((a[0] + b[0], a[1] + b[1]) for a, b in zip(self.wide, other.wide, strict=True))
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return SiteCount(wide=(first, second), **sums)


@dataclass(frozen=True)
class Width:
    """The share of a PTX access's bytes that is moved with each width; nothing is moved when it is ``gone``."""

    shares: tuple[tuple[int, float], ...]
    gone: bool = False


def kind_of(site: Site) -> str:
    """Load, store or atomic."""
    return "atomic" if site.atomic else "store" if site.store else "load"


def site_widths(sites: Sequence[Site], kernel: str, sass: Iterable[SassFunction]) -> list[Width | None]:
    """For each memory instruction how the machine code makes it, or None where that is not known.

    PTX accesses and sites of one source line, space and kind are paired in order.  Sites that go together come at the
    place of the first of them.
    """
    functions = list(sass)
    own = _by_place(f for f in functions if f.name == kernel)
    reached = _by_place(f for f in functions if f.name == kernel or not f.is_kernel)
    found: list[Width | None] = [None] * len(sites)
    groups: dict[Place, list[int]] = {}
    for number, site in enumerate(sites):
        if site.text.startswith(("ld.", "ldu.", "st.")) and site.space not in ("group", "const", "param"):
            groups.setdefault((site.line, site.space, kind_of(site), site.bytes), []).append(number)
    for key, numbers in groups.items():
        for accesses in (own.get(key, []), reached.get(key, [])):
            pairs = _paired([sites[number].group for number in numbers], accesses)
            if pairs is not None:
                for number, width in zip(numbers, pairs, strict=True):
                    found[number] = width
                break
    return found


def _by_place(functions: Iterable[SassFunction]) -> dict[Place, list[SassAccess]]:
    found: dict[Place, list[SassAccess]] = {}
    for function in functions:
        for access in function.accesses:
            found.setdefault((access.line, access.space, access.kind, access.bytes), []).append(access)
    return found


def _paired(leaders: Sequence[int], accesses: Sequence[SassAccess]) -> list[Width | None] | None:
    """The widths of sites with these leaders; None when the accesses cannot be those of the sites."""
    each = [_width(access) for access in accesses]
    if len(set(each)) == 1:
        return each[:1] * len(leaders)
    if len(accesses) != len(leaders):
        return None
    if max(leaders) < 0:
        return each
    # stable: accesses of one base stay in order
    ordered = sorted(accesses, key=lambda access: access.base)
    bases: dict[int, set[int]] = {}
    for leader, access in zip(leaders, ordered, strict=True):
        bases.setdefault(leader, set()).add(access.base)
    if all(len(found) == 1 for leader, found in bases.items() if leader >= 0):
        return [_width(access) for access in ordered]
    return _mean(each, len(leaders))


def _mean(each: Sequence[Width | None], count: int) -> list[Width | None]:
    known = [width for width in each if width is not None and not width.gone]
    if len(known) < len(each):
        return [None] * count
    shares: dict[int, float] = {}
    for width in known:
        for size, share in width.shares:
            shares[size] = shares.get(size, 0.0) + share / len(known)
    return [Width(tuple(sorted(shares.items())))] * count


def _width(access: SassAccess) -> Width | None:
    if access.gone:
        return Width((), gone=True)
    total = sum(size * count for size, count in access.widths)
    supported = all(size == access.bytes or size in WANTED for size, _ in access.widths)
    return Width(tuple((size, size * n / total) for size, n in access.widths)) if total and supported else None


def may_wait(site: Site) -> bool:
    """Whether an atomic may be there to find what another block put down: a lock, or a look that changes nothing."""
    operation, _, operands = site.text.partition(" ")
    return ".cas" in operation or ".exch" in operation or operands.rstrip("; ").endswith(", 0")


def wanted(sites: Sequence[Site], widths: Sequence[Width | None]) -> list[int]:
    """What the runtime shall look at, by site; for sites that go together their leader looks."""
    bits = [SAME_ADDRESS | (WAITS if may_wait(site) else 0) if kind_of(site) == "atomic" else 0 for site in sites]
    for number, (site, width) in enumerate(zip(sites, widths, strict=True)):
        for size, _ in width.shares if width is not None else ():
            if size != site.bytes:
                bits[number] |= WANTED[size]
        if site.group >= 0:
            bits[site.group] |= bits[number]
    return bits


def as_built(site: Site, count: SiteCount, width: Width | None) -> SiteCount:
    """Counts of the machine instructions that a PTX instruction became."""
    if width is None:
        return count
    if width.gone:
        return SiteCount(0.0, 0.0, 0.0, 0.0, merged=count.requests, source="SASS")
    in_shared = site.space == "shared"
    requests = sectors = wavefronts = ideal = 0.0
    for size, share in width.shares:
        part = share * site.bytes / size
        requests, sectors = requests + part * count.requests, sectors + part * count.sectors
        passes, least = (count.wavefronts, count.ideal) if size == site.bytes else count.wide[int(size == 16)]
        # in L1 a request also takes as long as its lines do, whatever its width
        wavefronts += part * (passes if in_shared else max(passes, count.wavefronts))
        ideal += part * least
    return replace(
        count, requests=requests, sectors=sectors, wavefronts=wavefronts, ideal=ideal,
        merged=count.requests - requests, source="SASS",
    )  # fmt: skip
