"""Putting a search together, for a new run and for one that goes on: parts, progress, table."""

from __future__ import annotations

import atexit
import os
import shlex
import signal
import sys
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cupilot.cli.choices import cpu_count, prepare
from cupilot.cli.commands.evaluate import timing_cells
from cupilot.cli.live import LiveSearch, shown
from cupilot.cli.pooling import PoolMemory, pool_path
from cupilot.cli.team import Lengths, Team, open_team
from cupilot.cli.terminal import Terminal
from cupilot.contracts import Brief, Device
from cupilot.errors import UnmatchedTask
from cupilot.evolution.budget import Spending
from cupilot.evolution.executor import LocalExecutor
from cupilot.evolution.loop import WHY, Surroundings, evolve
from cupilot.evolution.result import best_file, moves_text, run_report
from cupilot.evolution.store import SqliteStore, create_store, discard_store, open_store
from cupilot.evolution.watched_agents import WatchedAgents
from cupilot.evolution.watched_run import WatchedRun
from cupilot.gpu.spec import GpuSpec
from cupilot.numbers import ratio
from cupilot.records import Individual, Kernel, RunInfo, RunResult, Task


@dataclass(frozen=True)
class Search:
    """Everything a run needs."""

    task: Task
    device: Device
    team: Team
    info: RunInfo
    folder: Path
    store: SqliteStore
    memory: PoolMemory
    known: tuple[Individual, ...] = ()
    jobs: int | None = None


@dataclass(frozen=True)
class Asked:
    """A new run as somebody wants it; ``replay`` is the folder of a run whose recorded calls answer."""

    task: Task
    device: Device
    info: RunInfo
    folder: Path
    pool: Path | None = None
    lengths: Lengths = field(default_factory=Lengths)
    replay: str | None = None
    jobs: int | None = None


def begin(asked: Asked, terminal: Terminal) -> RunResult:
    """Make the run's folder and search; a run that ends before it has begun leaves no folder."""
    store = create_store(asked.folder)
    try:
        memory = PoolMemory(asked.task, asked.info, store, pool_path(store, asked.pool))
        if asked.replay is not None:
            with closing(open_store(Path(asked.replay))) as recorded:
                store.inherit(recorded)
        team = open_team(asked.info, store, memory.deck, asked.lengths, asked.replay)
        search = Search(asked.task, asked.device, team, asked.info, asked.folder, store, memory, jobs=asked.jobs)
        return run_search(search, terminal)
    finally:
        begun = store.begun
        store.close()
        if not begun:
            discard_store(asked.folder)


def run_search(search: Search, terminal: Terminal) -> RunResult:
    """Evolve; the executor is taken down whatever happens, the store stays the caller's."""
    from cupilot.evaluation import Evaluator
    from cupilot.gpu import needed_flop, reachable_s

    task, device, info = search.task, search.device, search.info
    prepare(device, terminal)
    limit_s = reachable_s(device.spec, task, needed_flop(task))
    live = LiveSearch(WatchedRun(info, time.monotonic(), limit_s), time.monotonic)
    jobs = search.jobs or min(4, cpu_count())
    # LLM agents wait for replies most of the time, and those candidates need threads as well
    executor = LocalExecutor(jobs if search.team.usage is None else jobs + info.in_flight)
    try:
        with shown(live, terminal) as tell:
            around = Surroundings(
                device.spec,
                executor,
                search.store,
                search.folder,
                limit_s,
                Spending(info.budget, time.monotonic, search.team.spent),
                search.memory.recall,
                search.memory.remember,
                tell,
                lambda task: built_in(task, device.spec),
                search.known,
            )
            evaluator = Evaluator(device, info.seed, info.timeout_s, slots=jobs, watch=live)
            result = evolve(task, WatchedAgents(search.team.agents, live), evaluator, info, around)
        # work is left only after a second Ctrl-C: then the end is to come at once
        if executor.abandon():
            end_children()
            atexit.register(leave, executor)
        return result
    except BaseException:
        end_children()
        executor.close(cancel=True)
        raise
    finally:
        search.team.closing.close()


def leave(executor: LocalExecutor) -> None:
    """End a program that has said all it had to while threads are at work.

    The interpreter would end such threads wherever they are, which C++ code below them answers with an abort.
    """
    if executor.busy:
        atexit.unregister(leave)
        atexit._run_exitfuncs()  # temporary folders, above all
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def end_children() -> None:
    """Kill the compilers and workers that were left running, each with its process group; needs Linux's /proc."""
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, listed.read_text().split()):
                with suppress(OSError):
                    # those in our own group are nobody's that we started
                    if os.getpgid(child) == child:
                        os.killpg(child, signal.SIGKILL)


def built_in(task: Task, spec: GpuSpec) -> Kernel | None:
    """The expert's plain kernel, for tasks it knows."""
    from cupilot.expert import Expert

    try:
        return Expert().generate(Brief(task, spec))
    except UnmatchedTask:
        return None


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
    best = Path(result.folder) / best_file(result.best.kernel)
    terminal.line(f"kernel: {best}")
    command = ["cupilot", "evaluate", str(best), "--task", str(task)]
    if device is not None:
        command += ["--device", device]
    if result.info.precision != "fp32":
        command += ["--precision", result.info.precision]
    if result.stopped == "interrupted":
        terminal.line(f"go on: {shlex.join(('cupilot', 'resume', result.folder))}")
    terminal.line(f"next: {shlex.join(command)}")
    terminal.report(run_report(result))


def time_s(individual: Individual) -> float:
    assert individual.time_s is not None, "only timed individuals are shown"
    return individual.time_s
