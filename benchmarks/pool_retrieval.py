"""Does the pool find the right strategies?  Measured on the shipped records, one task held back at a time.

    python benchmarks/pool_retrieval.py WORK_FOLDER [--count 3] [--draws 3] [--fresh]

For every task all its records are taken out; the pool, without them, is asked for ``--count`` strategies.
These are made legal for the task, written as kernels and evaluated, and the fastest counts.  The same is
done with records drawn at random, from all and from those that share an operator or a family ("kin", which
shows what ranking adds to tags).  A task is a hit when the result is within 10 % of the best time known for
it.  Tasks whose plain kernel is a hit already say little, so hits are also counted without them.

``--fresh`` measures on tasks of other shapes and operators instead, none of which is in the pool; the best
time known for them is that of a search as the seed set was made with.  Times of kernels are kept in
``WORK_FOLDER/times.json``, so the script can be stopped at any time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from random import Random

from make_seed_pool import DEVICE, TASKS, SeedTask, run_task, seed_records

from cupilot.devices import open_device
from cupilot.evaluation import Evaluator
from cupilot.expert import Expert
from cupilot.expert.render import render
from cupilot.records import EvaluationRequest, Strategy, Task, TaskSource
from cupilot.records.pool import PoolRecord
from cupilot.strategies.pool import PoolQuery, open_pool
from cupilot.strategies.pool_tags import likeness
from cupilot.tasks.load import task_from_source

FRESH = (
    SeedTask("fresh-elu", "F.elu(x) + 1.0", (3000, 5000)),
    SeedTask("fresh-softmax-short", "torch.softmax(x, dim=-1)", (20000, 384)),
    SeedTask("fresh-softmax-medium", "torch.softmax(x, dim=-1)", (3000, 6144)),
    SeedTask("fresh-softmax-long", "torch.softmax(x, dim=-1)", (256, 100000)),
    SeedTask("fresh-matmul-deep", "a @ b", (256, 256, 8192)),
    SeedTask("fresh-matmul-flat", "a @ b", (128, 8192, 1024)),
    SeedTask("fresh-matmul-gelu", "F.gelu(a @ b)", (1024, 4096, 1024)),
)
WITHIN = 1.10
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Row:
    """Times for one task; ``random_s`` and ``kin_s`` have one entry per draw."""

    task: str
    best_s: float
    plain_s: float
    retrieved_s: float
    random_s: tuple[float, ...]
    kin_s: tuple[float, ...]
    nearest: str

    @property
    def easy(self) -> bool:
        return self.hit(self.plain_s)

    def hit(self, time_s: float) -> bool:
        return time_s <= WITHIN * self.best_s

    def share(self, time_s: float) -> float:
        """Of the best known speed."""
        return self.best_s / time_s


class Clock:
    """Times of strategies on tasks; remembers what was evaluated."""

    def __init__(self, work: Path) -> None:
        self._file = work / "times.json"
        self._known: dict[str, float | None] = json.loads(self._file.read_text()) if self._file.exists() else {}
        self._expert = Expert()
        self._evaluate = Evaluator(lambda name: open_device(name, work / "cache"))

    def time_s(self, task: Task, strategy: Strategy) -> float | None:
        """Of the kernel that the expert makes of a strategy, once it is legal for the task; None if it fails."""
        space = self._expert.space(task)
        legal = space.effective(space.repair(strategy))
        kernel = render(space, legal)
        key = f"{task.name} {kernel.digest}"
        if key not in self._known:
            request = EvaluationRequest(task=TaskSource.of(task), kernel=kernel, device=DEVICE, timeout_s=TIMEOUT_S)
            evaluation = self._evaluate(request)
            timing = evaluation.timing if evaluation.correct else None
            self._known[key] = timing.time_s if timing is not None else None
            self._file.write_text(json.dumps(self._known, indent=0))
        return self._known[key]

    def fastest_s(self, task: Task, records: Sequence[PoolRecord]) -> float:
        """The best of several strategies and of the plain kernel, with which every search begins."""
        times = [self.time_s(task, strategy) for strategy in (Strategy(), *(record.strategy for record in records))]
        return min(time_s for time_s in times if time_s is not None)


def query_of(record: PoolRecord) -> PoolQuery:
    """What would be asked for the task of a record."""
    return PoolQuery(
        record.operators, record.dtype, record.precision, record.sizes, record.zone, record.limit, record.device
    )


def measure(
    seed: SeedTask, held: Sequence[PoolRecord], others: Sequence[PoolRecord], clock: Clock, count: int, draws: int
) -> Row:
    """What a pool of the others gives for a task, of which ``held`` is known."""
    task = task_from_source(seed.source, seed.name, "fp32", where=seed.name)
    with open_pool(None, seed=False) as pool:
        for record in others:
            pool.add(record)
        matches = pool.similar(query_of(held[0]), count)
    kin = [record for record in others if likeness(record.operators, held[0].operators) > 0]
    rng = Random(seed.name)

    def draw(among: Sequence[PoolRecord]) -> tuple[float, ...]:
        return tuple(clock.fastest_s(task, rng.sample(among, min(count, len(among)))) for _ in range(draws))

    return Row(
        task=seed.name,
        best_s=min(record.time_s for record in held),
        plain_s=clock.fastest_s(task, ()),
        retrieved_s=clock.fastest_s(task, [match.record for match in matches]),
        random_s=draw(others),
        kin_s=draw(kin),
        nearest=matches[0].record.task if matches else "nothing",
    )


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """Shares of hits, and geometric means of the share of the best known speed."""
    hard = [row for row in rows if not row.easy]
    ways = {
        "retrieved": [(row, row.retrieved_s) for row in rows],
        "random": [(row, time_s) for row in rows for time_s in row.random_s],
        "kin": [(row, time_s) for row in rows for time_s in row.kin_s],
        "plain": [(row, row.plain_s) for row in rows],
    }
    found: dict[str, float] = {"tasks": len(rows), "tasks_not_easy": len(hard)}
    for way, pairs in ways.items():
        left = [(row, time_s) for row, time_s in pairs if not row.easy]
        found[f"{way}_hits"] = _mean([float(row.hit(time_s)) for row, time_s in pairs])
        found[f"{way}_hits_not_easy"] = _mean([float(row.hit(time_s)) for row, time_s in left])
        found[f"{way}_speed_share"] = exp(_mean([log(row.share(time_s)) for row, time_s in pairs]))
    return {name: round(value, 4) for name, value in found.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("work", type=Path, help="folder for builds and times")
    parser.add_argument("--count", type=int, default=3, help="strategies retrieved (3)")
    parser.add_argument("--draws", type=int, default=3, help="random retrievals per task (3)")
    parser.add_argument("--fresh", action="store_true", help="on tasks that are not in the pool")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    clock = Clock(options.work)
    with open_pool(None) as pool:
        records = pool.records()
    rows = []
    print(
        "| task | best known | plain | retrieved | random | random kin | nearest task |\n|---|---|---|---|---|---|---|"
    )
    for task in FRESH if options.fresh else TASKS:
        if options.fresh:
            run_task(task, options.work)
            held = seed_records(task, options.work)
        else:
            held = [record for record in records if record.task == task.name]
        others = [record for record in records if record.task != task.name]
        row = measure(task, held, others, clock, options.count, options.draws)
        ways = ((row.plain_s,), (row.retrieved_s,), row.random_s, row.kin_s)
        shares = " | ".join(f"{exp(_mean([log(row.share(time_s)) for time_s in times])):.2f}" for times in ways)
        print(f"| {task.name} | {row.best_s * 1e3:.4g} ms | {shares} | {row.nearest} |", flush=True)
        rows.append(row)
    asked = {"fresh": options.fresh, "count": options.count, "draws": options.draws}
    print(json.dumps({"benchmark": "pool_retrieval", **asked, **summary(rows)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
