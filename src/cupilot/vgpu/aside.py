"""What kernels do beside computing and moving data, as counters: printing, the heap, sleeping, clocks, host memory."""

from __future__ import annotations

import ctypes

SCALED = ("prints", "heap_calls", "sleep_ns", "clock_cycles", "clock_ns")
"""Sums over lanes, warps or blocks that ran; the others are maxima, or what a whole call did."""


class AsideView(ctypes.Structure):  # engine.h: Aside
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "prints", "heap_calls", "sleep_ns", "longest_sleep_ns", "clock_cycles", "longest_clock_cycles", "clock_ns",
            "longest_clock_ns", "from_host_bytes", "to_host_bytes",
        )
    ]  # fmt: skip


def aside_counters(library: ctypes.CDLL, launch: int, scale: float) -> dict[str, float]:
    """Of one launch, scaled to its whole grid."""
    library.vgc_launch_aside.argtypes = [ctypes.c_uint64, ctypes.c_void_p]
    view = AsideView()
    library.vgc_launch_aside(launch, ctypes.byref(view))
    values = {str(field[0]): float(getattr(view, field[0])) for field in AsideView._fields_}
    return {name: value * scale if name in SCALED else value for name, value in values.items()}
