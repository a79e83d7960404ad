"""``cupilot bench level1``: the expert on a suite of problems, against what others recorded."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isnan
from pathlib import Path

from cupilot import __version__
from cupilot.cli.choices import choose_device, settings_of
from cupilot.cli.terminal import Tell, Terminal
from cupilot.cli.terminal_observer import TerminalObserver
from cupilot.contracts import Step
from cupilot.errors import CupilotError, UserError
from cupilot.evolution.bench_results import (
    FAST,
    RESULTS_CSV,
    BenchRow,
    Figures,
    comparisons,
    figures,
    other_systems,
    read_bench_rows,
    recorded_ones,
    write_bench_rows,
)
from cupilot.evolution.progress import Progress
from cupilot.numbers import duration, ratio
from cupilot.records import Budget, RunInfo, Task, to_plain
from cupilot.runs import Observer, open_session
from cupilot.runs.bench import Bench
from cupilot.runs.pool import shipped_records
from cupilot.tasks.suite import LEVEL1, TITLES, SuiteTask, chosen, in_type, open_suite

TIMEOUT_S = 300.0
COLUMNS = ("problem", "time", "source", "PyTorch", "source", "speed-up", "roofline", "of it", "evaluated")
SHORT_COLUMNS = ("problem", "time", "PyTorch", "speed-up", "roofline")
"""For terminals in which all columns do not fit."""


def run_level1(options: Namespace, terminal: Terminal) -> int:
    """Search problem after problem; results are on disk after each."""
    problems = chosen(open_suite(options.suite or LEVEL1), options.only)
    folder = Path(options.out)
    done = {each.problem: each for each in read_bench_rows(folder)}
    if options.again and not done:
        raise UserError(f"--again evaluates kernels anew, and --out {folder} holds none")
    if done and not (options.resume or options.again):
        raise UserError(f"--out {folder} already holds results; choose another folder, or continue with --resume")
    others = {each.problem: each for each in read_bench_rows(Path(options.reuse))} if options.reuse else {}
    if options.reuse and not others:
        raise UserError(f"--reuse {options.reuse} holds no results of a benchmark")
    from cupilot.expert import Expert

    device = choose_device(options.device, terminal)
    with open_session(device, settings_of(options), TerminalObserver(terminal)) as session, terminal.bar() as tell:
        info = RunInfo(
            "", "", device, "expert", options.seed, options.population, options.generations, __version__,
            timeout_s=TIMEOUT_S, budget=Budget(evaluations=options.budget), precision=options.precision,
            gpu=session.device.spec.name,
        )  # fmt: skip
        bench = Bench(folder, session, Expert(), info, shipped_records)
        if options.again:
            left = [each for each in problems if each.number in done and done[each.number].kernel]
            search: Search = partial(checked_again, dict(done))
        else:
            left = [each for each in problems if each.number not in done or not done[each.number].correct]
            search = searched
        if options.reuse:
            search = partial(reused, Path(options.reuse), others, search)
        interrupted = solve_all(bench, left, Kind(options.precision, options.dtype), done, terminal, tell, search)
        gpu = session.device.spec.title
    results = [done[number] for number in sorted(done)]
    show(results, terminal, gpu)
    terminal.line(f"results: {folder / RESULTS_CSV}")
    if interrupted:
        terminal.line("interrupted; the same command with --resume continues")
    terminal.report({"results": to_plain(results), "figures": to_plain(figures(recorded_ones(results)))})
    return 0 if results and all(each.correct for each in results) and not interrupted else 1


@dataclass(frozen=True)
class Kind:
    """What kernels may compute in, and what tensors are made of."""

    precision: str = "fp32"
    dtype: str = "fp32"


def solve_all(
    bench: Bench,
    problems: Sequence[SuiteTask],
    kind: Kind,
    done: dict[int, BenchRow],
    terminal: Terminal,
    tell: Tell,
    search: Search,
) -> bool:
    """Put the result of each problem into ``done`` and on disk; whether it was interrupted."""
    for place, problem in enumerate(problems):
        tell(place, len(problems), problem.name)
        observer = BarObserver(partial(tell, place, len(problems)), problem.name)
        current = replace(bench, session=replace(bench.session, observer=observer))
        result = solve(current, problem, kind, search)
        if result.stopped == "interrupted":
            return True
        before = done.get(problem.number)
        done[result.problem] = result
        bench.folder.mkdir(parents=True, exist_ok=True)
        write_bench_rows(bench.folder, [done[number] for number in sorted(done)])
        was = f", was {duration(before.time_ms / 1e3)}" if before is not None and before.time_ms is not None else ""
        terminal.line(told(result) + was)
    return False


class BarObserver(Observer):
    """The bar's text while a problem is searched: how many kernels, and the best time."""

    def __init__(self, tell: Callable[[str], None], name: str) -> None:
        self._tell, self._name = tell, name

    def __call__(self, event: Progress | Step) -> None:
        timing = event.result.best.evaluation.timing if isinstance(event, Progress) else None
        if isinstance(event, Progress) and timing is not None:
            found = f"{event.result.evaluations} evaluated, {duration(timing.time_s)} {timing.source}"
            self._tell(f"{found}, {self._name}")


