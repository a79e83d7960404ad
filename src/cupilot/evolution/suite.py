"""A benchmark over a suite: one search per problem, each in a run folder of its own, so that it can be gone on with.

Problems are independent: what one search finds out is not told to the next, so that a result does not depend on which
problems were asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from cupilot.contracts import Agents, Executor
from cupilot.errors import CupilotError, UserError
from cupilot.evolution.budget import Spending
from cupilot.evolution.loop import Progress, Surroundings, evolve
from cupilot.evolution.memory import Evaluator
from cupilot.evolution.result import repeat_report, replace_file, to_json
from cupilot.evolution.standings import Standing
from cupilot.evolution.store import create_store, holds_run, open_store
from cupilot.gpu import needed_flop, reachable_s
from cupilot.gpu.spec import GpuSpec
from cupilot.gpu.work import sums_products
from cupilot.languages import language_of, read_kernel
from cupilot.records import Evaluation, Kernel, PoolRecord, RunInfo, RunResult, Task, to_plain
from cupilot.tasks.suite import RECORDED_ON, SuiteTask

KERNELS, RUNS = "kernels", "runs"
Recall = Callable[[Task, Evaluation], tuple[PoolRecord, ...]]


@dataclass(frozen=True)
class Bench:
    """What all problems share; ``info`` is a run's with everything but the task."""

    folder: Path
    spec: GpuSpec
    agents: Agents
    evaluator: Evaluator
    executor: Executor
    info: RunInfo
    clock: Callable[[], float]
    recall: Recall = lambda task, evaluation: ()
    on_event: Callable[[Progress], None] = lambda progress: None

    def solve(self, problem: SuiteTask, task: Task) -> Standing:
        """Search, or go on with a search that was stopped; the kernel and its proof are put into ``kernels``."""
        standing = self._asked(problem, task)
        try:
            result = self._search(problem, task)
        except CupilotError as error:
            return replace(standing, why=str(error))
        return self._found(standing, task, result)

    def carry_over(self, other: Path, found: Standing, task: Task) -> Standing | None:
        """What another benchmark found for a problem that precision makes no difference to; None where it does.

        Only sums of products have less precise ways; everything else is the same search, kernel and time.
        """
        if sums_products(task) or not found.correct:
            return None
        try:
            claim = json.loads((other / found.kernel).with_suffix(".json").read_text(encoding="utf-8"))
            told = claim["device"], claim["repeat"]["task"]["source"]
            source = (other / found.kernel).read_text(encoding="utf-8")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"the benchmark in {other} cannot be used: {found.name}: {error}") from error
        if told != (self.info.device, task.source):
            return None
        (self.folder / KERNELS).mkdir(parents=True, exist_ok=True)
        replace_file(self.folder / found.kernel, source)
        replace_file((self.folder / found.kernel).with_suffix(".json"), to_json(claim))
        return replace(found, precision=task.precision)

    def or_others(self, standing: Standing, other: Path, found: Standing, task: Task) -> Standing:
        """The kernel of another benchmark in place of ours, where it passes here as well and is faster."""
        ours = standing.time_ms if standing.correct else None
        if not found.correct or found.time_ms is None or (ours is not None and ours <= found.time_ms):
            return standing
        kernel = read_kernel(other / found.kernel)
        evaluation = self.evaluator(task, kernel)
        standing = replace(standing, evaluations=standing.evaluations + 1)
        time_s = evaluation.timing.time_s if evaluation.timing is not None else None
        if evaluation.failure is not None or time_s is None or (ours is not None and 1e3 * time_s >= ours):
            return standing
        return self._written(replace(standing, why=""), task, kernel, evaluation)

    def _search(self, problem: SuiteTask, task: Task) -> RunResult:
        folder = self.folder / RUNS / problem.name
        info = replace(self.info, task=task.name, task_source=task.source)
        begun = holds_run(folder)
        with closing(open_store(folder) if begun else create_store(folder)) as store:
            known = store.repeat() if begun else ()
            limit_s = reachable_s(self.spec, task, needed_flop(task))

            def recall(task: Task, evaluation: Evaluation) -> tuple[PoolRecord, ...]:
                return store.once("recalled", PoolRecord, lambda: self.recall(task, evaluation))

            around = Surroundings(
                self.spec, self.executor, store, folder, limit_s, Spending(info.budget, self.clock), recall,
                on_event=self.on_event, known=known,
            )  # fmt: skip
            return evolve(task, self.agents, self.evaluator, info, around)

    def _asked(self, problem: SuiteTask, task: Task) -> Standing:
        """The row of a problem that has no kernel yet."""
        recorded = problem.recorded
        usable = recorded is not None and recorded.fits(task) and self.spec.name == RECORDED_ON
        times = tuple((name, 1e3 * time_s) for name, time_s in recorded.times_s.items()) if recorded and usable else ()
        return Standing(
            problem.number, problem.name, problem.category, False, None, dict(times).get("pytorch"), None,
            task.precision, None, 0, "", "recorded" if times else "",
            roofline_ms=1e3 * reachable_s(self.spec, task, needed_flop(task)),
            recorded_ms=times, broken=recorded.broken if recorded is not None else (),
        )  # fmt: skip

    def check_again(self, found: Standing, problem: SuiteTask, task: Task) -> Standing:
        """A kernel that was found before, evaluated anew: for when what evaluates has changed."""
        standing = replace(
            self._asked(problem, task),
            evaluations=found.evaluations, plain_ms=found.plain_ms, stopped=found.stopped, kernel=found.kernel,
        )  # fmt: skip
        kernel = read_kernel(self.folder / found.kernel)
        evaluation = self.evaluator(task, kernel)
        if (failure := evaluation.failure) is not None:
            said = failure.message.partition("\n")[0]
            return replace(standing, why=f"{failure.kind}: {said}")
        return self._written(standing, task, kernel, evaluation)

    def _found(self, standing: Standing, task: Task, result: RunResult) -> Standing:
        standing = replace(
            standing,
            evaluations=result.evaluations, plain_ms=1e3 * (result.first.time_s or 0.0), stopped=result.stopped,
        )  # fmt: skip
        return self._written(standing, task, result.best.kernel, result.best.evaluation)

    def _written(self, standing: Standing, task: Task, kernel: Kernel, evaluation: Evaluation) -> Standing:
        """Put the kernel and its proof into ``kernels``."""
        timing, baseline = evaluation.timing, evaluation.baseline
        assert timing is not None
        assert standing.roofline_ms is not None
        time_ms = 1e3 * timing.time_s
        baseline_ms, source = standing.baseline_ms, standing.baseline_source
        if baseline_ms is None and baseline is not None:
            baseline_ms, source = 1e3 * baseline.time_s, baseline.source
        place = f"{KERNELS}/{standing.name}{language_of(kernel).suffix}"
        (self.folder / KERNELS).mkdir(exist_ok=True)
        replace_file(self.folder / place, kernel.source)
        claim = {"task": task.name, "device": evaluation.device, "timing": to_plain(timing)}
        claim |= {"proof": to_plain(evaluation.proof)} | repeat_report(task, kernel, self.info.timeout_s)
        replace_file((self.folder / place).with_suffix(".json"), to_json(claim))
        return replace(
            standing,
            correct=evaluation.correct, time_ms=time_ms, baseline_ms=baseline_ms, baseline_source=source,
            speedup=baseline_ms / time_ms if baseline_ms is not None else None, source=timing.source,
            roofline_fraction=standing.roofline_ms / time_ms, kernel=place,
        )  # fmt: skip
