"""Putting a search together, for a new run and for one that goes on: parts, pool, progress, table."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path

from rich.status import Status

from cupilot.cli.choices import cpu_count
from cupilot.cli.commands.evaluate import timing_cells
from cupilot.cli.environment import cache_folder
from cupilot.cli.team import Team
from cupilot.cli.terminal import Terminal, duration, ratio
from cupilot.contracts import Brief, Device
from cupilot.errors import DataError, StoreError, UnmatchedTask
from cupilot.evolution.budget import Spending
from cupilot.evolution.executor import LocalExecutor
from cupilot.evolution.loop import WHY, Progress, Surroundings, evolve
from cupilot.evolution.result import BEST, moves_text, run_report
from cupilot.evolution.store import SqliteStore
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Evaluation, Guidance, Individual, Kernel, PoolRecord, RunInfo, RunResult, Task

POOL_FILE = "pool.sqlite"
SIMILAR = 6


@dataclass(frozen=True)
class Search:
    """Everything a run needs."""

    task: Task
    device: Device
    team: Team
    info: RunInfo
    folder: Path
    store: SqliteStore
    pool: Path | None = None
    known: tuple[Individual, ...] = ()
    jobs: int | None = None


def run_search(search: Search, terminal: Terminal) -> RunResult:
    """Evolve; the executor is taken down whatever happens, the store stays the caller's."""
    from cupilot.evaluate import Evaluator
    from cupilot.gpu import reachable_s, task_flop

    task, device, info = search.task, search.device, search.info
    jobs = search.jobs or min(4, cpu_count())
    # LLM agents wait for replies most of the time, and those candidates need threads as well
    executor = LocalExecutor(jobs if search.team.usage is None else jobs + info.in_flight)
    memory = PoolMemory(task, info, search.store, search.pool or cache_folder() / POOL_FILE)
    try:
        with terminal.status("evaluating the plain kernel") as status:
            around = Surroundings(
                device.spec,
                executor,
                search.store,
                search.folder,
                reachable_s(device.spec, task, task_flop(task)),
                Spending(info.budget, time.monotonic, search.team.spent),
                memory.recall,
                memory.remember,
                lambda progress: tell(progress, terminal, status),
                lambda task: built_in(task, device.spec),
                search.known,
            )
            evaluator = Evaluator(device, info.seed, info.timeout_s, slots=jobs)
            return evolve(task, search.team.agents, evaluator, info, around)
    finally:
        executor.close(cancel=True)
        search.team.closing.close()


def built_in(task: Task, spec: GpuSpec) -> Kernel | None:
    """The expert's plain kernel, for tasks it knows."""
    from cupilot.expert import Expert

    try:
        return Expert().generate(Brief(task, spec))
    except UnmatchedTask:
        return None


class PoolMemory:
    """The pool as a run sees it: asked once per epoch, told the best at the end of each.

    Records of the very same task are left out: repeating a run must not depend on having run it.
    """

    def __init__(self, task: Task, info: RunInfo, store: SqliteStore, path: Path) -> None:
        self._task = task
        self._info = info
        self._store = store
        self._path = path
        self._asked = 0

    def recall(self, task: Task, evaluation: Evaluation) -> tuple[PoolRecord, ...]:
        if not self._info.pooled:
            return ()
        self._asked += 1
        return self._store.recalled(self._asked, lambda: self._look(evaluation))

    def _look(self, evaluation: Evaluation) -> tuple[PoolRecord, ...]:
        from hashlib import sha256

        from cupilot.strategies.pool import features, open_pool

        own = sha256(self._task.source.encode()).hexdigest()
        with open_pool(self._path) as pool:
            matches = pool.similar(features(self._task, evaluation), SIMILAR, besides=own)
        return tuple(match.record for match in matches)

    def remember(self, plain: Individual, best: Individual, guidance: Guidance | None) -> None:
        from cupilot.strategies.pool import open_pool, pool_record

        if guidance is None or not self._info.pooled:
            return
        record = pool_record(
            self._task, plain, best, guidance, seed=self._info.seed, tools=(), version=self._info.version
        )
        if record is None:
            return
        try:
            with open_pool(self._path) as pool:
                pool.add(record)
        except (DataError, StoreError) as error:
            # a run's result must not be lost because the pool cannot take it
            self._store.note("pool", f"{best.id} is not in the pool: {error}")


def tell(progress: Progress, terminal: Terminal, status: Status | None) -> None:
    result = progress.result
    text = f"best {duration(time_s(result.best))}, {ratio(result.best.evaluation.speedup) or 'no'} speed-up"
    counts = f"{result.evaluations} evaluated, {result.failures} failed"
    left = f", left: {progress.left}" if progress.left else ""
    info = result.info
    last = info.epochs * (info.generations + 1) - 1
    if progress.kind == "plain":
        terminal.line(f"plain kernel: {text.removeprefix('best ')}")
    elif progress.kind == "generation":
        terminal.line(f"generation {progress.generation} of {last}: {text}, {counts}{left}")
    elif status is not None:
        status.update(f"generation {progress.generation}: {text}, {counts}{left}")


def show(result: RunResult, terminal: Terminal, task: Path, device: str | None) -> None:
    """The table: plain kernel, best kernel, PyTorch; how the best came about; what to type next."""
    plain_s = time_s(result.first)
    rows = []
    for title, individual in (("plain kernel", result.first), ("best kernel", result.best)):
        timing = individual.evaluation.timing
        assert timing is not None
        time, limit, source = timing_cells(timing)
        rows.append((title, time, ratio(individual.evaluation.speedup), ratio(plain_s / timing.time_s), limit, source))
    baseline = result.best.evaluation.baseline
    if baseline is not None:
        time, limit, source = timing_cells(baseline)
        rows.append(("PyTorch eager", time, ratio(1.0), ratio(plain_s / baseline.time_s), limit, source))
    terminal.line()
    terminal.table(("", "time", "vs PyTorch", "vs plain", "limit", "source"), rows, emphasis=1)
    terminal.line()
    terminal.line(f"strategy: {moves_text(result.best.strategy) or 'none; the plain kernel was not beaten'}")
    terminal.line(f"stopped: {WHY[result.stopped]} ({result.evaluations} evaluated, {result.failures} failed)")
    terminal.line(f"kernel: {Path(result.folder) / BEST}")
    command = ["cupilot", "evaluate", str(Path(result.folder) / BEST), "--task", str(task)]
    if device is not None:
        command += ["--device", device]
    terminal.line(f"next: {shlex.join(command)}")
    terminal.report(run_report(result))


def time_s(individual: Individual) -> float:
    assert individual.time_s is not None, "only timed individuals are shown"
    return individual.time_s
