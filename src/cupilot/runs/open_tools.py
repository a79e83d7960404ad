"""Opens the tools of a run: for each dialogue new ones, over the run's evaluations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cupilot.contracts import Brief, Tools
from cupilot.evolution.development import OpenTools, no_tools
from cupilot.evolution.evaluation_cache import EvaluationCache
from cupilot.evolution.store import FILE
from cupilot.records import Kernel, RunInfo, Task
from cupilot.records.kernel import CUDA
from cupilot.strategies import Deck

if TYPE_CHECKING:
    from cupilot.runs.session import Session


@contextmanager
def open_tools(
    session: Session, task: Task, info: RunInfo, deck: Callable[[], Deck], folder: Path, replay: Path | None = None
) -> Iterator[Callable[[EvaluationCache], OpenTools]]:
    """A factory of factories: the run's evaluations are made with the loop, the tools with each dialogue.

    What tools answer is kept in the run's file; a run that is replayed answers from the one that it repeats.
    """
    if info.dialogue.turns <= 1:
        yield lambda evaluate: no_tools
        return
    from cupilot.runs.kernel_tools import KernelTools
    from cupilot.runs.tool_log import ToolLog
    from cupilot.runs.tool_texts import ToolTexts

    log = ToolLog(folder / FILE, None if replay is None else replay / FILE)
    texts = ToolTexts(task, session.device, deck())
    about = (task.source, info.precision, info.device, info.gpu, str(info.seed), *info.require, str(info.timeout_s))

    def of_run(evaluate: EvaluationCache) -> OpenTools:
        def of_dialogue(brief: Brief, kernel: Kernel | None) -> Tools | None:
            parent = brief.parents[0] if brief.parents else None
            return KernelTools(
                evaluate, texts, info.dialogue, kernel, parent, kernel.language if kernel else CUDA, log, about,
                notice=session.observer.notify,
            )  # fmt: skip

        return of_dialogue

    try:
        yield of_run
    finally:
        log.close()
