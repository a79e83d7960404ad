"""Evaluations of one run by kernel: no kernel is evaluated twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future

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

    def __call__(self, kernel: Kernel) -> Evaluation:
        with self._lock:
            is_new = kernel.digest not in self._futures
            if is_new:
                self._futures[kernel.digest] = self._executor.submit(self._request(kernel))
            future = self._futures[kernel.digest]
        evaluation = future.result()
        if is_new:
            self._spending.add_device_s(evaluation.elapsed_s)
        return evaluation

    def cancel(self) -> None:
        """Drop evaluations that have not started; those who wait for them get a `CancelledError`."""
        with self._lock:
            for future in self._futures.values():
                future.cancel()
