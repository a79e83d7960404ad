"""Evaluations in threads of this process.

Threads are enough: an evaluation spends its time in compilers and candidate processes.
"""

from __future__ import annotations

from concurrent.futures import Future
from pkgutil import resolve_name

from cupilot.contracts import ExecutorOptions
from cupilot.records import Evaluation, EvaluationRequest
from cupilot.threads import DaemonThreads


def open_executor(options: ExecutorOptions) -> LocalExecutor:
    return LocalExecutor(options)


class LocalExecutor:
    """A fixed number of slots on this machine; the scheduler's address is not used."""

    def __init__(self, options: ExecutorOptions) -> None:
        self._threads = DaemonThreads(options.slots)
        self._slots = options.slots
        self._evaluate = resolve_name(options.evaluator)(
            cache=options.cache,
            sandbox=options.sandbox,
            slots=options.slots,
            watch=options.watch,
            tasks=options.tasks,
        )

    @property
    def slots(self) -> int:
        return self._slots

    def submit(self, request: EvaluationRequest) -> Future[Evaluation]:
        return self._threads.submit(self._evaluate, request)

    def close(self, *, cancel: bool = False) -> None:
        self._threads.close(cancel=cancel)

    def abandon(self) -> bool:
        return self._threads.abandon()

    @property
    def busy(self) -> bool:
        return self._threads.busy
