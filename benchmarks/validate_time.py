"""How far the time model can be trusted: predicted against measured times, of anybody's kernels.

    python benchmarks/validate_time.py benchmarks/calibration/pairs.csv --jobs 2 --json times.json

The file has a header and the columns ``kernel,task,entry,args,device,measured_ms``; paths are relative to it.  A kernel
is a ``.cu`` file in torch-extension form or a ``.py`` with a ``ModelNew``; ``entry`` and ``args`` are what ``cupilot
evaluate`` takes and may be empty.  Each kernel runs once at its task's true shape, on sampled blocks and on the task
file's own inputs; whether it computes the right thing is not looked at, and what it does wrong (a race, a read out of
bounds) is named in its line.

Prints one line per pair, in the order of the file, and last one line of JSON: how many pairs there are and failed, the
shares of all pairs (failed ones too) that are within a factor of the measured time, the median of predicted over
measured, and the rank correlation of the pairs that did not fail.  ``--json`` also writes the pairs with their
breakdowns and counters.  Ctrl-C ends with the summary of the pairs that are done.
"""

from __future__ import annotations

import argparse
import atexit
import csv
import json
import math
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from statistics import StatisticsError, correlation, median
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cupilot.cli.choices import positive
from cupilot.cli.environment import cache_folder
from cupilot.contracts import Call, Outcome
from cupilot.devices import open_device
from cupilot.errors import CupilotError, UserError
from cupilot.evaluation.binding import bound_arguments
from cupilot.evaluation.trials import SAMPLE_BUDGET
from cupilot.languages import read_kernel
from cupilot.records import Failure, Profile, Task, Timing, to_plain
from cupilot.runs.shutdown import end_children
from cupilot.tasks import draw_case, learn_structures, load_task, scaled_tasks
from cupilot.tasks.case import Drawn
from cupilot.threads import DaemonThreads

COLUMNS = ("kernel", "task", "entry", "args", "device", "measured_ms")
OPTIONAL = ("entry", "args")
FACTORS = (1.1, 1.25, 1.5, 2.0)
FEWEST_RANKED = 3
TIMEOUT_S = 120.0
INTERRUPTED = 130
BAR = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
OWN_BYTES = 2 << 30
"""Inputs up to here are drawn as the task file draws them; larger ones repeat, and take less memory."""


@dataclass(frozen=True)
class Pair:
    """One line of the file; ``problem`` says why it cannot be used."""

    kernel: str
    task: str = ""
    entry: str = ""
    args: str = ""
    device: str = ""
    measured_ms: float = math.nan
    problem: str = ""


@dataclass(frozen=True)
class Result:
    """A pair with its prediction, or with the reason why there is none."""

    pair: Pair
    timing: Timing | None = None
    profile: Profile | None = None
    problem: str = ""  # of a pair that did not fail: what the kernel does wrong

    @property
    def predicted_ms(self) -> float:
        return math.nan if self.timing is None else self.timing.time_s * 1e3

    @property
    def ratio(self) -> float:
        """Predicted over measured; NaN for a pair that failed."""
        return self.predicted_ms / self.pair.measured_ms

    def __str__(self) -> str:
        pair = self.pair
        text = f"{pair.kernel}  {pair.device}  measured {pair.measured_ms:.5g} ms  "
        if self.timing is None:
            return text + f"failed: {self.problem}"
        finding = f"  (finding: {self.problem})" if self.problem else ""
        return text + f"predicted {self.predicted_ms:.5g} ms  ratio {self.ratio:.3f}  {self.timing.limit}{finding}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Predicted against measured times of kernels.")
    parser.add_argument("pairs", type=Path, metavar="PAIRS.csv")
    parser.add_argument("--jobs", type=positive, default=2, metavar="N", help="pairs at a time (2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything that is known of the pairs")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="only kernels whose path has this in it")
    options = parser.parse_args(argv)
    try:
        pairs = [pair for pair in read_pairs(options.pairs) if options.only in pair.kernel]
        if options.json is not None:
            write(options.json, [])  # a place that cannot be written to is better known now
    except UserError as error:
        print(f"validate_time: {error}", file=sys.stderr)
        return 2
    # while a thread runs a task file, stdout is turned away for all of them
    out = sys.stdout
    results, interrupted = run(pairs, options.pairs.parent, options.jobs, out)
    if options.json is not None:
        write(options.json, results)
    print(json.dumps(summary(results)), file=out, flush=True)
    return INTERRUPTED if interrupted else 0


# --- the file -------------------------------------------------------------------------------------


