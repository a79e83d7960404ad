"""The one evaluate(): build, run, verify and time a kernel.

Correctness is decided on several calls (see `trials`).  Smaller and odd versions of the task run in full on every kind
of input, one of them twice with blocks in another order.  The true shape runs on sampled blocks, and what those wrote
is compared.  Where a sample says nothing (several launches that hand results on, atomics, a result that is one sum)
the true shape runs in full, or, when that would take too long, the largest version that does not.  Time and profile
are those of the true shape.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from cupilot.contracts import DONE, REFERENCE, Built, Device, Measuring, Outcome, Reference, Step, Watch
from cupilot.errors import DeviceError
from cupilot.evaluation.baseline import baseline
from cupilot.evaluation.binding import bound_arguments
from cupilot.evaluation.measure import baseline_of, measure, timing_of
from cupilot.evaluation.proof import make_proof
from cupilot.evaluation.speed_of_light import speed_of_light_failure
from cupilot.evaluation.trials import SAMPLE_BUDGET, Trial, Trials
from cupilot.evaluation.verify import compare
from cupilot.records import (
    Check,
    Evaluation,
    EvaluationRequest,
    Failure,
    Measurement,
    Profile,
    Task,
    TaskSource,
)
from cupilot.tasks import SlicedCase
from cupilot.tasks.load import load_source

FULL_INSTRUCTIONS = 2.5e10
"""Lane instructions up to which the true shape runs in full where a sample says nothing; about 10 s."""
FULL_BYTES = 2 << 30
"""Results that a full run may write; the checks need as much memory again."""
FULL_TIMEOUT_S = 120.0
MEASURE_TIMEOUT_S = 300.0
LARGEST_ELEMENTS = 1 << 24


class Evaluator:
    """Carries out evaluation requests on this machine.

    Safe to call from several threads.  Each candidate runs in a process of its own; at most ``slots`` are built and as
    many run at a time.  The references of the last task are kept, because the next request is usually about the same
    one.  ``open_device`` is called once for each device name; ``tasks`` need not be loaded from their sources again.
    """

    def __init__(
        self,
        open_device: Callable[[str], Device],
        *,
        slots: int = 4,
        watch: Watch = lambda step: None,
        tasks: Iterable[Task] = (),
    ) -> None:
        self._open_device = open_device
        self._watch = watch
        self._devices: dict[str, Device] = {}
        self._tasks = {TaskSource.of(task): task for task in tasks}
        self._loaded: Task | None = None
        self._trials: tuple[tuple[TaskSource, int], Trials] | None = None
        self._lock = threading.Lock()
        # builds and runs queue separately, so that the next kernel is compiled while one runs
        self._building = threading.BoundedSemaphore(slots)
        self._running = threading.BoundedSemaphore(slots)

    def __call__(self, request: EvaluationRequest) -> Evaluation:
        """Evaluate; a candidate that fails is an evaluation with a failure.

        Raises a `CupilotError` when the device cannot be opened or the task cannot be loaded.
        """
        began_s = time.monotonic()
        try:
            return replace(self._evaluate(request), elapsed_s=time.monotonic() - began_s)
        finally:
            self._watch(Step(DONE, request.kernel.digest))

    def _evaluate(self, request: EvaluationRequest) -> Evaluation:
        kernel, who = request.kernel, request.kernel.digest
        self._watch(Step("waiting", who))
        with self._lock:
            device, task = self._device(request), self._task(request.task)
            job = _Job(request, device, task, self._references(task, request.seed))
        with self._building:
            self._watch(Step("building", who))
            built = device.build(kernel)
        if isinstance(built, Failure):
            return job.evaluation(built)
        arguments = bound_arguments(built.kernel, task)
        if isinstance(arguments, Failure):
            return job.evaluation(arguments)
        self._watch(Step("waiting", who))
        with self._running:
            self._watch(Step("checking", who))
            verdict = job.verify(built, arguments)
        if verdict.failure is not None or verdict.profile is None:
            return job.evaluation(verdict.failure, checks=tuple(verdict.checks))
        self._watch(Step("timing", who))
        return job.time(built, arguments, verdict.profile, tuple(verdict.checks))

    def _device(self, request: EvaluationRequest) -> Device:
        if request.device not in self._devices:
            self._devices[request.device] = self._open_device(request.device)
        device = self._devices[request.device]
        if request.gpu and request.gpu != device.spec.name:
            raise DeviceError(f"{request.device} is {device.spec.name} here, and the request is for {request.gpu}")
        return device

    def _task(self, source: TaskSource) -> Task:
        if source in self._tasks:
            return self._tasks[source]
        if self._loaded is None or TaskSource.of(self._loaded) != source:
            self._loaded = load_source(source)
        return self._loaded

    def _references(self, task: Task, seed: int) -> Trials:
        """The calls that every kernel of a task is judged by; made once and kept until another task comes."""
        key = (TaskSource.of(task), seed)
        if self._trials is None or self._trials[0] != key:
            self._trials = None  # free the last task's references, which may be gigabytes, before new ones are made
            self._trials = (key, Trials(task, seed, lambda what: self._watch(Step(REFERENCE, "", what))))
        return self._trials[1]


@dataclass
class _Verdict:
    """What has been found out so far."""

    checks: list[Check] = field(default_factory=list)
    failure: Failure | None = None
    profile: Profile | None = None


@dataclass(frozen=True)
class _Job:
    """One request with everything that is needed to carry it out."""

    request: EvaluationRequest
    device: Device
    task: Task
    trials: Trials

    def evaluation(self, failure: Failure | None, **facts: object) -> Evaluation:
        facts = {"baseline": baseline(self.task, self.device.spec, self.device.name)} | facts
        return Evaluation(
            self.request.kernel.digest, self.task.name, self.device.name, failure, precision=self.task.precision,
            **facts,  # type: ignore[arg-type]
        )  # fmt: skip

    # --- right or wrong --------------------------------------------------------------------

    def verify(self, built: Built, arguments: str) -> _Verdict:
        # the true shape comes last: the cheap trials find most mistakes
        small, true = self.trials.small(), self.trials.true()
        calls = [trial.call(arguments) for trial in small] + [true.call(arguments, SAMPLE_BUDGET)]
        results = self.device.run(built, calls, self.request.timeout_s)
        verdict = _Verdict()
        for trial, result in zip(small, results[:-1], strict=True):
            self._judge(verdict, trial, result)
            if verdict.failure is not None:
                return verdict
        self._judge_true(verdict, built, arguments, results[-1])
        if verdict.failure is None and small and all("refused" in check.note for check in verdict.checks[: len(small)]):
            self._check_fixed_shape(verdict, built, self.trials.fixed_shape(), arguments)
        return verdict

    def _judge(self, verdict: _Verdict, trial: Trial, result: Outcome | Failure) -> None:
        """A trial that ran in full."""
        if isinstance(result, Failure):
            # refusing a shape is honest; only the true shape must be served
            if trial.full and result.kind == "wrapper-error":
                note = f"refused: {result.message}"
                verdict.checks.append(Check(trial.case.kind, trial.case.shapes, 0.0, 0.0, note))
            else:
                verdict.failure = result
            return
        check, verdict.failure = compare(
            trial.case, result.outputs, self.task.precision, partial=result.profile.sampled, strict=trial.strict
        )
        verdict.checks.append(check)

    def _judge_true(self, verdict: _Verdict, built: Built, arguments: str, result: Outcome | Failure) -> None:
        if isinstance(result, Failure):
            verdict.failure = result
            return
        verdict.profile, true, task = result.profile, self.trials.true(), self.task
        if _comparable(true, result.profile):
            self._judge(verdict, true, result)
            return
        instructions = result.profile.total("lane_instructions")
        note = f"the true shape takes {instructions:.2g} lane instructions"
        known = not isinstance(true.case, SlicedCase) or true.case.is_known
        if known and instructions <= FULL_INSTRUCTIONS and task.output_bytes <= FULL_BYTES:
            trial = true
        else:
            share = FULL_INSTRUCTIONS / instructions
            largest = self.trials.largest(int(min(LARGEST_ELEMENTS, share * (task.minimal_bytes // 4))))
            if largest is None:
                text = f"sampled blocks say nothing here, and {note}: values not compared"
                verdict.checks.append(Check(true.case.kind, true.case.shapes, 0.0, 0.0, text))
                return
            trial = largest
        (whole,) = self.device.run(built, (trial.call(arguments),), max(self.request.timeout_s, FULL_TIMEOUT_S))
        self._judge(verdict, trial, whole)

    def _check_fixed_shape(self, verdict: _Verdict, built: Built, trials: Sequence[Trial], arguments: str) -> None:
        """A kernel that serves only the true shape is tried there with the other kinds of input."""
        calls = [trial.call(arguments, SAMPLE_BUDGET) for trial in trials]
        for trial, result in zip(trials, self.device.run(built, calls, self.request.timeout_s), strict=True):
            if isinstance(result, Failure) or _comparable(trial, result.profile):
                self._judge(verdict, trial, result)
            if verdict.failure is not None:
                return

    # --- how fast --------------------------------------------------------------------------

    def time(self, built: Built, arguments: str, profile: Profile, checks: tuple[Check, ...]) -> Evaluation:
        device, task = self.device, self.task
        measured = self._measured(built, arguments)
        if isinstance(measured, Failure):
            return self.evaluation(measured, checks=checks, profile=profile)
        timing, eager = device.time(profile), baseline(task, device.spec, device.name)
        if measured is not None:
            # the limit is the model's opinion, the time is not
            timing = replace(timing_of(measured, device.name), limit=timing.limit)
            eager = baseline_of(measured, device.name) or eager
        failure = speed_of_light_failure(task, timing, device.spec)
        proof = None if failure else make_proof(task, built, checks, self.request.seed, eager.note)
        return self.evaluation(
            failure, checks=checks, timing=timing, baseline=eager, profile=profile, proof=proof, measurement=measured
        )

    def _measured(self, built: Built, arguments: str) -> Measurement | Failure | None:
        """In turns with PyTorch, on a device that can measure."""
        if not isinstance(self.device, Measuring):
            return None
        true = self.trials.true()
        inputs = true.drawn.arguments[: sum(argument.origin == "input" for argument in self.task.arguments)]
        return measure(
            self.device, built, true.call(arguments), max(self.request.timeout_s, MEASURE_TIMEOUT_S),
            reference=Reference(self.task.source, self.task.precision), inputs=inputs, seed=self.request.seed,
        )  # fmt: skip


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
