"""``cupilot bench level1``: the expert on a suite of problems, against what others recorded."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isnan
from pathlib import Path

from cupilot import __version__
from cupilot.cli.choices import choose_device, cpu_count, prepare
from cupilot.cli.pooling import shipped_records
from cupilot.cli.terminal import Tell, Terminal
from cupilot.errors import CupilotError, UserError
from cupilot.evolution.executor import LocalExecutor
from cupilot.evolution.loop import Progress
from cupilot.evolution.standings import (
    FAST,
    RESULTS_CSV,
    Figures,
    Standing,
    comparisons,
    figures,
    other_systems,
    read_standings,
    recorded_ones,
    write_standings,
)
from cupilot.evolution.suite import Bench
from cupilot.numbers import duration, ratio
from cupilot.records import Budget, RunInfo, Task, to_plain
from cupilot.tasks.suite import LEVEL1, TITLES, SuiteTask, chosen, open_suite

TIMEOUT_S = 300.0
COLUMNS = ("problem", "time", "source", "PyTorch", "source", "speed-up", "roofline", "of it", "evaluated")
SHORT_COLUMNS = ("problem", "time", "PyTorch", "speed-up", "roofline")
"""For terminals in which all columns do not fit."""


def run_level1(options: Namespace, terminal: Terminal) -> int:
    """Search problem after problem; results are on disk after each."""
    problems = chosen(open_suite(options.suite or LEVEL1), options.only)
    folder = Path(options.out)
    done = {each.problem: each for each in read_standings(folder)}
    if options.again and not done:
        raise UserError(f"--again evaluates kernels anew, and --out {folder} holds none")
    if done and not (options.resume or options.again):
        raise UserError(f"--out {folder} already holds results; choose another folder, or go on with --resume")
    others = {each.problem: each for each in read_standings(Path(options.reuse))} if options.reuse else {}
    if options.reuse and not others:
        raise UserError(f"--reuse {options.reuse} holds no results of a benchmark")
    device = choose_device(options.device, terminal)
    from cupilot.evaluation import Evaluator
    from cupilot.expert import Expert

    jobs = options.jobs or min(4, cpu_count())
    info = RunInfo(
        "", "", device.name, "expert", options.seed, options.population, options.generations, __version__,
        timeout_s=TIMEOUT_S, budget=Budget(evaluations=options.budget), precision=options.precision,
        gpu=device.spec.name,
    )  # fmt: skip
    prepare(device, terminal)
    executor = LocalExecutor(jobs)
    evaluator = Evaluator(device, options.seed, TIMEOUT_S, slots=jobs)
    bench = Bench(folder, device.spec, Expert(), evaluator, executor, info, time.monotonic, shipped_records)
    try:
        with terminal.bar() as tell:
            if options.again:
                left = [each for each in problems if each.number in done and done[each.number].kernel]
                search: Search = partial(checked_again, dict(done))
            else:
                left = [each for each in problems if each.number not in done or not done[each.number].correct]
                search = searched
            if options.reuse:
                search = partial(reused, Path(options.reuse), others, search)
            interrupted = solve_all(bench, left, options.precision, done, terminal, tell, search)
    finally:
        executor.close(cancel=True)
    standings = [done[number] for number in sorted(done)]
    show(standings, terminal, device.spec.title)
    terminal.line(f"results: {folder / RESULTS_CSV}")
    if interrupted:
        terminal.line("interrupted; the same command with --resume goes on")
    terminal.report({"results": to_plain(standings), "figures": to_plain(figures(recorded_ones(standings)))})
    return 0 if standings and all(each.correct for each in standings) and not interrupted else 1


def solve_all(
    bench: Bench,
    problems: Sequence[SuiteTask],
    precision: str,
    done: dict[int, Standing],
    terminal: Terminal,
    tell: Tell,
    search: Search,
) -> bool:
    """Put the standing of each problem into ``done`` and on disk; whether it was interrupted."""
    for place, problem in enumerate(problems):
        tell(place, len(problems), problem.name)
        current = replace(bench, on_event=partial(_follow, tell, place, len(problems), problem.name))
        standing = solve(current, problem, precision, search)
        if standing.stopped == "interrupted":
            return True
        before = done.get(problem.number)
        done[standing.problem] = standing
        bench.folder.mkdir(parents=True, exist_ok=True)
        write_standings(bench.folder, [done[number] for number in sorted(done)])
        was = f", was {duration(before.time_ms / 1e3)}" if before is not None and before.time_ms is not None else ""
        terminal.line(told(standing) + was)
    return False


def _follow(tell: Tell, place: int, of: int, name: str, progress: Progress) -> None:
    """The bar's words while a problem is searched: how many kernels, and the best time."""
    timing = progress.result.best.evaluation.timing
    if timing is not None:
        found = f"{progress.result.evaluations} evaluated, {duration(timing.time_s)} {timing.source}"
        tell(place, of, f"{found}, {name}")


