"""The one evaluate(): build, run, verify, time, for everybody who wants to know about a kernel.

Correctness is decided on several calls (see `trials`): smaller and odd versions of the task run in full on every kind
of input, one of them twice with blocks in another order; the true shape runs on sampled blocks, and what those wrote
is compared.  Where a sample says nothing (several launches that hand results on, atomics, a result that is one sum)
the true shape runs in full, or, when that would take too long, the largest version that does not.  Time and profile
are those of the true shape.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cupilot.contracts import DONE, REFERENCE, Built, Device, Outcome, Step, Watch
from cupilot.devices.cuda_worker import Reference
from cupilot.evaluation.baseline import baseline
from cupilot.evaluation.binding import bound_arguments
from cupilot.evaluation.light import beyond_light
from cupilot.evaluation.measure import Measuring, baseline_of, measure, timing_of
from cupilot.evaluation.proof import make_proof
from cupilot.evaluation.trials import SAMPLE_BUDGET, Trial, Trials
from cupilot.evaluation.verify import compare
from cupilot.records import Check, Evaluation, Failure, Kernel, Measurement, Profile, Task
from cupilot.tasks import SlicedCase

FULL_INSTRUCTIONS = 2.5e10
"""Lane instructions up to which the true shape runs in full where a sample says nothing; some 10 s."""
FULL_BYTES = 2 << 30
"""Results that a full run may write: each byte takes another for what is known of it."""
FULL_TIMEOUT_S = 120.0
MEASURE_TIMEOUT_S = 300.0
MIDDLING_ELEMENTS = 1 << 24


@dataclass
class _Verdict:
    """What has been found out so far."""

    checks: list[Check]
    failure: Failure | None = None
    profile: Profile | None = None


class Evaluator:
    """Evaluates kernels of tasks on one device; keeps the reference cases between kernels.

    Safe to call from several threads; each candidate runs in a process of its own, and at most
    ``slots`` are built and as many run at a time.  ``watch`` is told which stage a kernel has come to.
    """

    def __init__(
        self,
        device: Device,
        seed: int = 0,
        timeout_s: float = 120.0,
        slots: int = 4,
        watch: Watch = lambda step: None,
    ) -> None:
        self._device = device
        self._seed = seed
        self._timeout_s = timeout_s
        self._watch = watch
        self._trials: tuple[tuple[str, str], Trials] | None = None
        self._lock = threading.Lock()
        # builds and runs queue separately, so that the next kernel is compiled while one runs
        self._building = threading.BoundedSemaphore(slots)
        self._running = threading.BoundedSemaphore(slots)

    def __call__(self, task: Task, kernel: Kernel) -> Evaluation:
        try:
            return self._evaluate(task, kernel)
        finally:
            self._watch(Step(DONE, kernel.digest))

    def _evaluate(self, task: Task, kernel: Kernel) -> Evaluation:
        who = kernel.digest
        self._watch(Step("waiting", who))
        trials = self.trials(task)
        with self._building:
            self._watch(Step("building", who))
            built = self._device.build(kernel)
        if isinstance(built, Failure):
            return self._evaluation(task, kernel, built)
        arguments = bound_arguments(built.kernel, task)
        if isinstance(arguments, Failure):
            return self._evaluation(task, kernel, arguments)
        self._watch(Step("waiting", who))
        with self._running:
            self._watch(Step("checking", who))
            found = self._verdict(task, built, trials, arguments)
        if found.failure is not None or found.profile is None:
            return self._evaluation(task, kernel, found.failure, checks=tuple(found.checks))
        self._watch(Step("timing", who))
        checks, measured = tuple(found.checks), self._measured(task, built, trials, arguments)
        if isinstance(measured, Failure):
            return self._evaluation(task, kernel, measured, checks=checks, profile=found.profile)
        timing, eager = self._device.time(found.profile), baseline(task, self._device.spec, self._device.name)
        if measured is not None:
            # what binds is the model's opinion, the time is not
            timing = replace(timing_of(measured, self._device.name), limit=timing.limit)
            eager = baseline_of(measured, self._device.name) or eager
        failure = beyond_light(task, timing, self._device.spec)
        proof = None if failure else make_proof(task, built, checks, self._seed, eager.note)
        return self._evaluation(
            task, kernel, failure, checks=checks, timing=timing, baseline=eager, profile=found.profile, proof=proof,
            measurement=measured,
        )  # fmt: skip

    def _measured(self, task: Task, built: Built, trials: Trials, arguments: str) -> Measurement | Failure | None:
        """In turns with PyTorch, on a device that can measure."""
        if not isinstance(self._device, Measuring):
            return None
        true = trials.true()
        inputs = true.drawn.arguments[: sum(argument.origin == "input" for argument in task.arguments)]
        reference, call = Reference(task.source, task.precision), true.call(arguments)
        timeout_s = max(self._timeout_s, MEASURE_TIMEOUT_S)
        return measure(self._device, built, call, timeout_s, reference=reference, inputs=inputs, seed=self._seed)

    def _evaluation(self, task: Task, kernel: Kernel, failure: Failure | None, **facts: object) -> Evaluation:
        facts = {"baseline": baseline(task, self._device.spec, self._device.name)} | facts
        return Evaluation(
            kernel.digest, task.name, self._device.name, failure, precision=task.precision,
            **facts,  # type: ignore[arg-type]
        )  # fmt: skip

    def trials(self, task: Task) -> Trials:
        """The calls every kernel of this task is judged by; made once, and kept until another task's are asked for."""
        with self._lock:
            key = (task.source, task.precision)
            if self._trials is None or self._trials[0] != key:
                # the last task's gigabytes go before the next ones come
                self._trials = None
                self._trials = (key, Trials(task, self._seed, lambda what: self._watch(Step(REFERENCE, "", what))))
            return self._trials[1]

    def _verdict(self, task: Task, built: Built, trials: Trials, arguments: str) -> _Verdict:
        # the true shape comes last: the cheap trials find most mistakes
        small, true = trials.small(), trials.true()
        calls = [trial.call(arguments) for trial in small] + [true.call(arguments, SAMPLE_BUDGET)]
        results = self._device.run(built, calls, self._timeout_s)
        found = _Verdict([])
        for trial, result in zip(small, results[:-1], strict=True):
            self._judge(found, trial, result, task.precision)
            if found.failure is not None:
                return found
        self._judge_true(found, task, built, trials, arguments, results[-1])
        if found.failure is None and small and all("refused" in check.note for check in found.checks[: len(small)]):
            self._insist(found, task, built, trials.stubborn(), arguments)
        return found

    def _judge(self, found: _Verdict, trial: Trial, result: Outcome | Failure, precision: str) -> None:
        """A trial that ran in full."""
        if isinstance(result, Failure):
            # saying "not this shape" is honest; only the true shape must be served
            if trial.full and result.kind == "wrapper-error":
                found.checks.append(Check(trial.case.kind, trial.case.shapes, 0.0, 0.0, f"refused: {result.message}"))
            else:
                found.failure = result
            return
        check, found.failure = compare(
            trial.case, result.outputs, precision, partial=result.profile.sampled, strict=trial.strict
        )
        found.checks.append(check)

    def _judge_true(
        self, found: _Verdict, task: Task, built: Built, trials: Trials, arguments: str, result: Outcome | Failure
    ) -> None:
        if isinstance(result, Failure):
            found.failure = result
            return
        found.profile, true = result.profile, trials.true()
        if _comparable(true, result.profile):
            self._judge(found, true, result, task.precision)
            return
        instructions = result.profile.total("lane_instructions")
        note = f"the true shape takes {instructions:.2g} lane instructions"
        known = not isinstance(true.case, SlicedCase) or true.case.is_known
        if known and instructions <= FULL_INSTRUCTIONS and task.output_bytes <= FULL_BYTES:
            trial, call = true, true.call(arguments)
        else:
            share = FULL_INSTRUCTIONS / instructions
            middling = trials.middling(int(min(MIDDLING_ELEMENTS, share * (task.minimal_bytes // 4))))
            if middling is None:
                text = f"sampled blocks say nothing here, and {note}: values not compared"
                found.checks.append(Check(true.case.kind, true.case.shapes, 0.0, 0.0, text))
                return
            trial, call = middling, middling.call(arguments)
        (whole,) = self._device.run(built, (call,), max(self._timeout_s, FULL_TIMEOUT_S))
        self._judge(found, trial, whole, task.precision)

    def _insist(self, found: _Verdict, task: Task, built: Built, trials: Sequence[Trial], arguments: str) -> None:
        """A kernel that serves the true shape alone meets the other kinds of input there."""
        calls = [trial.call(arguments, SAMPLE_BUDGET) for trial in trials]
        for trial, result in zip(trials, self._device.run(built, calls, self._timeout_s), strict=True):
            if isinstance(result, Failure) or _comparable(trial, result.profile):
                self._judge(found, trial, result, task.precision)
            if found.failure is not None:
                return


def _comparable(trial: Trial, profile: Profile) -> bool:
    """Whether something is known of the result, and what (sampled) blocks wrote has its final values."""
    case = trial.case
    if isinstance(case, SlicedCase) and not case.is_known:
        return False
    if not profile.sampled:
        return True
    if any(operation.kind.startswith("aten.") for operation in profile.operations):
        return False
    needs_all = isinstance(case, SlicedCase) and case.needs_all
    return not needs_all and len(profile.launches) == 1 and not profile.total("global_atomic_requests")
