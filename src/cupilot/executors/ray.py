"""Evaluations on a Ray cluster: that of ``--scheduler ADDRESS``, or processes of this machine.

A node offers virtual slots as the resource ``virtual`` (``ray start --resources '{"virtual": 4}'``) and GPUs as Ray
does.  Every node has cupilot in the same version, and builds are cached in the same folder as here.  Ray evaluates a
request again when its worker dies, up to three times.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import cache

from cupilot.contracts import ExecutorOptions
from cupilot.errors import MachineError, MissingExtra
from cupilot.executors._cluster import ClusterExecutor, limit_s
from cupilot.executors._offer import CUDA, VIRTUAL, Offer, difference, resource_of
from cupilot.executors._worker import WorkerEvaluator
from cupilot.records import Evaluation, EvaluationRequest, from_plain, to_plain

try:
    import ray
except ModuleNotFoundError as missing:
    raise MissingExtra("--executor ray needs the package ray: pip install 'cupilot[ray]'") from missing

LOOK_S = 2.0
RETRIES = 3


def open_executor(options: ExecutorOptions) -> ClusterExecutor:
    return ClusterExecutor(RayCluster(options), options)


class RayCluster:
    """A client of Ray; a program that uses Ray itself keeps its connection."""

    def __init__(self, options: ExecutorOptions) -> None:
        self._offer = Offer(evaluator=options.evaluator, cache=options.cache, sandbox=options.sandbox)
        self._opened = not ray.is_initialized()
        if self._opened:
            here = {"num_cpus": options.slots, "resources": {VIRTUAL: options.slots}, "_node_ip_address": "127.0.0.1"}
            where = {"address": options.scheduler} if options.scheduler else {**here, "include_dashboard": False}
            try:
                ray.init(**where, log_to_driver=False)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise MachineError(f"Ray cannot be reached or started: {error}") from error
        self._evaluate = ray.remote(evaluate)
        self._sent: dict[Future[str], ray.ObjectRef] = {}
        self._changed: Callable[[], None] = lambda: None
        self._slots: Counter[str] = Counter()
        self._closed = threading.Event()
        self._look()
        threading.Thread(target=self._keep_looking, name="cupilot-ray", daemon=True).start()

    @property
    def address(self) -> str:
        return str(ray.get_runtime_context().gcs_address)

    def slots(self, resource: str = "") -> int:
        return self._slots[resource.partition(" ")[0]]

    def observe(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def start(self, request: EvaluationRequest) -> Future[Evaluation]:
        kind = resource_of(request.device, "")
        needs = {"num_gpus": 1} if kind == CUDA else {"resources": {kind: 1}}
        # Ray shows a worker its GPU alone
        offer = replace(self._offer, device=request.device, visible="one" if kind == CUDA else "")
        task = self._evaluate.options(num_cpus=0, max_retries=RETRIES, **needs)
        reference = task.remote(json.dumps(to_plain(request)), limit_s(request), offer, self._offer.announcement)
        sent, told = reference.future(), Future[Evaluation]()
        self._sent[sent] = reference
        sent.add_done_callback(lambda sent: self._tell(sent, told))
        return told

    def _tell(self, sent: Future[str], told: Future[Evaluation]) -> None:
        self._sent.pop(sent, None)
        if sent.cancelled():
            told.cancel()
        elif (error := sent.exception()) is None:
            told.set_result(from_plain(Evaluation, json.loads(sent.result())))
        elif isinstance(error, ray.exceptions.RayTaskError):
            told.set_exception(error.cause)
        else:
            told.set_exception(MachineError(f"Ray gave an evaluation up after {RETRIES} retries: {error}"))

    def close(self) -> None:
        self._closed.set()
        if self._opened:
            ray.shutdown()

    def kill(self) -> None:
        for sent, reference in list(self._sent.items()):
            ray.cancel(reference, force=True)
            sent.cancel()
        self.close()

    def _look(self) -> None:
        found = ray.cluster_resources()
        slots = Counter({VIRTUAL: int(found.get(VIRTUAL, 0)), CUDA: int(found.get("GPU", 0))})
        slots[""] = slots.total()
        self._slots = slots
        self._changed()

    def _keep_looking(self) -> None:
        while not self._closed.wait(LOOK_S):
            self._look()


@cache
def _evaluator(offer: Offer) -> WorkerEvaluator:
    return WorkerEvaluator(offer)


def evaluate(text: str, limit_s: float, offer: Offer, announcement: dict[str, str]) -> str:
    """Evaluate a request on this worker, if its versions are those of whoever asks."""
    if problem := difference(offer.announcement, {**announcement, "resource": ""}):
        raise MachineError(f"the worker on {ray.util.get_node_ip_address()} cannot be used: it has {problem}")
    return _evaluator(offer)(text, limit_s)
