"""GPUs as data: specs, occupancy, roofline."""

from cupilot.gpu.catalogue import load_spec, spec_names
from cupilot.gpu.occupancy import Occupancy, l1_bytes, occupancy, shared_carveout
from cupilot.gpu.roofline import ZONES, Place, achieved_fraction, place, zone_of
from cupilot.gpu.spec import GpuSpec

__all__ = [
    "ZONES", "GpuSpec", "Occupancy", "Place", "achieved_fraction", "l1_bytes", "load_spec", "occupancy", "place",
    "shared_carveout", "spec_names", "zone_of",
]  # fmt: skip
