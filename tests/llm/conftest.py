"""The fake server, and models that ask it without ever sleeping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from fakeserver import Behaviour, FakeServer

from cupilot.contracts import Model
from cupilot.llm import open_model


@pytest.fixture(autouse=True)
def directly(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's own servers are not behind its proxy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def serve() -> Iterator[Callable[..., FakeServer]]:
    """Start servers that behave as told; all are stopped at the end."""
    servers: list[FakeServer] = []

    def start(*behaviours: Behaviour) -> FakeServer:
        servers.append(FakeServer(behaviours))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def waits_s() -> list[float]:
    """The waits that a model of `connect` would have slept."""
    return []


@pytest.fixture
def connect(waits_s: list[float]) -> Callable[..., Model]:
    """Open a model on a server, by default as an OpenAI-compatible one without a key."""
    pytest.importorskip("openai", reason="needs cupilot[llm]")

    def opened(server: FakeServer, name: str = "local/m", **options: Any) -> Model:
        settings: dict[str, Any] = {"keys": {}, "timeout_s": 30.0, "retries": 3, "rng": Random(1)}
        return open_model(name, base_url=server.url, sleep=waits_s.append, **(settings | options))

    return opened
