"""What all clusters share: the queue in front of the workers.

A request is sent only when a worker has a slot for it.  So requests start in the order they were submitted, whatever
order the cluster prefers, and they can be cancelled until then.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Protocol

from cupilot.contracts import DONE, ExecutorOptions, Step
from cupilot.executors._offer import resource_of
from cupilot.records import Evaluation, EvaluationRequest
from cupilot.threads import wait_for

START_S, RUNS = 900.0, 8
"""Loading a task and making its references may take so long; an evaluation runs its candidate a few times."""


def limit_s(request: EvaluationRequest) -> float:
    """How long an evaluation may take before its worker counts as hung; much longer than its own limits add up to."""
    return START_S + RUNS * request.timeout_s


class Cluster(Protocol):
    """The workers, wherever they are."""

    @property
    def address(self) -> str: ...

    def slots(self, resource: str = "") -> int:
        """How many slots are there now, busy or not; without a name, of all kinds."""

    def start(self, request: EvaluationRequest) -> Future[Evaluation]:
        """Send a request to a worker; when that dies, to another."""

    def observe(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever slots may have come or gone."""

    def close(self) -> None:
        """Leave; nothing is running."""

    def kill(self) -> None:
        """Leave at once, whatever is running."""


class ClusterExecutor:
    """The executor of a cluster."""

    def __init__(self, cluster: Cluster, options: ExecutorOptions) -> None:
        self._cluster, self._watch, self._notify = cluster, options.watch, options.notify
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[EvaluationRequest, Future[Evaluation]]]] = {}
        self._running: Counter[str] = Counter()
        self._missing: set[str] = set()
        self._unfinished: set[Future[Evaluation]] = set()
        self._closed = False
        cluster.observe(self._advance)

    @property
    def slots(self) -> int:
        return self._cluster.slots()

    def submit(self, request: EvaluationRequest) -> Future[Evaluation]:
        future: Future[Evaluation] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the executor is closed")
            resource = resource_of(request.device, request.gpu)
            self._waiting.setdefault(resource, deque()).append((request, future))
            self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        self._watch(Step("waiting", request.kernel.digest))
        self._advance()
        return future

    def close(self, *, cancel: bool = False) -> None:
        self._end(cancel)
        for future in list(self._unfinished):
            wait_for(future)
        self._cluster.close()

    def abandon(self) -> bool:
        self._end(cancel=True)
        self._cluster.kill()
        return False

    @property
    def busy(self) -> bool:
        return False

    def _end(self, cancel: bool) -> None:
        with self._lock:
            self._closed = True
            dropped = [future for queue in self._waiting.values() for _, future in queue] if cancel else []
        for future in dropped:
            future.cancel()

    def _advance(self) -> None:
        """Start what there are slots for."""
        with self._lock:
            starting, sentences = self._take(), self._news()
        for sentence in sentences:
            self._notify(sentence)
        for request, future in starting:
            self._watch(Step("checking", request.kernel.digest, "on a worker"))
            self._cluster.start(request).add_done_callback(partial(self._finish, request, future))

    def _take(self) -> list[tuple[EvaluationRequest, Future[Evaluation]]]:
        taken = []
        for resource, queue in self._waiting.items():
            slots = self._cluster.slots(resource)
            while queue and self._running[resource] < slots:
                request, future = queue.popleft()
                if future.set_running_or_notify_cancel():
                    self._running[resource] += 1
                    taken.append((request, future))
        return taken

    def _news(self) -> list[str]:
        """Sentences about the workers that have gone or come back since the last time."""
        sentences = []
        for resource, queue in self._waiting.items():
            wanted = self._running[resource] or any(not future.done() for _, future in queue)
            missing = bool(wanted) and not self._closed and not self._cluster.slots(resource)
            if missing and resource not in self._missing:
                sentences.append(f"no {resource} worker is connected to {self._cluster.address}; waiting")
                self._missing.add(resource)
            elif not missing and resource in self._missing:
                if wanted:
                    sentences.append(f"a {resource} worker is connected to {self._cluster.address}; continuing")
                self._missing.discard(resource)
        return sentences

    def _finish(self, request: EvaluationRequest, future: Future[Evaluation], sent: Future[Evaluation]) -> None:
        with self._lock:
            self._running[resource_of(request.device, request.gpu)] -= 1
        self._advance()  # before the result is told, so that no slot waits for whoever takes it
        self._watch(Step(DONE, request.kernel.digest))
        if sent.cancelled():
            future.set_exception(CancelledError("the executor was abandoned"))
        elif (error := sent.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(sent.result())
