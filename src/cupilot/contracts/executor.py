"""Where evaluations run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cupilot.contracts.steps import Watch
from cupilot.records import (
    Evaluation,
    EvaluationRequest,
    Task,
)


class Executor(Protocol):
    """Where evaluations run: threads of this process, or workers on many machines.

    Thread-safe: any thread may submit, cancel or wait.  Requests and results are plain records, so an executor may
    send them to another process.  Whoever opened an executor closes it, once.  An executor keeps nothing: a result
    exists when its future is done, and storing it is the caller's business.
    """

    @property
    def slots(self) -> int:
        """Evaluations that can run at the same time now; 0 while no worker is there."""

    def submit(self, request: EvaluationRequest) -> Future[Evaluation]:
        """Queue one evaluation; requests start in the order they were submitted.

        A candidate that fails is an `Evaluation` with a failure.  The future raises a `CupilotError` when the request
        itself cannot be carried out.  It can be cancelled until it starts.  When a worker dies, its requests are
        evaluated again elsewhere; a future is completed once.
        """

    def close(self, *, cancel: bool = False) -> None:
        """Wait for what was submitted; with ``cancel``, drop what has not started and wait for the rest."""

    def abandon(self) -> bool:
        """Drop what has not started and do not wait for the rest; returns whether anything is still running."""

    @property
    def busy(self) -> bool:
        """After `abandon`: whether anything is still running in this process."""


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """What an executor is opened with; each kind of executor takes what concerns it.

    ``slots`` is how many evaluations run at a time on this machine.  ``scheduler`` is the address of a cluster; empty
    starts one here.  Builds are cached below ``cache``, and candidates are confined by ``sandbox``.  ``tasks`` were
    loaded already and need not be loaded again in this process.  ``watch`` sees the steps of evaluations that run in
    this process; ``notify`` gets a sentence when the user should know something, such as that no worker is left.

    ``evaluator`` is ``module:function`` of what opens the evaluator where evaluations run: it takes the keywords
    ``cache``, ``sandbox``, ``slots``, ``watch`` and ``tasks`` and returns a function of one request.  It is named
    rather than passed, because workers are other processes.
    """

    slots: int
    cache: Path
    sandbox: str = "auto"
    scheduler: str = ""
    tasks: tuple[Task, ...] = ()
    watch: Watch = lambda step: None
    notify: Callable[[str], None] = lambda sentence: None
    evaluator: str = "cupilot.evaluation:open_evaluator"
