"""TEMPORARY, until `Evaluator` takes an `EvaluationRequest`: then this file goes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from cupilot.contracts import Watch
from cupilot.devices import open_device
from cupilot.evaluation.evaluator import Evaluator
from cupilot.records import Evaluation, EvaluationRequest, Task
from cupilot.tasks.load import task_from_source


def open_evaluator(
    *,
    cache: Path,
    sandbox: str = "auto",
    slots: int = 1,
    watch: Watch = lambda step: None,
    tasks: tuple[Task, ...] = (),
) -> Callable[[EvaluationRequest], Evaluation]:
    lock, loaded, evaluators = threading.Lock(), {(t.name, t.source, t.precision): t for t in tasks}, {}

    def evaluate(request: EvaluationRequest) -> Evaluation:
        key = (request.task.name, request.task.source, request.task.precision)
        with lock:
            if key not in loaded:
                loaded[key] = task_from_source(key[1], key[0], key[2], where=key[0])
            how = (request.device, request.seed, request.timeout_s)
            if how not in evaluators:
                device = open_device(request.device, cache, sandbox)
                evaluators[how] = Evaluator(device, request.seed, request.timeout_s, slots, watch)
        return evaluators[how](loaded[key], request.kernel)

    return evaluate
