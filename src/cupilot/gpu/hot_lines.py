"""Source lines by what they cost, over one launch or all launches of a profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.timing import launch_parts, line_seconds
from cupilot.records import Launch


@dataclass(frozen=True)
class HotLine:
    """A source line with its shares of what the launches cost.

    ``cost`` is its share of the modelled time, or of the warp instructions where the GPU is not known.
    """

    line: int
    cost: float
    instructions: float
    sectors: float


def hot_lines(launches: Sequence[Launch], spec: GpuSpec | None) -> tuple[HotLine, ...]:
    """The lines that cost anything, the most expensive first."""
    instructions: dict[int, float] = {}
    sectors: dict[int, float] = {}
    seconds: dict[int, float] = {}
    total_s = 0.0
    for launch in launches:
        for cost in launch.lines:
            instructions[cost.line] = instructions.get(cost.line, 0.0) + cost.warp_instructions
            sectors[cost.line] = sectors.get(cost.line, 0.0) + cost.global_sectors
        if spec is not None:
            total_s += sum(launch_parts(launch, spec).values())
            for line, time_s in line_seconds(launch, spec):
                seconds[line] = seconds.get(line, 0.0) + time_s
    costs, whole = (instructions, sum(instructions.values())) if spec is None else (seconds, total_s)
    all_instructions, all_sectors = sum(instructions.values()) or 1.0, sum(sectors.values()) or 1.0
    found = [
        HotLine(line, cost / whole, instructions[line] / all_instructions, sectors[line] / all_sectors)
        for line, cost in costs.items()
        if cost > 0
    ]
    return tuple(sorted(found, key=lambda hot: (-hot.cost, hot.line)))
