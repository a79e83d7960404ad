"""A benchmark over a suite: one search per problem, each in a run folder of its own, so that it can be resumed.

Problems are independent: no search learns from another, so that a result does not depend on which problems were
chosen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from cupilot.contracts import Agents
from cupilot.errors import CupilotError, UserError
from cupilot.evolution.bench_results import BenchRow
from cupilot.evolution.result import repeat_report, replace_file, to_json
from cupilot.evolution.store import create_store, holds_run, open_store
from cupilot.languages import language_of, read_kernel
from cupilot.records import Evaluation, Kernel, PoolRecord, RunInfo, RunResult, Task, to_plain
from cupilot.runs.session import Session, search
from cupilot.tasks.flop import sums_products
from cupilot.tasks.lower_bound import task_limit
from cupilot.tasks.suite import RECORDED_ON, SuiteTask

KERNELS, RUNS = "kernels", "runs"
Recall = Callable[[Task, Evaluation], tuple[PoolRecord, ...]]


@dataclass(frozen=True)
class Bench:
    """What all problems share; ``info`` is a run's without its task."""

    folder: Path
    session: Session
    agents: Agents
    info: RunInfo
    recall: Recall = lambda task, evaluation: ()

    def solve(self, problem: SuiteTask, task: Task) -> BenchRow:
        """Search, or resume a search that was stopped; the kernel and its proof are put into ``kernels``."""
        row = self._asked(problem, task)
        try:
            result = self._search(problem, task)
        except CupilotError as error:
            return replace(row, why=str(error))
        return self._found(row, task, result)

    def carry_over(self, other: Path, found: BenchRow, task: Task) -> BenchRow | None:
        """The other benchmark's result for a problem that does not depend on precision; None if it does.

        Only sums of products depend on it; everything else is the same search, kernel and time.
        """
        if sums_products(task) or not found.correct:
            return None
        try:
            proof = json.loads((other / found.kernel).with_suffix(".json").read_text(encoding="utf-8"))
            told = proof["device"], proof["repeat"]["task"]["source"]
            source = (other / found.kernel).read_text(encoding="utf-8")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"the benchmark in {other} cannot be used: {found.name}: {error}") from error
        if told != (self.info.device, task.source):
            return None
        (self.folder / KERNELS).mkdir(parents=True, exist_ok=True)
        replace_file(self.folder / found.kernel, source)
        replace_file((self.folder / found.kernel).with_suffix(".json"), to_json(proof))
        return replace(found, precision=task.precision)

    def or_others(self, row: BenchRow, other: Path, found: BenchRow, task: Task) -> BenchRow:
        """The kernel of another benchmark in place of ours, where it passes here as well and is faster."""
        ours = row.time_ms if row.correct else None
        if not found.correct or found.time_ms is None or (ours is not None and ours <= found.time_ms):
            return row
        kernel = read_kernel(other / found.kernel)
        evaluation = self._evaluate(task, kernel)
        row = replace(row, evaluations=row.evaluations + 1)
        time_s = evaluation.timing.time_s if evaluation.timing is not None else None
        if evaluation.failure is not None or time_s is None or (ours is not None and 1e3 * time_s >= ours):
            return row
        return self._written(replace(row, why=""), task, kernel, evaluation)

    def _search(self, problem: SuiteTask, task: Task) -> RunResult:
        folder = self.folder / RUNS / problem.name
        info = replace(self.info, task=task.name, task_source=task.source)
        begun = holds_run(folder)
        with closing(open_store(folder) if begun else create_store(folder)) as store:

            def recall(task: Task, evaluation: Evaluation) -> tuple[PoolRecord, ...]:
                return store.once("recalled", PoolRecord, lambda: self.recall(task, evaluation))

            known = store.repeat() if begun else ()
            return search(self.session, task, info, store, self.agents, folder=folder, known=known, recall=recall)

    def _evaluate(self, task: Task, kernel: Kernel) -> Evaluation:
        return self.session.evaluate(task, kernel, seed=self.info.seed, timeout_s=self.info.timeout_s)

    def _asked(self, problem: SuiteTask, task: Task) -> BenchRow:
        """The row of a problem that has no kernel yet."""
        recorded = problem.recorded
        usable = recorded is not None and recorded.fits(task) and self.session.device.spec.name == RECORDED_ON
        times = tuple((name, 1e3 * time_s) for name, time_s in recorded.times_s.items()) if recorded and usable else ()
        return BenchRow(
            problem.number, problem.name, problem.category, False, None, dict(times).get("pytorch"), None,
            task.precision, None, 0, "", "recorded" if times else "",
            roofline_ms=1e3 * task_limit(self.session.device.spec, task).time_s,
            recorded_ms=times, broken=recorded.broken if recorded is not None else (),
        )  # fmt: skip

    def check_again(self, found: BenchRow, problem: SuiteTask, task: Task) -> BenchRow:
        """A kernel that was found before, evaluated anew: for when what evaluates has changed."""
        row = replace(
            self._asked(problem, task),
            evaluations=found.evaluations, plain_ms=found.plain_ms, stopped=found.stopped, kernel=found.kernel,
        )  # fmt: skip
        kernel = read_kernel(self.folder / found.kernel)
        evaluation = self._evaluate(task, kernel)
        if (failure := evaluation.failure) is not None:
            said = failure.message.partition("\n")[0]
            return replace(row, why=f"{failure.kind}: {said}")
        return self._written(row, task, kernel, evaluation)

    def _found(self, row: BenchRow, task: Task, result: RunResult) -> BenchRow:
        row = replace(
            row,
            evaluations=result.evaluations, plain_ms=1e3 * (result.first.time_s or 0.0), stopped=result.stopped,
        )  # fmt: skip
        return self._written(row, task, result.best.kernel, result.best.evaluation)

    def _written(self, row: BenchRow, task: Task, kernel: Kernel, evaluation: Evaluation) -> BenchRow:
        """Put the kernel and its proof into ``kernels``."""
        timing, baseline = evaluation.timing, evaluation.baseline
        assert timing is not None
        assert row.roofline_ms is not None
        time_ms = 1e3 * timing.time_s
        baseline_ms, source = row.baseline_ms, row.baseline_source
        if baseline_ms is None and baseline is not None:
            baseline_ms, source = 1e3 * baseline.time_s, baseline.source
        place = f"{KERNELS}/{row.name}{language_of(kernel).suffix}"
        (self.folder / KERNELS).mkdir(exist_ok=True)
        replace_file(self.folder / place, kernel.source)
        proof = {"task": task.name, "device": evaluation.device, "timing": to_plain(timing)}
        proof |= {"proof": to_plain(evaluation.proof)} | repeat_report(task, kernel, self.info.timeout_s)
        replace_file((self.folder / place).with_suffix(".json"), to_json(proof))
        return replace(
            row,
            correct=evaluation.correct, time_ms=time_ms, baseline_ms=baseline_ms, baseline_source=source,
            speedup=baseline_ms / time_ms if baseline_ms is not None else None, source=timing.source,
            roofline_fraction=row.roofline_ms / time_ms, kernel=place,
        )  # fmt: skip
