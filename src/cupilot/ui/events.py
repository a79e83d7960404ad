"""Server-sent events: the current state at once, and again whenever it has changed.

Events have no ids: a browser that reconnects gets the current state, which is all it needs.  The format is written here
rather than with sse-starlette, because that package would be one more dependency for a few lines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

RETRY_MS = 2000
POLL_INTERVAL_S = 1.0
"""The time between two reads of the stores."""
KEEPALIVE_POLLS = 15
"""After so many polls without a change a comment is sent, which detects closed connections."""
MEDIA_TYPE = "text/event-stream"


@dataclass(frozen=True)
class Polling:
    """How to wait between polls, and when to end the stream."""

    sleep: Callable[[float], Awaitable[None]]
    is_stopping: Callable[[], bool] = lambda: False
    interval_s: float = POLL_INTERVAL_S


def format_event(name: str, data: str) -> str:
    """One event; the data may contain line breaks."""
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return f"event: {name}\n{lines}\n"


async def event_stream(
    name: str, read: Callable[[], Awaitable[T]], render: Callable[[T], str], polling: Polling
) -> AsyncIterator[str]:
    """Events with the rendered state, one each time that ``read`` returns a new one."""
    yield f"retry: {RETRY_MS}\n\n"
    last: T | None = None
    unchanged = 0
    while not polling.is_stopping():
        state = await read()
        if state != last:
            last, unchanged = state, 0
            yield format_event(name, render(state))
        else:
            unchanged += 1
            if unchanged % KEEPALIVE_POLLS == 0:
                yield ": still here\n\n"
        await polling.sleep(polling.interval_s)
