"""Uneven work: the slowest warp of each block, and the order in which blocks of unequal work come to an end.

A block ends when its slowest warp does, so what a block needs is the way of that warp, not of the mean one.  Blocks
start in the order of their numbers, each as soon as there is room.  The runtime says what the blocks that ran cost
(`BlockCosts`); from that follows how long the machine is kept (`kept_waves`) and how much the busiest SM has to
do (`busiest_blocks`), both in units of the mean block.  For equal blocks these are the number of waves and of
blocks per SM.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from cupilot.arrays import Array
from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.timing.latency import BARRIER_CYCLES
from cupilot.records.evaluation import SassLine
from cupilot.vgpu.emit import KernelCode
from cupilot.vgpu.views import CostView

CYCLES_PER_INSTRUCTION = 2
"""Of a lone warp, where the machine code is not known."""
PATH = {"path": "path_cycles", "trips": "round_trips", "cover": "covered_cycles"}
MOST_CYCLES = 1 << 30
FEW_HOPS, CHAINED = 3, 0.25
ENOUGH_TO_TELL = 16
"""Blocks of a place that show how much they differ; of fewer it is taken that they differ as much as all do."""


# --- the way of a warp ----------------------------------------------------------------------------


def machine_costs(code: KernelCode, lines: Sequence[SassLine]) -> list[list[tuple[str, float]]]:
    """What the machine code of each basic block costs a warp, by pipe and for its way."""
    costs = {line.ptx_line: line.costs for line in lines}
    # a call's line is in two blocks
    return [[cost for line in block.ptx_lines for cost in costs.pop(line, ())] for block in code.blocks]


def block_cycles(code: KernelCode, lines: Sequence[SassLine], latency_cycles: float) -> list[int]:
    """Cycles of a lone warp's way through each basic block, round trips to memory of one length among them."""
    found = []
    for block, costs in zip(code.blocks, machine_costs(code, lines), strict=True):
        sums = dict.fromkeys(PATH, 0.0)
        for name, amount in costs:
            if name in sums:
                sums[name] += amount
        if not lines:
            sums["path"] = CYCLES_PER_INSTRUCTION * block.counters.get("warp_instructions", 0.0)
            sums["trips"] = block.counters.get("load_groups", 0.0)
        waits = max(0.0, sums["trips"] * latency_cycles - sums["cover"])
        waits += BARRIER_CYCLES * block.counters.get("barriers", 0.0)
        found.append(min(MOST_CYCLES, ceil(sums["path"] + waits)))
    return found


def critical_sums(code: KernelCode, executions: Sequence[int], lines: Sequence[SassLine]) -> dict[str, float]:
    """The ways of each block's slowest warp together, from how often these warps executed each basic block."""
    sums = {"critical_instructions": 0.0} | {f"critical_{name}": 0.0 for name in PATH.values() if lines}
    for block, costs, times in zip(code.blocks, machine_costs(code, lines), executions, strict=True):
        sums["critical_instructions"] += times * block.counters.get("warp_instructions", 0.0)
        for name, amount in costs:
            if name in PATH:
                sums[f"critical_{PATH[name]}"] += times * amount
    return sums


# --- blocks that wait for each other --------------------------------------------------------------


def handover_cycles(spec: GpuSpec) -> float:
    """From one block's store until another one, which waits for it, goes on.

    Two round trips to L2, one of them to its far side: the fence before the store waits for one, and the look that
    finds the value is another.
    """
    return spec.l2_latency_cycles + spec.l2_far_latency_cycles


def chain(cycles: float, hops: int, blocks: int, blocks_run: int) -> dict[str, float]:
    """The longest chain of blocks that wait for each other.

    Where a good part of the sampled blocks is one chain, all blocks are; a chain of few of them is as long as it is.
    """
    if not hops:
        return {}
    times = blocks / max(blocks_run, 1) if hops > FEW_HOPS and hops >= blocks_run * CHAINED else 1.0
    return {"chain_cycles": cycles * times, "chain_hops": hops * times}


