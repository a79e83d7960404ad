"""Benchmarks of the search itself; ``ablation`` takes out one part of the method at a time."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from cupilot import __version__
from cupilot.cli.choices import add_device, add_json, choose_device, cpu_count, positive
from cupilot.cli.searching import SIMILAR
from cupilot.cli.terminal import Terminal, duration
from cupilot.errors import UserError
from cupilot.records import Evaluation, PoolRecord, RunInfo, Task, to_plain

HELP = "measure what the parts of the method are worth"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("what", choices=("ablation",), help="without guidance, without the pool, crossing code")
    add_device(parser)
    parser.add_argument("--seeds", metavar="N", type=positive, default=5, help="searches per task and variant (5)")
    parser.add_argument("--population", metavar="N", type=positive, default=8)
    parser.add_argument("--generations", metavar="N", type=positive, default=3)
    parser.add_argument("--only", metavar="TASK", action="append", help="only this task; may be repeated")
    parser.add_argument("--jobs", metavar="N", type=positive, help="evaluations at a time (processors, at most 4)")
    add_json(parser)


def run(options: Namespace, terminal: Terminal) -> int:
    from cupilot.evaluate import Evaluator
    from cupilot.evolution.ablation import Trace, run_ablation, summarize

    tasks = suite_tasks(options.only)
    device = choose_device(options.device, terminal)
    jobs = options.jobs or min(4, cpu_count())
    info = RunInfo("", "", device.name, "expert", 0, options.population, options.generations, __version__)

    def tell(trace: Trace) -> None:
        times = f"{duration(trace.best_s[0])} to {duration(trace.best_s[-1])}"
        terminal.line(f"{trace.task}, seed {trace.seed}, {trace.variant}: {times} in {len(trace.best_s)} candidates")

    evaluator = Evaluator(device, seed=0, timeout_s=60.0, slots=jobs)
    traces = run_ablation(tasks, evaluator, device.spec, similar, range(options.seeds), info, jobs, tell)
    rows = summarize(traces)
    terminal.line()
    terminal.table(
        ("variant", "candidates to 95 %", "against", "more of them", "time after first", "time at the end", "reached"),
        [
            (r.variant, f"{r.needed:.1f}", r.against, f"{r.needed_ratio:.2f}x", f"{r.first_latency_ratio:.2f}x",
             f"{r.final_latency_ratio:.2f}x", f"{r.reached:.0%}")
            for r in rows
        ],
        emphasis=0,
    )  # fmt: skip
    terminal.line(f"{len(tasks)} tasks, {options.seeds} seeds; times are modelled, {device.spec.title}")
    terminal.report({"rows": to_plain(rows), "tasks": [task.name for task in tasks], "seeds": options.seeds})
    return 0


def suite_tasks(only: list[str] | None) -> list[Task]:
    from cupilot.tasks import load_task

    folder = Path(str(files("cupilot.tasks") / "suites" / "ablation"))
    paths = {path.stem: path for path in sorted(folder.glob("*.py"))}
    for name in only or ():
        if name not in paths:
            raise UserError(f"the ablation suite has no task {name}; it has {', '.join(paths)}")
    return [load_task(path) for name, path in paths.items() if not only or name in only]


def similar(task: Task, evaluation: Evaluation) -> tuple[PoolRecord, ...]:
    """Shipped records only: a benchmark must not depend on what was run before."""
    from cupilot.strategies.pool import features, open_pool

    with open_pool(None) as pool:
        matches = pool.similar(features(task, evaluation), SIMILAR, besides=sha256(task.source.encode()).hexdigest())
    return tuple(match.record for match in matches)
