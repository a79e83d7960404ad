"""Make the seed set that the strategy pool comes with, by running the expert on a list of tasks.

    python benchmarks/make_seed_pool.py WORK_FOLDER [--only NAME ...] [--write]

Every task is one `cupilot optimize` with a small budget on one virtual GPU; its run is kept in
``WORK_FOLDER/runs/<task>``, and a finished run is not made again, so the script can be stopped at
any time.  ``--write`` then replaces ``src/cupilot/strategies/seed_pool.jsonl`` with the best strategy
and two runner-ups of every finished run.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from cupilot.cli import main as cupilot
from cupilot.evolution.store import open_store
from cupilot.expert import Expert
from cupilot.gpu import load_spec
from cupilot.records import Individual
from cupilot.records.pool import PoolRecord
from cupilot.strategies.pool import SHIPPED, pool_record
from cupilot.strategies.pool_lines import check, write_lines
from cupilot.tasks import load_task

DEVICE = "virtual:a100-80gb"
POPULATION, GENERATIONS, SEED = 6, 2, 0
KEPT_PER_TASK = 3

# sizes are constants at the top of the file, so that kernels are verified at smaller and odd ones as well
SOURCE = """import torch
import torch.nn.functional as F
from torch import nn

{constants}


class Model(nn.Module):
    def forward(self, {names}):
        return {expression}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


@dataclass(frozen=True)
class SeedTask:
    """A module of one expression: of ``x`` (rows, columns), or of ``a`` and ``b`` when there are three sizes."""

    name: str
    expression: str
    sizes: tuple[int, ...]

    @property
    def source(self) -> str:
        product = len(self.sizes) == 3
        constants = zip("MNK" if product else ("ROWS", "COLUMNS"), self.sizes, strict=True)
        return SOURCE.format(
            constants="\n".join(f"{name} = {size}" for name, size in constants),
            names="a, b" if product else "x",
            expression=self.expression,
            inputs="torch.randn(M, K), torch.randn(K, N)" if product else "torch.randn(ROWS, COLUMNS)",
        )


POINTWISE = (
    SeedTask("relu", "torch.relu(x)", (4096, 8192)),
    SeedTask("gelu", "F.gelu(x)", (4096, 8192)),
    SeedTask("silu", "F.silu(x)", (2048, 8192)),
    SeedTask("leaky-relu", "F.leaky_relu(x, 0.01)", (4096, 4096)),
    SeedTask("hardtanh-chain", "F.hardtanh(F.leaky_relu(x, 0.1) * 1.5 + 0.25)", (4096, 8192)),
    SeedTask("swish-chain", "torch.sigmoid(x) * x * 0.5", (4096, 4096)),
    SeedTask("softplus-tanh", "torch.tanh(F.softplus(x))", (2048, 4096)),
    SeedTask("relu-odd", "torch.relu(x)", (4095, 8191)),
    SeedTask("relu-small", "torch.relu(x)", (512, 1024)),
    SeedTask("gelu-small", "F.gelu(x)", (512, 1024)),
)
ROWS = (
    (65536, 512), (32768, 1024), (16384, 2048), (8192, 4096), (4096, 8192), (2048, 16384), (1024, 32768), (512, 65536),
    (8192, 4001), (512, 1024),
)  # fmt: skip
PRODUCTS = (
    (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 1024), (8192, 8192, 64), (64, 4096, 4096),
    (512, 512, 16384),
)  # fmt: skip

TASKS = (
    *POINTWISE,
    *(SeedTask(f"softmax-{rows}x{row}", "torch.softmax(x, dim=-1)", (rows, row)) for rows, row in ROWS),
    *(SeedTask(f"matmul-{m}x{n}x{k}", "a @ b", (m, n, k)) for m, n, k in PRODUCTS),
    SeedTask("matmul-relu", "torch.relu(a @ b)", (2048, 2048, 1024)),
)


def task_file(task: SeedTask, work: Path) -> Path:
    return work / "tasks" / f"{task.name}.py"


def run_task(task: SeedTask, work: Path) -> None:
    """Search, unless there is a finished run already."""
    folder = work / "runs" / task.name
    if (folder / "done").exists():
        return
    path = task_file(task, work)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(task.source, encoding="utf-8")
    for left in folder.glob("*"):  # of a run that was stopped
        left.unlink()
    began = time.monotonic()
    options = ["--device", DEVICE, "--agents", "expert", "--no-pool", "--out", str(folder), "--jobs", "1", "--quiet"]
    budget = ["--population", str(POPULATION), "--generations", str(GENERATIONS), "--seed", str(SEED)]
    status = cupilot(["optimize", str(path), *options, *budget])
    if status == 0:
        (folder / "done").touch()
    print(f"{task.name}: status {status} after {time.monotonic() - began:.0f} s", flush=True)


def seed_records(task: SeedTask, work: Path) -> list[PoolRecord]:
    """The best strategies of a finished run, the fastest first; none when there is no such run."""
    folder = work / "runs" / task.name
    if not (folder / "done").exists():
        return []
    store = open_store(folder)
    info, individuals = store.info(), list(store.individuals())
    store.close()
    timed = sorted((i for i in individuals if i.time_s is not None), key=lambda i: (i.time_s, i.id))
    first = next(individual for individual in individuals if individual.origin == "plain")
    loaded = load_task(task_file(task, work))
    spec = load_spec(DEVICE.removeprefix("virtual:"))
    guidance = Expert().foresee(loaded, first.evaluation, spec)
    found: list[PoolRecord] = []
    for individual in timed:
        record = pool_record(loaded, first, plain_reasons(individual), guidance, version=info.version)
        if record is not None and len(found) < KEPT_PER_TASK:
            check(record)
            found.append(record)
    return found


def plain_reasons(individual: Individual) -> Individual:
    """Reasons of a mutation or a draw say nothing outside of their run."""
    moves = tuple(replace(move, reason="") for move in individual.strategy.moves)
    return replace(individual, strategy=replace(individual.strategy, moves=moves))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("work", type=Path, help="folder for tasks and runs")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="these tasks only")
    parser.add_argument("--write", action="store_true", help="replace the shipped seed set")
    options = parser.parse_args()
    for task in TASKS:
        if options.only is None or task.name in options.only:
            run_task(task, options.work)
    if options.write:
        records = [record for task in TASKS for record in seed_records(task, options.work)]
        print(f"{write_lines(SHIPPED, records)} records of {len({r.task for r in records})} tasks in {SHIPPED.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
