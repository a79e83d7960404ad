"""Where evaluations run: the one place with concurrency."""

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
    """Until it is done, whatever became of it.

    A signal that comes just before Python begins to wait is answered only when the wait ends; so no wait is long.
    """
    while not future.done():
        with suppress(TimeoutError, CancelledError):
            future.exception(LOOK_S)


class LocalExecutor:
    """A fixed number of slots on this machine; what is submitted first is begun first.

    Threads are enough: an evaluation spends its time in compiler and worker processes of its own.
    Functions submitted here must therefore be safe to call from several threads.  The threads are daemons,
    unlike those of the standard library's pool, whose work has to be waited for when the program ends.
    """

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"an executor needs at least one slot, not {slots}")
        self._slots = slots
        self._waiting: SimpleQueue[Work | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False

    @property
    def slots(self) -> int:
        return self._slots

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        if self._closed:
            raise RuntimeError("the executor is closed")
        future: Future[T] = Future()
        self._waiting.put((future, function, arguments))
        if len(self._threads) < self._slots:
            thread = threading.Thread(target=self._work, name=f"cupilot-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def close(self, *, cancel: bool = False) -> None:
        self._end(cancel)
        for thread in self._threads:
            thread.join()

    def abandon(self) -> bool:
        """Drop what has not started and do not wait for the rest; whether there was any."""
        self._end(cancel=True)
        for thread in self._threads:
            thread.join(0.05)  # those that have nothing to do end now
        return self.busy

    @property
    def busy(self) -> bool:
        """After the end: whether something is still running."""
        return any(thread.is_alive() for thread in self._threads)

    def _end(self, cancel: bool) -> None:
        self._closed = True
        if cancel:
            try:
                while (work := self._waiting.get_nowait()) is not None:
                    work[0].cancel()
            except Empty:
                pass
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
            del work, future, function, arguments  # nothing is kept alive while waiting
