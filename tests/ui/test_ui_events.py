"""Server-sent events: the present state, then the news; nothing is sent for nothing."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ui_site import Site, begin_run, individual, make_run, site

from cupilot.ui.events import KEEPALIVE_POLLS, RETRY_MS, Polling, event_stream, format_event


def stream(found: list[object], rests: list[float] | None = None) -> list[str]:
    """What is sent while these things are found one after the other."""
    left = iter(found)
    remaining = [len(found)]

    async def read() -> object:
        remaining[0] -= 1
        return next(left)

    async def sleep(time_s: float) -> None:
        if rests is not None:
            rests.append(time_s)

    async def collect() -> list[str]:
        polling = Polling(sleep, lambda: remaining[0] == 0, 0.25)
        return [part async for part in event_stream("news", read, str, polling)]

    return asyncio.run(collect())


def test_an_event_has_a_name_and_its_lines() -> None:
    assert format_event("news", "one\ntwo\r\nthree") == "event: news\ndata: one\ndata: two\ndata: three\n\n"
    assert format_event("news", "") == "event: news\ndata: \n\n"


def test_only_changes_are_sent() -> None:
    rests: list[float] = []
    sent = stream(["a", "a", "b", "b", "a"], rests)
    assert sent == [
        f"retry: {RETRY_MS}\n\n",
        format_event("news", "a"),
        format_event("news", "b"),
        format_event("news", "a"),
    ]
    assert rests == [0.25] * 5


def test_silence_is_broken_now_and_then() -> None:
    sent = stream(["a"] * (2 * KEEPALIVE_POLLS + 1))
    assert sent[2:] == [": still here\n\n"] * 2


def test_it_ends_when_the_server_does() -> None:
    assert stream([]) == [f"retry: {RETRY_MS}\n\n"]


def events(found: Site, path: str) -> Iterator[dict[str, str]]:
    """The data of the events of a stream, as they come."""
    connection = http.client.HTTPConnection("127.0.0.1", found.server.port, timeout=20)
    connection.request("GET", path)
    response = connection.getresponse()
    assert response.getheader("content-type", "").startswith("text/event-stream")
    try:
        while line := response.readline():
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))
    finally:
        response.close()
        connection.close()


def test_a_new_individual_is_told(tmp_path: Path) -> None:
    with site(tmp_path) as found, closing(begin_run(tmp_path / "run", (8e-6,))) as store:
        told = events(found, "/run-events/run")
        first = next(told)
        assert (first["count"], first["running"]) == (1, True)
        assert "8.00\u202fµs" in first["html"]
        store.add(individual(1, 4e-6))
        second = next(told)
        assert second["count"] == 2
        assert "4.00\u202fµs" in second["html"]
        assert second["say"] == "running, best 4.00\u202fµs, modelled"
        told.close()  # type: ignore[attr-defined]


def test_the_list_is_told_of_new_runs_and_of_their_end(tmp_path: Path) -> None:
    make_run(tmp_path / "old")
    with site(tmp_path) as found:
        told = events(found, "/events")
        assert "old" in next(told)["html"]
        store = begin_run(tmp_path / "new")
        seen = next(told)["html"]
        while "running" not in seen:  # the folder may be seen before the lock
            seen = next(told)["html"]
        store.close()
        while "running" in seen:
            seen = next(told)["html"]
        assert "stopped" in seen
        told.close()  # type: ignore[attr-defined]


def test_streams_do_not_keep_the_server_from_ending(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    with site(tmp_path) as found:
        told = events(found, "/events")
        next(told)
    assert list(told) == []
