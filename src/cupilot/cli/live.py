"""A search on the terminal: the state that events add up to, drawn several times a second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, RenderResult

from cupilot.cli.search_view import search_view
from cupilot.cli.terminal import Terminal
from cupilot.contracts import Step
from cupilot.evolution.loop import Progress
from cupilot.evolution.watched_run import WatchedRun, fold
from cupilot.numbers import duration, ratio


class LiveSearch:
    """Takes events from several threads and is drawn from another."""

    def __init__(self, state: WatchedRun, clock: Callable[[], float]) -> None:
        self._state, self._clock = state, clock
        self._lock = threading.Lock()

    def __call__(self, event: Progress | Step) -> None:
        with self._lock:
            self._state = fold(self._state, event, self._clock())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield search_view(self._state, self._clock(), options.max_width, options.ascii_only)


@contextmanager
def shown(live: LiveSearch, terminal: Terminal) -> Iterator[Callable[[Progress], None]]:
    """Gives who is to be told of progress: a line for every generation, below them a view where there can be one."""

    def tell(progress: Progress) -> None:
        live(progress)
        line = progress_line(progress)
        if line:
            terminal.line(line)

    with terminal.live(live):
        yield tell


def progress_line(progress: Progress) -> str:
    """What is kept of an event on a line of its own; nothing for most."""
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
