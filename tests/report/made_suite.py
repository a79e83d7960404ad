"""A small benchmark: three kernels, one of them beside a published one that is wrong, and a problem without any."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cupilot.evolution.bench_results import BenchRow, write_bench_rows

ONE = BenchRow(
    1, "1_one", "product", True, 2.0, 4.0, 2.0, "fp32", 0.5, 12, "kernels/1_one.cu", "recorded", "modelled", 40.0, 1.0,
    recorded_ms=(("pytorch", 4.0), ("ai_cuda_engineer", 8.0), ("cupilot", 1.0)),
)  # fmt: skip
TWO = replace(ONE, problem=2, name="2_two", category="loss", time_ms=8.0, speedup=0.5, roofline_fraction=0.25)
FAILED = replace(
    ONE, problem=3, name="3_three", correct=False, time_ms=None, speedup=None, roofline_fraction=None, evaluations=0,
    source="", why="no recipe knows it",
)  # fmt: skip
BROKEN = replace(ONE, problem=10, name="10_ten", time_ms=0.5, speedup=8.0, broken=("cupilot",))
STANDINGS = (ONE, TWO, FAILED, BROKEN)


def write_suite(folder: Path) -> Path:
    write_bench_rows(folder, STANDINGS)
    return folder
