"""What the memory instructions of a launch did, asked of the runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from cupilot.vgpu.emit import Site
from cupilot.vgpu.widths import SiteCount, Width, as_built


class _Site(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in ("requests", "sectors", "wavefronts", "lane_bytes")]


class _Counted(ctypes.Structure):  # engine.h: Counted
    _fields_ = [
        *((n, ctypes.c_uint64) for n in ("ideal", "same_address", "shared_requests", "shared_wavefronts",
                                         "shared_bytes", "shared_ideal")),
        ("wide_wavefronts", ctypes.c_uint64 * 2),
        ("wide_ideal", ctypes.c_uint64 * 2),
    ]  # fmt: skip


def site_counts(
    library: ctypes.CDLL, launch: int, sites: Sequence[Site], widths: Sequence[Width | None]
) -> list[SiteCount]:
    """Counts by site, as the machine code makes the accesses."""
    for function in (library.vgc_launch_site, library.vgc_launch_counted):
        function.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p]
    found = []
    for number in range(len(sites)):
        site, more = _Site(), _Counted()
        library.vgc_launch_site(launch, number, ctypes.byref(site))
        library.vgc_launch_counted(launch, number, ctypes.byref(more))
        first, second = zip(more.wide_wavefronts, more.wide_ideal, strict=True)
        count = SiteCount(
            site.requests, site.sectors, site.wavefronts, site.lane_bytes, more.ideal, more.same_address,
            more.shared_requests, more.shared_wavefronts, more.shared_bytes, more.shared_ideal, (first, second),
        )  # fmt: skip
        found.append(count)
    return [
        as_built(site, count if site.group < 0 else count + found[site.group], width)
        for site, count, width in zip(sites, found, widths, strict=True)
    ]
