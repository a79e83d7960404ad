"""Search for a faster kernel for a PyTorch module; the best one is verified and kept."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path

from rich.status import Status

from cupilot import __version__
from cupilot.cli.choices import (
    TIMEOUT_S,
    add_device,
    add_json,
    choose_agents,
    choose_device,
    cpu_count,
    next_folder,
    positive,
)
from cupilot.cli.commands.evaluate import timing_cells
from cupilot.cli.terminal import Terminal, duration, ratio
from cupilot.contracts import Agents, Device
from cupilot.errors import UserError
from cupilot.evolution.executor import LocalExecutor
from cupilot.evolution.loop import WHY, Progress, evolve
from cupilot.evolution.result import BEST, moves_text, run_report
from cupilot.evolution.store import create_store, discard_store, holds_run
from cupilot.records import Individual, RunInfo, RunResult, Task

HELP = "search for a faster kernel"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK.py", help="the PyTorch module, in KernelBench form")
    add_device(parser)
    parser.add_argument("--agents", choices=("expert", "llm"), help="who writes strategies and kernels")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="same seed, same result (0)")
    parser.add_argument("--population", metavar="N", type=positive, default=8, help="individuals kept (8)")
    parser.add_argument("--generations", metavar="N", type=positive, default=4, help="after the first population (4)")
    parser.add_argument("--out", metavar="DIR", help="the run's folder (runs/<task>-<n>)")
    add_json(parser)
    parser.add_argument("--jobs", metavar="N", type=positive, help="evaluations at a time (processors, at most 4)")
    parser.add_argument("--quiet", action="store_true", help="say nothing but errors")


def run(options: Namespace, terminal: Terminal) -> int:
    from cupilot.tasks import load_task

    path = Path(options.task)
    task = load_task(path)
    device = choose_device(options.device, terminal)
    agents = choose_agents(options.agents, terminal)
    folder = run_folder(options.out, task.name)
    terminal.line(f"run {folder}: seed {options.seed}")
    info = RunInfo(
        task.name,
        task.source,
        device.name,
        agents.name,
        options.seed,
        options.population,
        options.generations,
        __version__,
    )
    result = search(task, device, agents, info, folder=folder, jobs=options.jobs, terminal=terminal)
    show(result, terminal)
    command = ["cupilot", "evaluate", str(folder / BEST), "--task", str(path)]
    if options.device is not None:
        command += ["--device", options.device]
    terminal.line(f"next: {shlex.join(command)}")
    terminal.report(run_report(result))
    return 0


def run_folder(out: str | None, task: str) -> Path:
    if out is None:
        return next_folder(Path("runs"), task)
    folder = Path(out)
    if holds_run(folder):
        raise UserError(f"--out {folder} already holds a run; choose another folder")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder} is not a folder")
    return folder


def search(
    task: Task, device: Device, agents: Agents, info: RunInfo, *, folder: Path, jobs: int | None, terminal: Terminal
) -> RunResult:
    """Put the parts together, evolve, and take them apart again whatever happens."""
    from cupilot.evaluate import Evaluator
    from cupilot.gpu import reachable_s, task_flop

    store = create_store(folder)
    executor = LocalExecutor(jobs or min(4, cpu_count()))
    try:
        with terminal.status("evaluating the plain kernel") as status:
            return evolve(
                task,
                agents,
                Evaluator(device, info.seed, TIMEOUT_S),
                spec=device.spec,
                executor=executor,
                store=store,
                info=info,
                folder=folder,
                limit_s=reachable_s(device.spec, task, task_flop(task)),
                on_event=lambda progress: tell(progress, terminal, status),
            )
    finally:
        executor.close(cancel=True)
        begun = store.begun
        store.close()
        if not begun:
            discard_store(folder)


def tell(progress: Progress, terminal: Terminal, status: Status | None) -> None:
    result = progress.result
    text = f"best {duration(_time_s(result.best))}, {ratio(result.best.evaluation.speedup) or 'no'} speed-up"
    counts = f"{result.evaluations} evaluated, {result.failures} failed"
    if progress.kind == "plain":
        terminal.line(f"plain kernel: {text.removeprefix('best ')}")
    elif progress.kind == "generation":
        terminal.line(f"generation {progress.generation} of {result.info.generations}: {text}, {counts}")
    elif status is not None:
        status.update(f"generation {progress.generation}: {text}, {counts}")


def show(result: RunResult, terminal: Terminal) -> None:
    """The table: plain kernel, best kernel, PyTorch; then how the best one came about."""
    plain_s = _time_s(result.first)
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


def _time_s(individual: Individual) -> float:
    assert individual.time_s is not None, "only timed individuals are shown"
    return individual.time_s
