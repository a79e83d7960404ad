"""The one evaluate(): build, judge (see `judge`) and time a kernel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace

from cupilot.contracts import DONE, REFERENCE, Built, Device, Measuring, Reference, Step, Watch
from cupilot.errors import CupilotError, DeviceError
from cupilot.evaluation.baseline import UNKNOWN, baseline, compiled_baseline
from cupilot.evaluation.binding import bound_arguments
from cupilot.evaluation.host_work import host_work_failure
from cupilot.evaluation.judge import Judge, Verdict
from cupilot.evaluation.measure import baseline_of, measure, timing_of
from cupilot.evaluation.proof import make_proof
from cupilot.evaluation.speed_of_light import speed_of_light_failure
from cupilot.evaluation.trials import Trials
from cupilot.records import Evaluation, EvaluationRequest, Failure, Measurement, Scope, Task, TaskSource
from cupilot.records.request import ONLY_BUILT
from cupilot.tasks import load_source
from cupilot.threads import DaemonThreads, wait_for

MEASURE_TIMEOUT_S = 300.0


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
        self._trials: tuple[tuple[TaskSource, int], Future[Trials]] | None = None
        self._preparing = DaemonThreads(1)
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
        if request.only_build:
            return self._build_only(request)
        with self._lock:
            device, preparing = self._device(request), self._references(request.task, request.seed)
        with self._building:
            self._watch(Step("building", who))
            built = device.build(kernel)
        wait_for(preparing)
        trials = preparing.result()
        task = trials.task
        job = _Job(request, device, task, trials)
        if isinstance(built, Failure):
            return job.evaluation(built)
        arguments = bound_arguments(built.kernel, task)
        if isinstance(arguments, Failure):
            return job.evaluation(arguments)
        self._watch(Step("waiting", who))
        with self._running:
            self._watch(Step("checking", who))
            verdict = Judge(device, built, arguments, job.trials, request.timeout_s)()
        failure = verdict.failure or unmet(verdict.scope, request.require)
        if failure is not None or verdict.profile is None:
            scope = None if verdict.failure else verdict.scope
            return job.evaluation(failure, checks=tuple(verdict.checks), scope=scope)
        self._watch(Step("timing", who))
        return job.time(built, arguments, verdict)

    def _build_only(self, request: EvaluationRequest) -> Evaluation:
        """What the compiler says; never a correct evaluation, for nothing is run."""
        with self._lock:
            device = self._device(request)
        with self._building:
            self._watch(Step("building", request.kernel.digest))
            built = device.build(request.kernel)
        about = request.kernel.digest, request.task.name, device.name
        if isinstance(built, Failure):
            return Evaluation(*about, built, precision=request.task.precision)
        not_run = Failure("build", ONLY_BUILT, "it compiles; it was not run")
        return Evaluation(*about, not_run, precision=request.task.precision, resources=built.resources)

    def _device(self, request: EvaluationRequest) -> Device:
        if request.device not in self._devices:
            self._devices[request.device] = self._open_device(request.device)
        device = self._devices[request.device]
        if request.gpu and request.gpu != device.spec.name:
            raise DeviceError(f"{request.device} is {device.spec.name} here, and the request is for {request.gpu}")
        return device

    def _references(self, source: TaskSource, seed: int) -> Future[Trials]:
        """The calls that every kernel of a task is judged by; made once and kept until another task comes.

        The task is loaded, and the first of them are made, while the kernel is built.
        """
        key = (source, seed)
        if self._trials is None or self._trials[0] != key or _has_failed(self._trials[1]):
            self._trials = None  # free the last task's references, which may be gigabytes, before new ones are made
            loading = self._preparing.submit(self._load, source, seed)
            self._trials = (key, loading)
            self._preparing.submit(self._make_first, loading)
        return self._trials[1]

    def _load(self, source: TaskSource, seed: int) -> Trials:
        task = self._tasks.get(source) or load_source(source)
        return Trials(task, seed, lambda what: self._watch(Step(REFERENCE, "", what)))

    def _make_first(self, loading: Future[Trials]) -> None:
        """What every kernel needs; whatever goes wrong is said when it is asked for."""
        with suppress(CupilotError):
            for make in loading.result().first():
                if self._trials is None or self._trials[1] is not loading:
                    return  # another task has come
                make()


def _has_failed(loading: Future[Trials]) -> bool:
    return loading.done() and loading.exception() is not None


@dataclass(frozen=True)
class _Job:
    """One request with everything that is needed to carry it out."""

    request: EvaluationRequest
    device: Device
    task: Task
    trials: Trials

    def evaluation(self, failure: Failure | None, **facts: object) -> Evaluation:
        spec, name = self.device.spec, self.device.name
        rivals = {"baseline": baseline(self.task, spec, name), "compiled": compiled_baseline(self.task, spec, name)}
        facts = rivals | facts
        return Evaluation(
            self.request.kernel.digest, self.task.name, self.device.name, failure, precision=self.task.precision,
            **facts,  # type: ignore[arg-type]
        )  # fmt: skip

    # --- how fast --------------------------------------------------------------------------

    def time(self, built: Built, arguments: str, verdict: Verdict) -> Evaluation:
        device, task, profile, checks = self.device, self.task, verdict.profile, tuple(verdict.checks)
        assert profile is not None
        measured = self._measured(built, arguments)
        if isinstance(measured, Failure):
            return self.evaluation(measured, checks=checks, profile=profile, scope=verdict.scope)
        timing, eager = device.time(profile), baseline(task, device.spec, device.name)
        if measured is not None:
            # the limit is the model's opinion, the time is not
            timing = replace(timing_of(measured, device.name), limit=timing.limit)
            eager = baseline_of(measured, device.name) or eager
        failure = speed_of_light_failure(task, timing, device.spec) or host_work_failure(task, profile, timing)
        facts = {"checks": checks, "baseline": eager, "profile": profile, "scope": verdict.scope}
        if failure is not None:  # which says the time, where that is what is wrong
            return self.evaluation(failure, **facts)
        proof = make_proof(task, built, checks, self.request.seed, eager.note if eager else UNKNOWN)
        return self.evaluation(None, **facts, timing=timing, proof=proof, measurement=measured)

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


def unmet(scope: Scope, requirements: tuple[str, ...]) -> Failure | None:
    """A kernel that is right for its task and not for what else was asked for."""
    difference = scope.unmet(requirements)
    if difference is None:
        return None
    message = f"right for the task, but not for {difference.what}: {difference.evidence}"
    return Failure("verify", "values" if difference in scope.values else "shapes", message)
