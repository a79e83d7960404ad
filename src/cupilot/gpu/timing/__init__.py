"""Time on a GPU, modelled from the counters of a run; docs/time-model.md has the whole story.

`throughput` has what each resource alone would need, `latency` what a warp waits for, `model` puts them together.
"""

from cupilot.gpu.timing.model import (
    GAP_S,
    combine,
    launch_parts,
    line_seconds,
    model_time,
    operation_parts,
    uncertainty,
    with_minimum,
)
from cupilot.gpu.timing.throughput import Parts

__all__ = [
    "GAP_S", "Parts", "combine", "launch_parts", "line_seconds", "model_time", "operation_parts", "uncertainty",
    "with_minimum",
]  # fmt: skip
