"""What the parts of the method are worth: replayed searches with one part changed, compared seed by seed.

What is compared is the best time so far over the table's best after so many candidates.  A candidate counts whatever
came of it.  Means are geometric, over seeds and then over tasks.  Intervals are bootstrapped over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cupilot.errors import DataError
from cupilot.evolution.result import moves_text
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Evaluation, Timing
from cupilot.runs.frames import FOLDER, all_strategies, load_frames
from cupilot.runs.pool import shipped_records
from cupilot.runs.replay import FastSpace, Method, Table, Trace, replay
from cupilot.runs.strategy_table import TABLES, read_table, source_digest
from cupilot.tasks import load_task

CANDIDATES = 32
HORIZONS = (8, 16, 32)
RESAMPLES, CONFIDENCE = 2000, 0.95
NEAR = 1.05
LOSSES = (0.0, 0.05, 0.1, 0.2, 0.4)

NOTHING, POOL = Method(), Method(pooled=True)


@dataclass(frozen=True)
class Variant:
    """A method with a name, and the name of the one that it is compared with."""

    name: str
    against: str
    method: Method


def parts(setting: str, base: Method) -> tuple[Variant, ...]:
    """A setting and what it comes to with one part changed."""
    changed = {
        "no roofline guidance": replace(base, guided=False),
        "crossing code": replace(base, crossing="code"),
        "no crossing": replace(base, crossing=""),
        "generations waited for": replace(base, steady=False),
        "one in flight": replace(base, in_flight=1),
        "twelve in flight": replace(base, in_flight=12),
        "no ties": replace(base, tie=0.0),
        "population 4": replace(base, population=4, in_flight=2),
        "population 16": replace(base, population=16, in_flight=8),
        "two islands": replace(base, islands=2),
    }
    others = (Variant(f"{setting}, {name}", setting, method) for name, method in changed.items())
    return (Variant(setting, setting, base), *others)


def losing() -> tuple[Variant, ...]:
    """Strategies and code crossed while each move is lost with some probability when code is written."""
    found = []
    for loss in LOSSES:
        strategies = f"strategies, loss {loss:.0%}"
        found.append(Variant(strategies, strategies, replace(NOTHING, loss=loss)))
        found.append(Variant(f"code, loss {loss:.0%}", strategies, replace(NOTHING, loss=loss, crossing="code")))
    return tuple(found)


VARIANTS = (
    *parts("from nothing", NOTHING),
    *parts("from the pool", POOL),
    Variant("starting points", "from nothing", replace(NOTHING, starts=True)),
    Variant("starting points and pool", "starting points", replace(POOL, starts=True)),
    *losing(),
)
POOL_AGAINST_NOTHING = Variant("the pool", "from nothing", POOL)


def load_tables(spec: GpuSpec, device: str, folder: Path = FOLDER, only: Sequence[str] = ()) -> tuple[Table, ...]:
    """The tables of all frames, or of some; one that does not hold its frame whole is an error if it was asked for, and
    left out otherwise."""
    found = []
    for frame in load_frames(folder / "frames.toml"):
        path = folder / TABLES / f"{frame.task}.jsonl"
        if (only and frame.task not in only) or not (only or path.exists()):
            continue
        task = load_task(folder / f"{frame.task}.py")
        head, entries = read_table(path)
        if head.source != source_digest(task) or head.device != device:
            raise DataError(f"the table of {frame.task} is of another task or device: make it anew")
        known, unknown = (FastSpace(frame.space(task, spec, starts=starts)) for starts in (True, False))
        missing = [one for one in all_strategies(known) if moves_text(one) not in entries]
        if missing and only:
            raise DataError(f"the table of {frame.task} lacks {len(missing)} strategies: `cupilot bench table` goes on")
        if missing:
            continue
        plain = entries[""]
        if plain.time_s is None:
            raise DataError(f"the table of {frame.task} has no plain kernel that works")
        evaluation = Evaluation("", task.name, device, timing=Timing(plain.time_s, "modelled", device, plain.limit))
        found.append(Table(task, spec, device, known, unknown, entries, shipped_records(task, evaluation)))
    return tuple(found)


def study(
    table: Table, seeds: Iterable[int], tell: Callable[[Variant], None] = lambda variant: None
) -> tuple[Trace, ...]:
    """All variants on one table."""
    numbers, traces = list(seeds), []
    for variant in VARIANTS:
        traces += [replay(table, variant.name, variant.method, seed, CANDIDATES) for seed in numbers]
        tell(variant)
    return tuple(traces)


@dataclass(frozen=True)
class Estimate:
    """A mean and its interval."""

    mean: float
    low: float
    high: float

    @property
    def is_above_one(self) -> bool:
        return self.low > 1.0

    @property
    def is_below_one(self) -> bool:
        return self.high < 1.0


@dataclass(frozen=True)
class Result:
    """One variant: time over the table's best after so many candidates; the same over the one it is compared with,
    with intervals; candidates until within 5 % of the best; and the ratio for each task after 16."""

    variant: str
    against: str
    over_best: tuple[float, ...]
    ratios: tuple[Estimate, ...]
    needed: Estimate
    reached: float
    tasks: tuple[tuple[str, float], ...]
    kept: float | None = None


class Traces:
    """Traces by variant, as arrays: tasks, seeds, candidates."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self.tasks = tuple(dict.fromkeys(trace.task for trace in traces))
        seeds = sorted({trace.seed for trace in traces})
        self.seeds = len(seeds)
        place = {seed: number for number, seed in enumerate(seeds)}
        self._logs: dict[str, np.ndarray] = {}
        self._kept: dict[str, tuple[int, int]] = {}
        for trace in traces:
            logs = self._logs.setdefault(
                trace.method, np.full((len(self.tasks), len(seeds), len(trace.over_best)), np.nan)
            )
            logs[self.tasks.index(trace.task), place[trace.seed]] = np.log(trace.over_best)
            kept, crossed = self._kept.get(trace.method, (0, 0))
            self._kept[trace.method] = kept + trace.kept, crossed + trace.crossed

    def result(self, variant: Variant, name: str = "") -> Result:
        """A variant against the one it is to be compared with; ``name`` is its traces' if that is another."""
        own, base = self._logs[name or variant.name], self._logs[variant.against]
        ratios = tuple(self._estimate(own[:, :, n] - base[:, :, n]) for n in HORIZONS)
        needed = np.minimum(_needed(own), own.shape[2]).astype(float)
        differs = own[:, :, HORIZONS[1]] - base[:, :, HORIZONS[1]]
        kept, crossed = self._kept[name or variant.name]
        return Result(
            variant.name, variant.against, tuple(float(np.exp(own[:, :, n].mean())) for n in HORIZONS), ratios,
            self._estimate(needed, logarithmic=False), float((needed < own.shape[2]).mean()),
            tuple((task, float(np.exp(differs[place].mean()))) for place, task in enumerate(self.tasks)),
            kept / crossed if crossed else None,
        )  # fmt: skip

    def _estimate(self, values: np.ndarray, logarithmic: bool = True) -> Estimate:
        """The mean over tasks and seeds; seeds are resampled for each task by itself."""
        rng = np.random.default_rng(0)
        drawn = rng.integers(0, self.seeds, size=(RESAMPLES, len(self.tasks), self.seeds))
        means = np.stack([values[task][drawn[:, task]].mean(axis=1) for task in range(len(self.tasks))]).mean(axis=0)
        tail = (1.0 - CONFIDENCE) / 2
        found = np.array([values.mean(), *np.quantile(means, [tail, 1.0 - tail])])
        mean, low, high = (np.exp(found) if logarithmic else found).tolist()
        return Estimate(mean, low, high)


def _needed(logs: np.ndarray) -> np.ndarray:
    """Candidates until a time is within 5 % of the best; as many as there are entries when none is."""
    reached = logs <= np.log(NEAR)
    found: np.ndarray = np.where(reached.any(axis=2), reached.argmax(axis=2), logs.shape[2])
    return found


def results(traces: Sequence[Trace]) -> tuple[Result, ...]:
    found = Traces(traces)
    own = [found.result(variant) for variant in VARIANTS]
    return (*own, found.result(POOL_AGAINST_NOTHING, "from the pool"))
