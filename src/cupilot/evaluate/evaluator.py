"""The one evaluate(): build, run, verify, time, for everybody who wants to know about a kernel.

Correctness is decided on several calls: smaller and odd versions of the task run in full on inputs
of both signs, and the true shape runs on sampled blocks, whose results are compared as well when the
wrapper makes a single launch.  Time and profile are those of the true shape.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from cupilot.contracts import Call, Device, Outcome
from cupilot.errors import UserError
from cupilot.evaluate.baseline import baseline
from cupilot.evaluate.verify import compare
from cupilot.records import Check, Evaluation, Failure, Kernel, Profile, Task, Timing
from cupilot.tasks import Case, make_case, scaled_tasks

# Lane instructions per launch at the true shape; small launches run in full.
SAMPLE_BUDGET = 60_000_000
# Inputs, outputs and their float64 reference are held in memory.
LARGEST_BYTES = 3 << 30
# How far below its own bound a modelled time may lie before it is called impossible.
LIGHT_TOLERANCE = 0.97


@dataclass(frozen=True)
class _Trial:
    """One call that a candidate has to get right."""

    case: Case
    call: Call
    full: bool


class Evaluator:
    """Evaluates kernels of tasks on one device; keeps the reference cases between kernels.

    Safe to call from several threads; each candidate runs in a process of its own, and at most
    ``slots`` are built and as many run at a time.
    """

    def __init__(self, device: Device, seed: int = 0, timeout_s: float = 120.0, slots: int = 4) -> None:
        self._device = device
        self._seed = seed
        self._timeout_s = timeout_s
        self._trials: dict[str, tuple[_Trial, ...]] = {}
        self._lock = threading.Lock()
        # builds and runs queue separately, so that the next kernel is compiled while one runs
        self._building = threading.BoundedSemaphore(slots)
        self._running = threading.BoundedSemaphore(slots)

    def __call__(self, task: Task, kernel: Kernel) -> Evaluation:
        def verdict(failure: Failure | None = None, **facts: object) -> Evaluation:
            return Evaluation(
                kernel.digest, task.name, self._device.name, failure, precision=task.precision,
                baseline=baseline(task, self._device.spec, self._device.name), **facts,  # type: ignore[arg-type]
            )  # fmt: skip

        trials = self.trials(task)
        with self._building:
            built = self._device.build(kernel)
        if isinstance(built, Failure):
            return verdict(built)
        with self._running:
            results = self._device.run(built, [trial.call for trial in trials], self._timeout_s)
        checks, failure, profile = self._judge(trials, results, task.precision)
        if failure is not None or profile is None:
            return verdict(failure, checks=checks)
        timing = self._device.time(profile)
        failure = beyond_light(task, timing, self._device)
        return verdict(failure, checks=checks, timing=timing, profile=profile)

    def trials(self, task: Task) -> tuple[_Trial, ...]:
        """The calls every kernel of this task is judged by; made once."""
        with self._lock:
            if task.source not in self._trials:
                self._trials[task.source] = tuple(self._make_trials(task))
            return self._trials[task.source]

    def _make_trials(self, task: Task) -> list[_Trial]:
        if task.minimal_bytes > LARGEST_BYTES:
            raise UserError(
                f"the task {task.name} needs {task.minimal_bytes / 2**30:.1f} GB for its tensors; "
                f"this version evaluates up to {LARGEST_BYTES / 2**30:.0f} GB"
            )
        trials = []
        for number, small in enumerate(scaled_tasks(task)):
            for kind in ("normal", "wide") if number else ("own", "normal"):
                trials.append(self._trial(small, kind, full=True))
        # the true shape comes last: the cheap trials find most mistakes
        trials.append(self._trial(task, "normal", full=False))
        return trials

    def _trial(self, task: Task, kind: str, *, full: bool) -> _Trial:
        case = make_case(task, kind, self._seed)
        call = Call(f"{task.name}, {kind} inputs", case.arguments, task.outputs, None if full else SAMPLE_BUDGET)
        return _Trial(case, call, full)

    def _judge(
        self, trials: Sequence[_Trial], results: Sequence[Outcome | Failure], precision: str
    ) -> tuple[tuple[Check, ...], Failure | None, Profile | None]:
        checks: list[Check] = []
        profile = None
        for trial, result in zip(trials, results, strict=True):
            if isinstance(result, Failure):
                # saying "not this shape" is honest; only the true shape must be served
                if trial.full and result.kind == "wrapper-error":
                    checks.append(Check(trial.case.kind, trial.case.shapes, 0.0, 0.0, f"refused: {result.message}"))
                    continue
                return tuple(checks), result, None
            partial = result.profile.sampled
            if partial and len(result.profile.launches) > 1:
                note = "sampled blocks of several launches: values not compared"
                checks.append(Check(trial.case.kind, trial.case.shapes, 0.0, 0.0, note))
            else:
                check, failure = compare(trial.case, result.outputs, result.written, precision, partial=partial)
                checks.append(check)
                if failure is not None:
                    return tuple(checks), failure, None
            if not trial.full:
                profile = result.profile
        return tuple(checks), None, profile


def beyond_light(task: Task, timing: Timing, device: Device) -> Failure | None:
    """A time in which the task's bytes cannot even be moved is not believed."""
    least_s = task.minimal_bytes / device.spec.dram_bytes_per_s
    if timing.time_s >= LIGHT_TOLERANCE * least_s:
        return None
    return Failure(
        "time", "faster-than-light",
        f"{timing.time_s * 1e3:.4g} ms is impossible: moving {task.minimal_bytes} bytes at "
        f"{device.spec.dram_bytes_per_s / 1e9:.0f} GB/s takes {least_s * 1e3:.4g} ms",
    )  # fmt: skip