Search = Callable[[Bench, SuiteTask, Task], Standing]


def searched(bench: Bench, problem: SuiteTask, task: Task) -> Standing:
    return bench.solve(problem, task)


def reused(
    folder: Path, others: Mapping[int, Standing], search: Search, bench: Bench, problem: SuiteTask, task: Task
) -> Standing:
    """What another benchmark found where precision makes no difference; else the faster of its kernel and ours."""
    if problem.number not in others:
        return search(bench, problem, task)
    found = others[problem.number]
    carried = bench.carry_over(folder, found, task)
    if carried is not None:
        return carried
    ours = search(bench, problem, task)
    return ours if ours.stopped == "interrupted" else bench.or_others(ours, folder, found, task)


def checked_again(done: Mapping[int, Standing], bench: Bench, problem: SuiteTask, task: Task) -> Standing:
    """What a kernel that was found before is worth now."""
    try:
        return bench.check_again(done[problem.number], problem, task)
    except KeyboardInterrupt:
        return replace(done[problem.number], stopped="interrupted")


def solve(bench: Bench, problem: SuiteTask, precision: str, search: Search) -> Standing:
    """A task that cannot even be loaded is a row as well."""
    from cupilot.tasks import load_task

    try:
        task = load_task(problem.path, precision)
    except CupilotError as error:
        return Standing(
            problem.number, problem.name, problem.category, False, None, None, None, precision, None, 0, "",
            why=str(error),
        )  # fmt: skip
    task = replace(task, name=problem.name)
    return search(bench, problem, task)


def told(standing: Standing) -> str:
    if standing.time_ms is None:
        return f"{standing.name}: no kernel: {standing.why}"
    against = f"{ratio(standing.speedup)} PyTorch's {duration((standing.baseline_ms or 0) / 1e3)}"
    return (
        f"{standing.name}: {duration(standing.time_ms / 1e3)} {standing.source}, {against} {standing.baseline_source}, "
        f"{standing.roofline_fraction:.0%} of the roofline, {standing.evaluations} evaluated, {standing.stopped}"
    )


# --- tables ----------------------------------------------------------------------------------


def show(standings: Sequence[Standing], terminal: Terminal, gpu: str) -> None:
    """Problem by problem, then by category, then against what others recorded."""
    terminal.line()
    others = other_systems()
    columns, rows = (*COLUMNS, *(TITLES[system] for system in others)), [row(each, others) for each in standings]
    if terminal.fits(columns, rows):
        terminal.table(columns, rows)
        if any(each.broken for each in standings):
            terminal.line("* does not compute its operator; left out of the means below")
    else:
        terminal.table(SHORT_COLUMNS, [short_row(each) for each in standings])
        terminal.line(f"a wider terminal shows more columns; {RESULTS_CSV} has the rest")
    terminal.line()
    header = (
        "speed-up over PyTorch",
        "problems",
        "correct",
        *(f"fast_{p:g}" for p in FAST),
        "mean",
        "geomean",
        "median",
        "roofline",
    )
    found = [figure_row(title, figures) for title, figures in comparisons(standings)]
    if not terminal.fits(header, found):
        header, found = narrow(header), [narrow(each) for each in found]
    terminal.table(header, found)
    terminal.line(f"our times are modelled for {gpu} unless the table says measured; the roofline is PyTorch's as well")


def row(each: Standing, others: Sequence[str]) -> tuple[str, ...]:
    recorded = dict(each.recorded_ms)

    def cell(system: str) -> str:
        mark = "*" if system in each.broken else ""
        return f"{recorded[system]:.4g} ms{mark}" if system in recorded else ""

    return (
        each.name, _ms(each.time_ms), each.source or each.why[:40], _ms(each.baseline_ms), each.baseline_source,
        ratio(each.speedup), _ms(each.roofline_ms),
        "" if each.roofline_fraction is None else f"{each.roofline_fraction:.0%}", str(each.evaluations),
        *(cell(system) for system in others),
    )  # fmt: skip


def short_row(each: Standing) -> tuple[str, ...]:
    """The columns `SHORT_COLUMNS`, each time with its source; why there is no kernel is in `told`'s line."""
    name, time, source, eager, eager_source, speedup, _, share, _ = row(each, ())
    return name, f"{time} {source}" if time else "", f"{eager} {eager_source}".strip(), speedup, share


def figure_row(title: str, found: Figures) -> tuple[str, ...]:
    numbers = (found.mean, found.geometric, found.median)
    return (
        title, str(found.problems), str(found.correct), *(f"{share:.0%}" for share in found.fast),
        *map(ratio, numbers),
        "" if isnan(found.roofline) else f"{found.roofline:.0%}",
    )  # fmt: skip


def narrow(cells: tuple[str, ...]) -> tuple[str, ...]:
    """Of the figures' columns: title, correct ones, those that are faster, geometric mean, share of the roofline."""
    return cells[0], cells[2], cells[3], cells[-3], cells[-1]


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.4g} ms"
