"""The modelled times of PyTorch against recorded ones, by GPU and level.

    python benchmarks/validate_baseline.py
    python benchmarks/validate_baseline.py --times TIMES.csv --graphs GRAPHS.csv --problems

A third of the problems was held out of the fit, by a keyed hash of their numbers; both thirds are shown.  Recorded
times are of whole calls, so they are compared with ``call_s``, which has the host's time in it.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import exp, log
from pathlib import Path
from tempfile import gettempdir

from recorded_problems import LEVEL2, Problems, Row, load_rows

from cupilot.errors import DeviceError
from cupilot.evaluation.pytorch.boards import board
from cupilot.evaluation.pytorch.eager import eager_run
from cupilot.evaluation.pytorch.inductor import compiled_run
from cupilot.evaluation.pytorch.recorded import TIMES
from cupilot.evaluation.pytorch.run import Run
from cupilot.evaluation.pytorch.uncertainty import log_spread
from cupilot.gpu import GpuSpec, load_spec
from cupilot.records import Task

KEY = "baseline"
WITHIN = (1.25, 1.5)


@dataclass(frozen=True)
class Compared:
    """One recorded time beside the modelled one: the logarithm of their ratio, and what it may be."""

    row: Row
    error: float
    spread: float

    @property
    def covered(self) -> bool:
        return abs(self.error) <= self.spread


def held_out(row: Row) -> bool:
    return int(sha256(f"{KEY}.{row.level}.{row.problem}".encode()).hexdigest(), 16) % 3 == 0


def compare(
    rows: Iterable[Row], problems: Problems, run: Callable[[Task, GpuSpec], Run], time_s: Callable[[Row], float | None]
) -> tuple[list[Compared], list[str]]:
    """Every row that can be compared, and why others cannot."""
    found, left = [], []
    for row in rows:
        recorded_s = time_s(row)
        if recorded_s is None:
            continue
        try:
            spec = load_spec(row.gpu)
            task = problems.task(row)
        except (DeviceError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, StopIteration) as error:
            left.append(f"{row.level}.{row.problem} {row.sizes} {row.gpu}: {error}")
            continue
        if task is None:
            left.append(f"{row.level}.{row.problem} {row.sizes}: no graph")
            continue
        modelled = run(task, spec)
        spread = log_spread(modelled, board(spec), modelled.call_s)
        found.append(Compared(row, log(modelled.call_s / recorded_s), spread))
    return found, left


def share(values: Sequence[bool]) -> str:
    return f"{100 * sum(values) / len(values):3.0f} %" if values else "    -"


def line(title: str, compared: Sequence[Compared]) -> str:
    errors = [each.error for each in compared]
    within = "  ".join(share([abs(error) <= log(limit) for error in errors]) for limit in WITHIN)
    median = f"{exp(statistics.median(errors)):5.2f}" if errors else "    -"
    covered = share([each.covered for each in compared])
    held = [each for each in compared if held_out(each.row)]
    out = "  ".join(share([abs(each.error) <= log(limit) for each in held]) for limit in WITHIN)
    return f"{title:<22}{len(compared):>5}  {within}  {median}  {covered}  | {len(held):>4}  {out}  " + share(
        [each.covered for each in held]
    )


def table(title: str, compared: Sequence[Compared]) -> None:
    head = f"{'rows':>5}  1.25x  1.5x   median  covered | held out: rows 1.25x 1.5x covered"
    print(f"\n{title:<22}{head}")
    groups: dict[tuple[str, str], list[Compared]] = defaultdict(list)
    for each in compared:
        groups[each.row.level, each.row.gpu].append(each)
        groups[each.row.level, "all"].append(each)
    for level, gpu in sorted(groups, key=lambda key: (key[0], key[1] == "all", key[1])):
        print(line(f"level {level} {gpu}", groups[level, gpu]))
    print(line("all", compared))


def by_problem(compared: Sequence[Compared]) -> None:
    groups: dict[tuple[str, int, str, str], list[Compared]] = defaultdict(list)
    for each in compared:
        groups[each.row.level, each.row.problem, each.row.sizes, each.row.name].append(each)
    for (level, problem, sizes, name), members in groups.items():
        ratios = "  ".join(f"{each.row.gpu} {exp(each.error):.2f}" for each in members)
        print(f"{level}.{problem} {sizes} {name[:32]}: {ratios}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=Path, default=TIMES, help="recorded times (default: the package's)")
    parser.add_argument("--graphs", type=Path, default=LEVEL2, help="level 2's graphs (default: benchmarks/baseline)")
    parser.add_argument("--cache", type=Path, default=Path(gettempdir()) / "cupilot_exports.pkl")
    parser.add_argument("--problems", action="store_true", help="print every ratio")
    arguments = parser.parse_args()
    rows, problems = load_rows(arguments.times), Problems(arguments.graphs, arguments.cache)
    eager, left = compare(rows, problems, eager_run, lambda row: row.eager_s)
    compiled, _ = compare(rows, problems, compiled_run, lambda row: row.compile_s)
    table("eager", eager)
    table("torch.compile", compiled)
    if arguments.problems:
        for title, compared in (("eager", eager), ("torch.compile", compiled)):
            print(f"\n{title}: modelled over recorded")
            by_problem(compared)
    for reason in sorted(set(left)):
        print(f"left out: {reason}")


if __name__ == "__main__":
    main()
