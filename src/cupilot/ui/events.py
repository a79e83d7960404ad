"""Server-sent events: the present state at once, and again whenever it has changed.

There are no event numbers: a browser that comes back gets the present state, which is all it needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

RETRY_MS = 2000
REST_S = 1.0
"""How often the stores are looked at."""
BEAT = 15
"""After so many looks without news a line is sent, which finds out whether anybody is there."""
MEDIA_TYPE = "text/event-stream"


@dataclass(frozen=True)
class Watch:
    """How to wait, and when to end."""

    rest: Callable[[float], Awaitable[None]]
    is_ending: Callable[[], bool] = lambda: False
    rest_s: float = REST_S


def event(name: str, data: str) -> str:
    """One event; the text may have any line breaks."""
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return f"event: {name}\n{lines}\n"


async def changes(
    name: str, look: Callable[[], Awaitable[T]], show: Callable[[T], str], watch: Watch
) -> AsyncIterator[str]:
    """The stream: what ``look`` finds, as ``show`` has it, each time that it is not what it was."""
    yield f"retry: {RETRY_MS}\n\n"
    last: T | None = None
    silent = 0
    while not watch.is_ending():
        found = await look()
        if found != last:
            last, silent = found, 0
            yield event(name, show(found))
        else:
            silent += 1
            if silent % BEAT == 0:
                yield ": still here\n\n"
        await watch.rest(watch.rest_s)