Search = Callable[[Bench, SuiteTask, Task], BenchRow]


def searched(bench: Bench, problem: SuiteTask, task: Task) -> BenchRow:
    return bench.solve(problem, task)


def reused(
    folder: Path, others: Mapping[int, BenchRow], search: Search, bench: Bench, problem: SuiteTask, task: Task
) -> BenchRow:
    """What another benchmark found where precision makes no difference; else the faster of its kernel and ours."""
    if problem.number not in others:
        return search(bench, problem, task)
    found = others[problem.number]
    carried = bench.carry_over(folder, found, task)
    if carried is not None:
        return carried
    ours = search(bench, problem, task)
    return ours if ours.stopped == "interrupted" else bench.or_others(ours, folder, found, task)


def checked_again(done: Mapping[int, BenchRow], bench: Bench, problem: SuiteTask, task: Task) -> BenchRow:
    """What a kernel that was found before is worth now."""
    try:
        return bench.check_again(done[problem.number], problem, task)
    except KeyboardInterrupt:
        return replace(done[problem.number], stopped="interrupted")


def solve(bench: Bench, problem: SuiteTask, kind: Kind, search: Search) -> BenchRow:
    """A task that cannot even be loaded is a row as well."""
    from cupilot.tasks import load_task

    try:
        task = load_task(problem.path, kind.precision, partial(in_type, dtype=kind.dtype))
    except CupilotError as error:
        return BenchRow(
            problem.number, problem.name, problem.category, False, None, None, None, kind.precision, None, 0, "",
            why=str(error),
        )  # fmt: skip
    task = replace(task, name=problem.name)
    return search(bench, problem, task)


def told(result: BenchRow) -> str:
    if result.time_ms is None:
        return f"{result.name}: no kernel: {result.why}"
    against = f"{ratio(result.speedup)} PyTorch's {duration((result.baseline_ms or 0) / 1e3)}"
    return (
        f"{result.name}: {duration(result.time_ms / 1e3)} {result.source}, {against} {result.baseline_source}, "
        f"{result.roofline_fraction:.0%} of the roofline, {result.evaluations} evaluated, {result.stopped}"
    )


# --- tables ----------------------------------------------------------------------------------


def show(results: Sequence[BenchRow], terminal: Terminal, gpu: str) -> None:
    """Problem by problem, then by category, then against what others recorded."""
    terminal.line()
    others = other_systems()
    columns, rows = (*COLUMNS, *(TITLES[system] for system in others)), [row(each, others) for each in results]
    if terminal.fits(columns, rows):
        terminal.table(columns, rows)
        if any(each.broken for each in results):
            terminal.line("* does not compute its operator; left out of the means below")
    else:
        terminal.table(SHORT_COLUMNS, [short_row(each) for each in results])
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
    found = [figure_row(title, figures) for title, figures in comparisons(results)]
    if not terminal.fits(header, found):
        header, found = narrow(header), [narrow(each) for each in found]
    terminal.table(header, found)
    terminal.line(f"our times are modelled for {gpu} unless the table says measured; the roofline is PyTorch's as well")


def row(each: BenchRow, others: Sequence[str]) -> tuple[str, ...]:
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


def short_row(each: BenchRow) -> tuple[str, ...]:
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
