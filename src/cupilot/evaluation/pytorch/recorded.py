"""Times of PyTorch that others recorded, for problems that are known: ``recorded.csv`` and the suite's own table.

A task is a known problem if its graph is: the same operators with the same attributes at the same sizes, whatever the
task is called.  ``graphs.csv`` has the digest of each problem's graph.  Recorded times are of a whole call, host and
all, so they are used only where the device is busy for most of it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from cupilot.gpu.spec import GpuSpec
from cupilot.records import Task
from cupilot.tasks.suite import RECORDED_ON
from cupilot.tasks.suite import recorded as suite_records

TIMES = Path(__file__).with_name("recorded.csv")
GRAPHS = Path(__file__).with_name("graphs.csv")
SPREAD = 0.1
"""How far recordings of one problem on two machines with the same GPU are apart (median of repeated runs: 3 %)."""
DIGITS = 16
RECORDED_PRECISION = "fp32"
"""Products without tf32, PyTorch's default; a task that allows tf32 is another task."""


@dataclass(frozen=True)
class RecordedTimes:
    """PyTorch's times for one problem on one GPU."""

    problem: str
    eager_s: float
    compiled_s: float | None = None


def graph_digest(task: Task) -> str:
    """The same for tasks with the same operators, attributes and sizes, whatever the names are."""
    places = {argument.name: place for place, argument in enumerate(task.arguments)}
    arguments = [str(argument.tensor or argument.value) for argument in task.arguments]
    ops = []
    for place, op in enumerate(task.graph, len(places)):
        operands = [places.get(name, -1) for name in op.operands]
        ops.append([op.target, operands, [[name, value] for name, value in op.attributes], str(op.output)])
        places[op.name] = place
    text = json.dumps([arguments, ops], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:DIGITS]


def find_recorded(task: Task, spec: GpuSpec) -> RecordedTimes | None:
    """What was recorded of this problem on this GPU."""
    if not task.graph or task.precision != RECORDED_PRECISION:
        return None
    for problem in _problems().get(graph_digest(task), ()):
        found = _times().get((problem, spec.name))
        if found is not None:
            return found
    return None


@cache
def _problems() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for row in _rows(GRAPHS):
        found[row["graph"]] = (*found.get(row["graph"], ()), _key(row))
    return found


@cache
def _times() -> Mapping[tuple[str, str], RecordedTimes]:
    found: dict[tuple[str, str], RecordedTimes] = {}
    names = {}
    for row in _rows(GRAPHS):
        names[_key(row)] = f"KernelBench level {row['level']}, {row['name']}"
        known = suite_records().get(row["name"]) if row["level"] == "1" and row["sizes"] == "v0.1" else None
        if known is not None and "pytorch" in known.times_s:
            found[_key(row), RECORDED_ON] = RecordedTimes(names[_key(row)], known.times_s["pytorch"])
    for row in _rows(TIMES):
        if _key(row) in names:
            compiled_s = float(row["compile_ms"]) / 1e3 if row["compile_ms"] else None
            eager_s = float(row["eager_ms"]) / 1e3
            found[_key(row), row["gpu"]] = RecordedTimes(names[_key(row)], eager_s, compiled_s)
    return found


def _key(row: Mapping[str, str]) -> str:
    return f"{row['level']}.{row['problem']}.{row['sizes']}"


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
