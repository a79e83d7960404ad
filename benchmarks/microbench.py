"""The time model against microbenchmarks of real GPUs, with kernels that run on the virtual one.

``microbench/measured.csv`` holds the measured points.  Curves:

=======  ====================================  =================================
stream   threads per block, two blocks per SM  bytes per second
l1       KB that every block reads again       bytes per second of all SMs
l2       KB that blocks read in turn           bytes per second
chase    KB of a ring of pointers              cycles per step
=======  ====================================  =================================

Prints predicted against measured and, last, one JSON line with the share of points within 15 % for each curve.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cupilot.arrays import Array
from cupilot.cli.environment import cache_folder
from cupilot.contracts import Built, Call, Device, Outcome
from cupilot.devices import open_device
from cupilot.records import Kernel, Scalar, TensorSpec

HERE = Path(__file__).parent / "microbench"
OPERATIONS = ("init", "read", "scale", "triad", "3pt", "5pt")
# arrays that a kernel moves whole; the neighbours of a stencil are in the caches
MOVED = {"init": 1, "read": 1, "scale": 2, "triad": 3, "3pt": 2, "5pt": 2}
STREAMED = 1 << 26  # numbers: 512 MB
BUDGET = 30_000_000
NEAR = 1.15


@dataclass(frozen=True)
class Point:
    """One measured point of a curve."""

    gpu: str
    curve: str
    operation: str
    x: int
    value: float


class Laboratory:
    """The kernels on one GPU."""

    def __init__(self, gpu: str) -> None:
        self.device: Device = open_device(f"virtual:{gpu}", cache_folder())
        self.source = (HERE / "curves.cu").read_text()
        self.long = np.zeros(STREAMED)
        self.streams: dict[int, Array] = {}

    def seconds(self, entry: str, arguments: tuple[Array | Scalar, ...], outputs: tuple[int, ...], dtype: str) -> float:
        """Modelled time of one call of a wrapper."""
        built = self.device.build(Kernel(self.source, entry))
        assert isinstance(built, Built), built
        call = Call("run", arguments, (TensorSpec(outputs, dtype),), BUDGET)
        (outcome,) = self.device.run(built, [call], 120.0)
        assert isinstance(outcome, Outcome), outcome
        return self.device.time(outcome.profile).time_s

    def predict(self, point: Point) -> float:
        return getattr(self, f"_{point.curve}")(point)

    def _stream(self, point: Point) -> float:
        spec = self.device.spec
        shared = spec.shared_bytes_per_sm // 2 // 1024 * 1024 - 1024
        operation = OPERATIONS.index(point.operation)
        count = STREAMED // point.x * point.x
        # an array is known by its identity, and written once
        a = self.streams.setdefault(count, self.long[:count])
        time_s = self.seconds("stream", (a, a, operation, point.x, shared), (count,), "float64")
        return MOVED[point.operation] * count * 8 / time_s

    def _l1(self, point: Point) -> float:
        per_round = 8 * 512
        count = max(1, round(point.x * 1024 / 8 / per_round)) * per_round
        # so many that hardly a group of loads meets the misses of the first round
        rounds, blocks = max(2, (1 << 21) // count), self.device.spec.sms
        a = np.zeros(count)
        one, two = (self.seconds("reread", (a, blocks, 512, n), (blocks,), "float64") for n in (rounds, 3 * rounds))
        return 2 * rounds * count * 8 * blocks / (two - one)

    def _l2(self, point: Point) -> float:
        per_block = 1024 * 8
        count = max(1, point.x * 1024 // 8 // per_block) * per_block
        blocks = 512 * 2 * self.device.spec.sms
        time_s = self.seconds("share", (np.zeros(count), blocks, 1024), (blocks,), "float64")
        return blocks * per_block * 8 / time_s

    def _chase(self, point: Point) -> float:
        # lines in an order that nothing prefetches, one step for each
        lines = max(2, point.x * 1024 // 128)
        order = np.random.default_rng(1).permutation(lines)
        ring = np.zeros(lines * 16, np.int64)
        ring[order * 16] = np.roll(order, -1) * 16
        # the second time round, what fits is there
        rounds = max(1, 20_000 // lines)
        one, two = (self.seconds("chase", (ring, n * lines), (1,), "int64") for n in (rounds, 2 * rounds))
        return (two - one) / (rounds * lines) * self.device.spec.clock_hz


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", help="this one only")
    parser.add_argument("--curve", help="this one only")
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    with (HERE / "measured.csv").open() as file:
        points = [
            Point(row["gpu"], row["curve"], row["operation"], int(row["x"]), float(row["value"]))
            for row in csv.DictReader(file)
        ]
    points = [p for p in points if chosen.gpu in (None, p.gpu) and chosen.curve in (None, p.curve)]
    laboratories = {gpu: Laboratory(gpu) for gpu in sorted({p.gpu for p in points})}
    ratios = defaultdict(list)
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for point, found in zip(points, pool.map(lambda p: laboratories[p.gpu].predict(p), points), strict=True):
            ratio = found / point.value
            ratios[f"{point.gpu} {point.curve}"].append(ratio)
            print(f"{point.gpu:10} {point.curve:6} {point.operation:5} {point.x:8} "
                  f"measured {point.value:10.4g} predicted {found:10.4g} ratio {ratio:.2f}", flush=True)  # fmt: skip
    print(json.dumps({
        name: {"n": len(found), "within_1.15": round(sum(max(r, 1 / r) <= NEAR for r in found) / len(found), 3),
               "worst": round(max(max(r, 1 / r) for r in found), 2)}
        for name, found in ratios.items()
    }))  # fmt: skip


if __name__ == "__main__":
    main()
