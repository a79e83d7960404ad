"""The evaluator of a worker process, whichever cluster it belongs to."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any

from cupilot.executors._offer import Offer
from cupilot.records import Evaluation, EvaluationRequest, from_plain, to_plain


class WorkerEvaluator:
    """Takes requests and gives evaluations as JSON, one at a time; opens what it needs with the first."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._evaluate: Callable[[EvaluationRequest], Evaluation] | None = None

    def __call__(self, text: str, limit_s: float) -> str:
        """A process that takes longer than the limit is hung, and ends itself."""
        request = from_plain(EvaluationRequest, json.loads(text))
        watchdog = threading.Timer(limit_s, os.kill, (os.getpid(), signal.SIGKILL))
        watchdog.daemon = True
        watchdog.start()
        try:
            return json.dumps(to_plain(self._evaluation(request)))
        finally:
            watchdog.cancel()

    def _evaluation(self, request: EvaluationRequest) -> Evaluation:
        if self._evaluate is None:
            self._evaluate = resolve_name(self._offer.evaluator)(
                cache=self._offer.cache, sandbox=self._offer.sandbox, slots=1, watch=lambda step: None, tasks=()
            )
        if not self._offer.visible:
            return self._evaluate(request)
        return renamed(self._evaluate(replace(request, device="cuda:0")), "cuda:0", request.device)


def renamed(evaluation: Evaluation, old: str, new: str) -> Evaluation:
    """The evaluation with another name of its device, wherever that stands."""

    def rename(value: Any) -> Any:
        if isinstance(value, list):
            return [rename(item) for item in value]
        if isinstance(value, dict):
            return {key: new if (key, item) == ("device", old) else rename(item) for key, item in value.items()}
        return value

    return from_plain(Evaluation, rename(to_plain(evaluation)))
