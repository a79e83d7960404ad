"""Writes the tables of level1.md from ``kernels/*/results.json``: ``python docs/make_level1.py``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path

from cupilot.evolution.bench_results import FAST, BenchRow, Figures, comparisons, read_bench_rows

HERE = Path(__file__).parent
KERNELS = HERE.parent / "kernels"
BEGIN, END = "<!-- made by make_level1.py -->\n", "<!-- up to here -->\n"
TITLES = {"level1": "fp32", "level1-tf32": "tf32", "level1-fp16": "fp16"}


def page(text: str) -> str:
    """The page with its tables made anew; the words around them are somebody's."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return before + BEGIN + "\n".join(tables()) + "\n\n" + END + after


def tables() -> Iterator[str]:
    for folder, title in TITLES.items():
        rows = read_bench_rows(KERNELS / folder)
        if rows:
            yield f"\n## {title}\n"
            yield from summary(rows)
            yield ""
            yield from problems(rows)


def summary(rows: Sequence[BenchRow]) -> Iterator[str]:
    names = ("speed-up over PyTorch", "problems", "correct", *(f"fast_{p:g}" for p in FAST))
    yield from head((*names, "mean", "geometric mean", "median", "of the roofline"))
    for name, found in comparisons(rows):
        yield cells(name.strip(), found.problems, found.correct, *numbers(found))


def numbers(found: Figures) -> Iterator[str]:
    yield from (f"{share:.0%}" for share in found.fast)
    yield from ("" if isnan(value) else f"{value:.2f}x" for value in (found.mean, found.geometric, found.median))
    yield "" if isnan(found.roofline) else f"{found.roofline:.0%}"


def problems(rows: Sequence[BenchRow]) -> Iterator[str]:
    yield from head(("problem", "time, ms", "PyTorch, ms", "is", "speed-up", "of the roofline", "evaluated"))
    for each in rows:
        if each.time_ms is None or each.baseline_ms is None:
            yield cells(each.name, each.why, "", "", "", "", each.evaluations)
            continue
        yield cells(
            each.name, f"{each.time_ms:.4g}", f"{each.baseline_ms:.4g}", each.baseline_source, f"{each.speedup:.2f}x",
            f"{each.roofline_fraction:.0%}", each.evaluations,
        )  # fmt: skip


def head(names: Sequence[str]) -> Iterator[str]:
    yield cells(*names)
    yield cells("---", *("---:" for _ in names[1:]))


def cells(*values: object) -> str:
    return "| " + " | ".join(str(value) for value in values) + " |"


if __name__ == "__main__":
    path = HERE / "level1.md"
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
