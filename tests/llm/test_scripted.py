from __future__ import annotations

import pytest

from cupilot.contracts import Message, Request
from cupilot.errors import ModelError
from cupilot.llm import Scripted


def ask(text: str) -> Request:
    return Request((Message("user", text),))


def test_answers_in_order_and_remembers_what_was_asked() -> None:
    model = Scripted(["one", "two words"])
    assert model.complete(ask("a")).text == "one"
    reply = model.complete(ask("b c d"))
    assert (reply.text, reply.input_tokens, reply.output_tokens, reply.model) == ("two words", 3, 2, "scripted")
    assert [request.messages[-1].text for request in model.requests] == ["a", "b c d"]


def test_a_script_that_is_used_up() -> None:
    model = Scripted(["one"])
    model.complete(ask("a"))
    with pytest.raises(ModelError, match="no reply left for request 2"):
        model.complete(ask("a"))


def test_answers_by_text() -> None:
    model = Scripted({"ping": "pong"})
    assert [model.complete(ask("ping")).text for _ in range(2)] == ["pong", "pong"]
    with pytest.raises(ModelError, match="no reply to 'other'"):
        model.complete(ask("other"))


def test_an_empty_request_is_refused() -> None:
    with pytest.raises(ModelError, match="at least one message"):
        Scripted(["one"]).complete(Request(()))
