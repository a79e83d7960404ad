"""An executor that evaluates at once, and only after a request has been through JSON."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path
from pkgutil import resolve_name

from cupilot.contracts import ExecutorOptions
from cupilot.records import Evaluation, EvaluationRequest, from_plain, to_plain


class ToyExecutor:
    slots, busy = 1, False

    def __init__(self, options: ExecutorOptions) -> None:
        self._evaluate = resolve_name(options.evaluator)(
            cache=options.cache, sandbox=options.sandbox, slots=1, watch=options.watch, tasks=()
        )

    def submit(self, request: EvaluationRequest) -> Future[Evaluation]:
        text = json.dumps(to_plain(request))
        with Path("requests.jsonl").open("a") as log:
            log.write(text + "\n")
        future: Future[Evaluation] = Future()
        evaluation = self._evaluate(from_plain(EvaluationRequest, json.loads(text)))
        future.set_result(from_plain(Evaluation, json.loads(json.dumps(to_plain(evaluation)))))
        return future

    def close(self, *, cancel: bool = False) -> None:
        pass

    def abandon(self) -> bool:
        return False


open_executor = ToyExecutor
