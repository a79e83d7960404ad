"""Evaluations by kernel: nothing is evaluated twice, not even by two threads at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from cupilot.evolution.budget import Spending
from cupilot.records import Evaluation, Individual, Kernel, Task

Evaluator = Callable[[Task, Kernel], Evaluation]


class Memory:
    """An evaluator that remembers; filled from a store, it lets a run be repeated up to where it was killed."""

    def __init__(self, evaluator: Evaluator, spending: Spending, known: Iterable[Individual] = ()) -> None:
        self._evaluator = evaluator
        self._spending = spending
        self._known = {one.kernel.digest: one.evaluation for one in known if one.evaluation.kernel}
        self._busy: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def __call__(self, task: Task, kernel: Kernel) -> Evaluation:
        with self._lock:
            busy = self._busy.setdefault(kernel.digest, threading.Lock())
        with busy:
            if kernel.digest not in self._known:
                began_s = time.monotonic()
                evaluation = self._evaluator(task, kernel)
                self._spending.add_device_s(time.monotonic() - began_s)
                self._known[kernel.digest] = evaluation
            return self._known[kernel.digest]
