"""Evaluations of one run by kernel: no kernel is evaluated twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace

from cupilot.contracts import Executor
from cupilot.evolution.budget import Spending
from cupilot.records import Evaluation, EvaluationRequest, Individual, Kernel


class EvaluationCache:
    """Sends kernels to an executor and keeps the results; thread-safe.

    Filled from a store, it lets a run be repeated up to where it was killed.
    """

    def __init__(
        self,
        executor: Executor,
        request: Callable[[Kernel], EvaluationRequest],
        spending: Spending,
        known: Iterable[Individual] = (),
    ) -> None:
        self._executor = executor
        self._request = request
        self._spending = spending
        self._lock = threading.Lock()
        self._futures: dict[str, Future[Evaluation]] = {}
        for individual in known:
            if individual.evaluation.kernel:
                done: Future[Evaluation] = Future()
                done.set_result(individual.evaluation)
                self._futures[individual.kernel.digest] = done

    def __call__(self, kernel: Kernel, *, only_build: bool = False, wait_s: float | None = None) -> Evaluation:
        """The evaluation, or with ``only_build`` what the compiler says; `TimeoutError` after ``wait_s``."""
        key = f"build {kernel.digest}" if only_build else kernel.digest
        with self._lock:
            if key not in self._futures:
                request = replace(self._request(kernel), only_build=only_build)
                self._futures[key] = self._executor.submit(request)
                self._futures[key].add_done_callback(self._count)
            future = self._futures[key]
        return future.result(wait_s)

    def _count(self, future: Future[Evaluation]) -> None:
        """The time of an evaluation, whoever still waits for it."""
        if not future.cancelled() and future.exception() is None:
            self._spending.add_device_s(future.result().elapsed_s)

    def cancel(self) -> None:
        """Drop evaluations that have not started; those who wait for them get a `CancelledError`."""
        with self._lock:
            for future in self._futures.values():
                future.cancel()