# --- blocks one after another -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BlockCosts:
    """What blocks cost, an entry for each that ran alone or for several neighbours, by their numbers.

    Each of the others is a pair: the sum of these blocks, and the largest of one of them.  Each block stands for
    ``stands_for`` blocks of the grid.
    """

    block: Array
    blocks: Array
    stands_for: Array
    path: tuple[Array, Array]
    work: tuple[Array, Array]
    wavefronts: tuple[Array, Array]
    sectors: tuple[Array, Array]
    stored: Array

    @classmethod
    def of(cls, views: Sequence[CostView]) -> BlockCosts:
        def column(name: str) -> Array:
            return np.array([float(getattr(view, name)) for view in order])

        def pair(name: str, most: str) -> tuple[Array, Array]:
            return column(name), column(most)

        order = sorted(views, key=lambda view: view.block)
        return cls(
            column("block"), column("blocks"), column("stands_for"), pair("path", "longest_path"),
            pair("work", "most_work"), pair("wavefronts", "most_wavefronts"), pair("sectors", "most_sectors"),
            column("stored_bytes"),
        )  # fmt: skip

    @property
    def spread(self) -> float:
        """The standard deviation of the blocks' work, relative to its mean."""
        return _deviation(self.work[0] / np.maximum(self.blocks, 1), self.stands_for * self.blocks)

    @property
    def work_error(self) -> float:
        """How uncertain the mean of the blocks' work is: one standard error, relative."""
        return self.spread * self._share_of_error

    @property
    def stored_error(self) -> float:
        """The same for the bytes that blocks store: what each place's blocks have is known apart from the others'."""
        stored = self.stored / np.maximum(self.blocks, 1)
        weights = self.stands_for * self.blocks
        total, square = float((stored * weights).sum()), 0.0
        of_all = _deviation(stored, weights) * total / max(float(weights.sum()), 1.0)
        for each in np.unique(self.stands_for):
            place = self.stands_for == each
            known = float(self.blocks[place].sum())
            deviation = float(np.std(stored[place]))
            if known < ENOUGH_TO_TELL:
                deviation = max(deviation, of_all)
            square += (each * known) ** 2 * max(0.0, 1.0 - 1.0 / max(each, 1.0)) * deviation**2 / max(known, 1.0)
        return float(np.sqrt(square)) / total if total > 0 else 0.0

    @property
    def _share_of_error(self) -> float:
        """The standard error of a mean over the deviation; nothing where all blocks are known."""
        known, of = float(self.blocks.sum()), float((self.stands_for * self.blocks).sum())
        return float(np.sqrt(max(0.0, 1.0 - known / max(of, 1.0)) / max(known, 1.0)))


def _deviation(values: Array, weights: Array) -> float:
    total = weights.sum()
    mean = float((values * weights).sum() / total) if total else 0.0
    return float(np.sqrt((weights * (values - mean) ** 2).sum() / total)) / mean if mean > 0 else 0.0


def read_costs(library: ctypes.CDLL, launch: int) -> BlockCosts:
    count = int(library.vgc_launch_costs(launch, 0, None))
    views = (CostView * count)()
    library.vgc_launch_costs(launch, count, ctypes.byref(views))
    return BlockCosts.of(list(views))


def _started_at(costs: BlockCosts, sums: Array, mean: float, places: int) -> Array:
    """The work, in mean blocks, that was started before the wave in which each entry's block starts.

    Of equal blocks that is the number of the wave's first block; where blocks before it had more or less to do than the
    mean one, that is added.
    """
    first = np.floor(costs.block / places) * places
    more = np.concatenate(([0.0], np.cumsum(costs.stands_for * (sums / mean - costs.blocks))))
    return first + more[np.searchsorted(costs.block, first)]


def kept_waves(costs: BlockCosts, blocks: int, places: int) -> float:
    """How many mean blocks one after another the launch takes, with so many places for blocks at a time."""
    waves, (sums, longest) = float(ceil(blocks / places)), costs.path
    mean = _mean(costs, sums)
    if mean <= 0:
        return waves
    ends = _started_at(costs, sums, mean, places) / places + longest / mean
    return max(waves, float(ends.max()))


def busiest_blocks(costs: BlockCosts, of: tuple[Array, Array], blocks: int, sms: int, resident: int) -> float:
    """What the busiest SM has to do, in mean blocks: the heaviest block beside others that are resident with it."""
    even, (sums, most) = float(ceil(blocks / sms)), of
    mean = _mean(costs, sums)
    if mean <= 0:
        return even
    places = sms * resident
    first = np.floor(costs.block / places) * places
    beside = np.minimum(resident, np.ceil((blocks - first) / sms)) - 1
    # those beside it are like all others but for it
    rest = np.maximum(0.0, blocks - most / mean) / max(blocks - 1, 1)
    ends = _started_at(costs, sums, mean, places) / sms + beside * np.minimum(1.0, rest) + most / mean
    return max(even, float(ends.max()))


def _mean(costs: BlockCosts, sums: Array) -> float:
    number = float((costs.stands_for * costs.blocks).sum())
    return float((costs.stands_for * sums).sum()) / number if number else 0.0