def read_pairs(path: Path) -> list[Pair]:
    """All lines of the file; a line that cannot be used carries its problem."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file, skipinitialspace=True)
            missing = [name for name in COLUMNS if name not in (rows.fieldnames or ()) and name not in OPTIONAL]
            if missing:
                raise UserError(f"{path} has no column {', '.join(missing)}")
            return [read_pair(row) for row in rows]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not a CSV file in UTF-8: {error}") from None


def read_pair(row: dict[Any, Any]) -> Pair:
    texts = {name: (row.get(name) or "").strip() for name in COLUMNS}
    measured = texts.pop("measured_ms")
    problem = ""
    try:
        measured_ms = float(measured)
    except ValueError:
        measured_ms = math.nan
    if None in row:
        problem = "the line has more columns than the header; arguments with commas need quotes"
    elif not 0 < measured_ms < math.inf:
        problem = f"the measured time {measured!r} is not a positive number"
    return Pair(**texts, measured_ms=measured_ms, problem=problem)


# --- predictions ----------------------------------------------------------------------------------


def run(pairs: Sequence[Pair], folder: Path, jobs: int, out: TextIO) -> tuple[list[Result], bool]:
    """Predict all pairs and print their lines in order; the results that there are, and whether it was interrupted."""
    executor = DaemonThreads(jobs)
    futures = [executor.submit(predict, pair, folder) for pair in pairs]
    printed: list[Result] = []
    waiting: set[Future[Result]] = set(futures)
    console = Console(stderr=True, highlight=False)
    try:
        with Progress(*BAR, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("pairs", total=len(futures))
            while waiting:
                waiting = wait(waiting, return_when="FIRST_COMPLETED").not_done
                bar.update(task, completed=len(futures) - len(waiting))
                if not console.is_terminal:
                    print(f"{len(futures) - len(waiting)} of {len(futures)} pairs", file=sys.stderr)
                # a line that is printed past the bar would be drawn over
                place = sys.stderr if console.is_terminal and out.isatty() else out
                while len(printed) < len(futures) and futures[len(printed)].done():
                    printed.append(show(futures[len(printed)], place))
        executor.close()
        return printed, False
    except KeyboardInterrupt:
        executor.abandon()
        rest = [future for future in futures[len(printed) :] if future.done() and not future.cancelled()]
        return printed + [show(future, out) for future in rest], True


def show(future: Future[Result], out: TextIO) -> Result:
    result = future.result()
    print(result, file=out, flush=True)
    return result


def predict(pair: Pair, folder: Path) -> Result:
    """Never raises: whatever is wrong with a pair is its own affair."""
    try:
        timing, outcome = predicted(pair, folder)
        finding = "" if outcome.finding is None else f"{outcome.finding.kind}: {outcome.finding.message}"
        return Result(pair, timing, outcome.profile, " ".join(finding.split()))
    except CupilotError as error:
        text = str(error)
    except Exception as error:
        text = f"internal error, {type(error).__name__}: {error}"
    return Result(pair, problem=" ".join(text.split()))


def predicted(pair: Pair, folder: Path) -> tuple[Timing, Outcome]:
    """Run the kernel once, at its task's true shape, and ask the device how long that takes."""
    if pair.problem:
        raise UserError(pair.problem)
    kernel = read_kernel(folder / pair.kernel, pair.entry or "forward", pair.args, options=("torch-ops",))
    # a device keeps the inputs of its calls, so each pair has one of its own
    device = open_device(pair.device if ":" in pair.device else f"virtual:{pair.device}", cache_folder())
    task = load_task(folder / pair.task)
    built = succeeded(device.build(kernel))
    arguments = succeeded(bound_arguments(built.kernel, task))
    call = Call(f"{task.name}, {pair.kernel}", drawn(task).bound(arguments), task.outputs, SAMPLE_BUDGET, lenient=True)
    outcome = succeeded(device.run(built, (call,), TIMEOUT_S)[0])
    return device.time(outcome.profile), outcome


def succeeded(result: Any) -> Any:
    if isinstance(result, Failure):
        raise UserError(f"{result.stage}, {result.kind}: {result.message}")
    return result


def drawn(task: Task, seed: int = 0) -> Drawn:
    """The inputs that the task file draws; where those are too large, as many like them."""
    if task.input_bytes <= OWN_BYTES:
        return draw_case(task, "own", seed)
    smaller = next(iter(scaled_tasks(task)), task)
    return draw_case(task, "normal", seed, learn_structures(smaller, seed))


# --- what they come to ----------------------------------------------------------------------------


def summary(results: Sequence[Result]) -> dict[str, float | None]:
    """The figures of the last line."""
    good = [result for result in results if result.timing is not None]
    ratios = [result.ratio for result in good]
    figures: dict[str, float | None] = {"n": len(results), "failed": len(results) - len(good)}
    for factor in FACTORS:
        near = sum(max(ratio, 1 / ratio) <= factor for ratio in ratios)
        figures[f"within_{factor:g}"] = round(near / len(results), 4) if results else None
    figures["median_ratio"] = round(median(ratios), 4) if ratios else None
    figures["spearman"] = spearman([r.predicted_ms for r in good], [r.pair.measured_ms for r in good])
    return figures


def spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Correlation of ranks; None for fewer than three, or where all are the same."""
    if len(left) < FEWEST_RANKED:
        return None
    try:
        return round(correlation(ranks(left), ranks(right)), 4)
    except StatisticsError:
        return None


def ranks(values: Sequence[float]) -> list[float]:
    """Places in order, from one; equal values share the mean of theirs."""
    return [(sum(v < value for v in values) + sum(v <= value for v in values) + 1) / 2 for value in values]


def write(path: Path, results: Sequence[Result]) -> None:
    report = {"summary": summary(results), "pairs": [plain(result) for result in results]}
    try:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None


def plain(result: Result) -> dict[str, Any]:
    """A pair as JSON has it, which knows no NaN."""
    pair, known = result.pair, result.timing is not None
    return {
        "kernel": pair.kernel,
        "device": pair.device,
        "measured_ms": None if math.isnan(pair.measured_ms) else pair.measured_ms,
        "predicted_ms": result.predicted_ms if known else None,
        "ratio": result.ratio if known else None,
        "problem": result.problem,
        "timing": to_plain(result.timing) if known else None,
        "profile": to_plain(result.profile) if known else None,
    }


def interrupt_once(*_: object) -> None:
    """What follows a first signal must not disturb the summary."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGINT, interrupt_once)
    signal.signal(signal.SIGTERM, interrupt_once)
    status = main()
    if status == INTERRUPTED:
        # the interpreter would end threads that are still at work, which C++ code below them answers with an abort
        end_children()
        atexit._run_exitfuncs()  # temporary folders, above all
        os._exit(status)
    sys.exit(status)
