"""Where evaluations run: the one place with concurrency."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class LocalExecutor:
    """A fixed number of slots on this machine.

    Threads are enough: an evaluation spends its time in compiler and worker processes of its own.
    Functions submitted here must therefore be safe to call from several threads.
    """

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"an executor needs at least one slot, not {slots}")
        self._slots = slots
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="cupilot")

    @property
    def slots(self) -> int:
        return self._slots

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        return self._threads.submit(function, *arguments)

    def close(self, *, cancel: bool = False) -> None:
        self._threads.shutdown(wait=True, cancel_futures=cancel)
