"""GPUs as data: specs, occupancy, roofline, and how much work a task is."""

from cupilot.gpu.catalogue import load_spec, spec_names
from cupilot.gpu.occupancy import Occupancy, l1_bytes, occupancy, shared_carveout
from cupilot.gpu.roofline import ZONES, Place, achieved_fraction, limit_s, place, reachable_s, zone_of
from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.work import needed_flop, task_flop

__all__ = [
    "ZONES", "GpuSpec", "Occupancy", "Place", "achieved_fraction", "l1_bytes", "limit_s", "load_spec", "needed_flop",
    "occupancy", "place", "reachable_s", "shared_carveout", "spec_names", "task_flop", "zone_of",
]  # fmt: skip
