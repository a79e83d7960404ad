"""A run on the terminal: a line for every generation, and below them a live view where lines can be rewritten."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console, ConsoleOptions, RenderResult

from cupilot.cli.search_view import search_view
from cupilot.cli.terminal import Terminal
from cupilot.contracts import Step
from cupilot.evolution.progress import Progress
from cupilot.evolution.run_state import RunState, fold
from cupilot.numbers import duration, ratio
from cupilot.runs import Observer


class TerminalObserver(Observer):
    """Folds the events of a run into its state, which the terminal draws several times a second."""

    def __init__(self, terminal: Terminal, clock: Callable[[], float] = time.monotonic) -> None:
        self._terminal, self._clock = terminal, clock
        self._state: RunState | None = None
        self._lock = threading.Lock()

    def __call__(self, event: Progress | Step) -> None:
        with self._lock:
            if self._state is not None:
                self._state = fold(self._state, event, self._clock())
        line = progress_line(event) if isinstance(event, Progress) else ""
        if line:
            self._terminal.line(line)

    def notify(self, sentence: str) -> None:
        self._terminal.line(sentence)

    @contextmanager
    def preparing(self, what: str) -> Iterator[Callable[[int, int], None]]:
        self._terminal.line(what)
        with self._terminal.bar("files") as tell:
            yield lambda done, of: tell(done, of, "files")

    def searching(self, state: RunState) -> AbstractContextManager[object]:
        self._state = state
        return self._terminal.live(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        assert self._state is not None, "drawn only while a search runs"
        yield search_view(self._state, self._clock(), options.max_width, options.ascii_only)


def progress_line(progress: Progress) -> str:
    """The line that stays of an event; nothing for most."""
    result, info = progress.result, progress.result.info
    timing = result.best.evaluation.timing
    assert timing is not None, "only timed individuals are the best"
    text = f"{duration(timing.time_s)} {timing.source}, {ratio(result.best.evaluation.speedup) or 'no'} speed-up"
    if progress.kind == "plain":
        return f"plain kernel: {text}"
    if progress.kind != "generation":
        return ""
    last = info.epochs * (info.generations + 1) - 1
    left = f", left: {progress.left}" if progress.left else ""
    counts = f"{result.evaluations} evaluated, {result.failures} failed"
    return f"generation {progress.generation} of {last}: best {text}, {counts}{left}"
