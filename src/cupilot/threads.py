"""Daemon threads that work through a queue, and waiting that Ctrl-C can interrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
Work = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]
LOOK_S = 0.5


def wait_for(future: Future[Any]) -> None:
    """Wait until the future is done: with a result, an exception or cancelled.

    Python handles a signal that arrives just before a wait only when the wait ends; so no single wait is long.
    """
    while not future.done():
        with suppress(TimeoutError, CancelledError):
            future.exception(LOOK_S)


class DaemonThreads:
    """A fixed number of threads; work starts in the order it was submitted.

    The threads are daemons, so the program can end while they work.  The standard library's pool would make it wait.
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"at least one thread is needed, not {count}")
        self._count = count
        self._waiting: SimpleQueue[Work | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Queue one call; the future can be cancelled until the call starts."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the threads are closed")
            self._waiting.put((future, function, arguments))
            if len(self._threads) < self._count:
                thread = threading.Thread(target=self._work, name=f"cupilot-{len(self._threads)}", daemon=True)
                thread.start()  # first: an interrupt in between must not leave one that cannot be waited for
                self._threads.append(thread)
        return future

    def close(self, *, cancel: bool = False) -> None:
        """Wait for what was submitted; with ``cancel``, drop what has not started and wait for the rest."""
        self._end(cancel)
        for thread in self._threads:
            while thread.is_alive():
                thread.join(LOOK_S)

    def abandon(self) -> bool:
        """Drop what has not started and do not wait for the rest; returns whether anything is still running."""
        self._end(cancel=True)
        for thread in self._threads:
            thread.join(0.05)  # idle threads end now
        return self.busy

    @property
    def busy(self) -> bool:
        """After `abandon`: whether anything is still running."""
        return any(thread.is_alive() for thread in self._threads)

    def _end(self, cancel: bool) -> None:
        with self._lock:
            self._closed = True
        if cancel:
            with suppress(Empty):
                while (work := self._waiting.get_nowait()) is not None:
                    work[0].cancel()
        for _ in self._threads:
            self._waiting.put(None)

    def _work(self) -> None:
        while (work := self._waiting.get()) is not None:
            future, function, arguments = work
            if future.set_running_or_notify_cancel():
                try:
                    result = function(*arguments)
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del work, future, function, arguments  # an idle thread keeps nothing alive
