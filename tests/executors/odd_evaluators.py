"""Evaluators that do what none should; workers import them by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from cupilot.records import Evaluation, EvaluationRequest, Failure
from cupilot.testing.executor import scripted

DYING, BRANCHING, SEEING = (f"odd_evaluators:open_{kind}" for kind in ("dying", "branching", "seeing"))
Evaluate = Callable[[EvaluationRequest], Evaluation]


def open_dying(**options: Any) -> Evaluate:
    """Kills its worker."""

    def evaluate(request: EvaluationRequest) -> Evaluation:
        os.kill(os.getpid(), signal.SIGKILL)
        return scripted(request)

    return evaluate


def open_branching(**options: Any) -> Evaluate:
    """Starts a process that does not end by itself, as a compiler is started; and holds, as scripted."""

    def evaluate(request: EvaluationRequest) -> Evaluation:
        command = [sys.executable, "-c", "import signal, sys; print(flush=True); signal.pause()"]
        child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        with open(request.task.name, "w") as told:
            told.write(f"{child.pid}\n")
        return scripted(request)

    return evaluate


def open_seeing(**options: Any) -> Evaluate:
    """Tells what it sees of the GPU."""

    def evaluate(request: EvaluationRequest) -> Evaluation:
        seen = Failure("run", "seen", f"{request.device} of {os.environ.get('CUDA_VISIBLE_DEVICES')}")
        return Evaluation(request.kernel.digest, request.task.name, request.device, seen)

    return evaluate
