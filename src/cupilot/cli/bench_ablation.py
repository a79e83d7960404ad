"""``cupilot bench ablation``: what the parts of the method are worth, each taken out in turn."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from itertools import count

from cupilot import __version__
from cupilot.cli.choices import choose_device, settings_of
from cupilot.cli.terminal import Terminal
from cupilot.cli.terminal_observer import TerminalObserver
from cupilot.numbers import duration, ratio
from cupilot.records import RunInfo, to_plain
from cupilot.runs import Observer, open_session
from cupilot.runs.pool import shipped_records
from cupilot.tasks.suite import LEVEL1, chosen, open_suite

PROBLEMS = "1,6,16,23,25,36,40,47,54,82,89,94"
"""Twelve of level 1, from all categories, that are evaluated quickly."""
TIMEOUT_S = 300.0


def run_ablation_bench(options: Namespace, terminal: Terminal) -> int:
    from cupilot.runs.ablation import VARIANTS, Trace, run_ablation, summarize
    from cupilot.tasks import load_task

    problems = chosen(open_suite(options.suite or LEVEL1), options.only or (None if options.suite else PROBLEMS))
    tasks = [load_task(problem.path) for problem in problems]
    device = choose_device(options.device, terminal)
    searches, ended = len(tasks) * options.seeds * len(VARIANTS), count(1)

    def tell(trace: Trace) -> None:
        bar(next(ended), searches, "searches")
        times = f"{duration(trace.best_s[0])} to {duration(trace.best_s[-1])}"
        terminal.line(f"{trace.task}, seed {trace.seed}, {trace.variant}: {times} in {len(trace.best_s)} candidates")

    with open_session(device, settings_of(options), TerminalObserver(terminal)) as session, terminal.bar() as bar:
        bar(0, searches, "searches")
        spec = session.device.spec
        info = RunInfo(
            "", "", device, "expert", 0, options.population, options.generations, __version__, timeout_s=TIMEOUT_S,
            gpu=spec.name,
        )  # fmt: skip
        quiet = replace(session, observer=Observer())
        traces = run_ablation(tasks, quiet, shipped_records, range(options.seeds), info, tell)
    rows = summarize(traces)
    terminal.line()
    terminal.table(
        ("variant", "candidates to 95 %", "against", "more of them", "time, one epoch", "two epochs", "reached"),
        [
            (r.variant, f"{r.needed:.1f}", r.against, ratio(r.needed_ratio), ratio(r.one_epoch_ratio),
             ratio(r.two_epochs_ratio), f"{r.reached:.0%}")
            for r in rows
        ],
        emphasis=0,
    )  # fmt: skip
    terminal.line(f"{len(tasks)} tasks, {options.seeds} seeds; times are modelled, {spec.title}")
    terminal.report({"rows": to_plain(rows), "tasks": [task.name for task in tasks], "seeds": options.seeds})
    return 0
