"""Evaluations in threads of this process; each candidate runs in a confined process of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from cupilot.contracts import Executor, ExecutorOptions
from cupilot.records import Evaluation, EvaluationRequest
from cupilot.threads import DaemonThreads


def open_executor(options: ExecutorOptions) -> Executor:
    from cupilot.devices import open_device
    from cupilot.evaluation import Evaluator

    def device(name: str):  # type: ignore[no-untyped-def]
        return open_device(name, options.cache, options.sandbox)

    evaluate = Evaluator(device, slots=options.slots, watch=options.watch, tasks=options.tasks)
    return LocalExecutor(evaluate, options.slots)


class LocalExecutor:
    """Threads are enough: an evaluation spends its time in compilers and worker processes."""

    def __init__(self, evaluate: Callable[[EvaluationRequest], Evaluation], slots: int) -> None:
        self._evaluate = evaluate
        self._threads = DaemonThreads(slots)

    @property
    def slots(self) -> int:
        return self._threads.count

    def submit(self, request: EvaluationRequest) -> Future[Evaluation]:
        return self._threads.submit(self._evaluate, request)

    def close(self, *, cancel: bool = False) -> None:
        self._threads.close(cancel=cancel)

    def abandon(self) -> bool:
        return self._threads.abandon()

    @property
    def busy(self) -> bool:
        return self._threads.busy
