"""Tools in both dialects, and as text where a server has none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fakeserver as fake
import pytest
from fakeserver import FakeServer

from cupilot.contracts import Message, Model, Reply, Request, ToolCall, ToolSpec
from cupilot.llm import JsonLinesCallLog, Recorder, Replay, SqliteCallLog, Unavailable, call_key, calls_in
from cupilot.llm.tool_text import without_tools

Serve = Callable[..., FakeServer]
Connect = Callable[..., Model]

SCHEMA = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "the complete file"}},
    "required": [],
    "additionalProperties": False,
}
TOOLS = (ToolSpec("compile", "Compiles.", json.dumps(SCHEMA)), ToolSpec("submit", "Hands in.", json.dumps(SCHEMA)))
ASKED = Request((Message("system", "# role: translator"), Message("user", "Write.")), tools=TOOLS)
CALLS = (ToolCall("compile", '{"code": "x"}', "a"), ToolCall("submit", "{}", "b"))
LATER = replace(
    ASKED,
    messages=(
        *ASKED.messages,
        Message("assistant", "Trying.", CALLS),
        Message("tool", "It compiles.", call_id="a"),
        Message("tool", "not carried out", call_id="b"),
        Message("user", "1 reply left"),
    ),
)
KEYS = {"ANTHROPIC_API_KEY": "sk"}


# --- chat completions ------------------------------------------------------------------------


def test_tools_are_sent_and_calls_come_back(serve: Serve, connect: Connect) -> None:
    server = serve(fake.calls_tools(("a", "compile", '{"code": "x"}'), ("b", "submit", "{}")))
    reply = connect(server).complete(ASKED)
    assert reply == Reply("", 7, 5, "local/m", cut=False, calls=CALLS)
    function = {"name": "compile", "description": "Compiles.", "parameters": SCHEMA}
    assert server.requests[0]["tools"][0] == {"type": "function", "function": function}
    assert "response_format" not in server.requests[0]


def test_the_conversation_goes_on_with_calls_and_answers(serve: Serve, connect: Connect) -> None:
    server = serve(fake.says("done"))
    connect(server).complete(LATER)
    *_, said, first, second, last = server.requests[0]["messages"]
    assert (said["role"], said["content"]) == ("assistant", "Trying.")
    assert [call["id"] for call in said["tool_calls"]] == ["a", "b"]
    assert said["tool_calls"][0]["function"] == {"name": "compile", "arguments": '{"code": "x"}'}
    assert first == {"role": "tool", "tool_call_id": "a", "content": "It compiles."}
    assert second["tool_call_id"] == "b"
    assert last == {"role": "user", "content": "1 reply left"}


def test_what_a_provider_wants_back_is_sent_back(serve: Serve, connect: Connect) -> None:
    """DeepSeek rejects tool calls without their reasoning_content, Gemini those without their signature."""
    message = json.loads(json.dumps(fake.completion(None, reasoning_content="hm")))
    signature = {"google": {"thought_signature": "s"}}
    call = {"id": "a", "type": "function", "function": {"name": "compile", "arguments": "{}"}}
    message["choices"][0]["message"]["tool_calls"] = [{**call, "extra_content": signature}]
    server = serve(fake.sends(json.dumps(message).encode()), fake.says("done"))
    model = connect(server)
    reply = model.complete(ASKED)
    said = Message("assistant", reply.text, reply.calls, extra=reply.extra)
    model.complete(replace(ASKED, messages=(*ASKED.messages, said, Message("tool", "fine", call_id="a"))))
    sent = server.requests[1]["messages"][2]
    assert sent["reasoning_content"] == "hm"
    assert sent["tool_calls"][0]["extra_content"] == signature
    assert sent["content"] is None


@pytest.mark.parametrize("arguments", ["{broken", "[1]", '"text"', ""])
def test_arguments_that_are_no_object_are_kept_but_not_sent_again(
    serve: Serve, connect: Connect, arguments: str
) -> None:
    server = serve(fake.calls_tools(("a", "compile", arguments)), fake.says("done"))
    model = connect(server)
    (call,) = model.complete(ASKED).calls
    assert call.arguments == (arguments or "{}")
    model.complete(replace(ASKED, messages=(*ASKED.messages, Message("assistant", "", (call,)))))
    assert server.requests[1]["messages"][2]["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("status", "complaint"),
    [
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (400, "registry.ollama.ai/library/x does not support tools"),
        (404, "No endpoints found that support tool use. Try disabling compile"),
        (500, "tools param requires --jinja flag"),
        (500, "Unsupported param: tools"),
    ],
    ids=["vllm", "ollama", "openrouter", "llama.cpp", "older llama.cpp"],
)
def test_a_server_without_tools_gets_them_as_text_from_then_on(
    serve: Serve, connect: Connect, waits_s: list[float], status: int, complaint: str
) -> None:
    action = '```json\n{"tool": "compile", "arguments": {"code": "x"}}\n```'
    server = serve(fake.fails(status, complaint), fake.says(action))
    model = connect(server)
    reply = model.complete(ASKED)
    assert (reply.text, reply.calls, waits_s) == (action, (), [])
    assert calls_in(reply.text, TOOLS) == (ToolCall("compile", '{"code": "x"}'),)
    assert "tools" not in server.requests[1]
    system = server.requests[1]["messages"][0]["content"]
    assert system.startswith("# role: translator\n")
    assert "- `compile`: Compiles." in system
    assert "  - `code`: the complete file" in system
    model.complete(ASKED)
    assert len(server.requests) == 3


def test_a_model_that_is_not_there_is_no_matter_of_tools(serve: Serve, connect: Connect) -> None:
    server = serve(fake.fails(404, "the model `toolsmith` does not exist"))
    with pytest.raises(Exception, match="does not know this model"):
        connect(server).complete(ASKED)
    assert len(server.requests) == 1


def test_a_server_that_is_killed_in_the_middle_is_an_error_of_that_turn(serve: Serve, connect: Connect) -> None:
    server = serve(fake.calls_tools(("a", "compile", "{}")), fake.drops_in_the_middle)
    model = connect(server, retries=1)
    assert model.complete(ASKED).calls
    with pytest.raises(Unavailable, match="broke off"):
        model.complete(LATER)


# --- Anthropic -------------------------------------------------------------------------------


@pytest.fixture
def anthropic(serve: Serve, connect: Connect) -> Callable[..., tuple[Model, FakeServer]]:
    pytest.importorskip("anthropic", reason="needs cupilot[llm]")

    def opened(*behaviours: Any) -> tuple[Model, FakeServer]:
        server = serve(*behaviours)
        return connect(server, "anthropic/m", keys=KEYS), server

    return opened


def test_anthropic_gets_tools_and_sends_calls_with_their_thinking(anthropic: Any) -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    use = {"type": "tool_use", "id": "a", "name": "compile", "input": {"code": "x"}}
    model, server = anthropic(
        fake.anthropic_sends(thinking, {"type": "text", "text": "Trying."}, use), fake.anthropic_says("done")
    )
    reply = model.complete(ASKED)
    assert (reply.text, reply.calls) == ("Trying.", (ToolCall("compile", '{"code": "x"}', "a"),))
    assert server.requests[0]["tools"][0] == {"name": "compile", "description": "Compiles.", "input_schema": SCHEMA}
    said = Message("assistant", reply.text, reply.calls, extra=reply.extra)
    later = (*ASKED.messages, said, Message("tool", "fine", call_id="a"), Message("user", "go on"))
    model.complete(replace(ASKED, messages=later))
    first, second, third = server.requests[1]["messages"]
    assert first == {"role": "user", "content": "Write."}
    assert second == {"role": "assistant", "content": [thinking, {"type": "text", "text": "Trying."}, use]}
    assert third["role"] == "user"
    assert third["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "fine"}, {"type": "text", "text": "go on"}
    ]  # fmt: skip


def test_anthropic_gets_all_answers_in_one_message(anthropic: Any) -> None:
    model, server = anthropic(fake.anthropic_says("done"))
    model.complete(LATER)
    kinds = [block["type"] for block in server.requests[0]["messages"][-1]["content"]]
    assert kinds == ["tool_result", "tool_result", "text"]


# --- as text ---------------------------------------------------------------------------------


def test_the_fields_of_an_array_are_described_in_text() -> None:
    fields = {"move": {"type": "string", "description": "a move"}, "quote": {"type": "string", "description": "a line"}}
    moves = {"type": "array", "description": "the moves", "items": {"type": "object", "properties": fields}}
    tool = ToolSpec("submit", "Hands in.", json.dumps({"type": "object", "properties": {"moves": moves}}))
    system = without_tools(replace(ASKED, tools=(tool,))).messages[0].text
    assert "  - `moves`: the moves; an array of objects with\n    - `move`: a move\n    - `quote`: a line\n" in system


def test_a_conversation_with_calls_becomes_one_in_text() -> None:
    plain = without_tools(LATER)
    assert plain.tools == ()
    assert [message.role for message in plain.messages] == ["system", "user", "assistant", "user"]
    assert calls_in(plain.messages[2].text, TOOLS)[0].name == "compile"
    assert plain.messages[3].text == "It compiles.\n\nnot carried out\n\n1 reply left"
    assert without_tools(replace(ASKED, tools=())) == replace(ASKED, tools=())


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ('{"tool": "compile"}', "compile", {}),
        ('{"name": "Compile", "parameters": {"code": "x"}}', "compile", {"code": "x"}),
        ('{"tool": "compile", "arguments": "{\\"code\\": \\"x\\"}"}', "compile", {"code": "x"}),
        ('<think>maybe {"tool": "submit"}</think>{"tool": "compile"}', "compile", {}),
        ('First\n```json\n{"tool": "compile"}\n```\nthen\n```json\n{"tool": "submit"}\n```', "compile", {}),
        ("```cuda\nint x;\n```", "submit", {"code": "int x;\n", "notes": ""}),
        ('{"code": "x", "moves": [{"move": "m"}]}', "submit", {"code": "x", "notes": "", "moves": [{"move": "m"}]}),
    ],
)
def test_an_action_is_found_however_it_is_written(text: str, name: str, arguments: dict[str, Any]) -> None:
    (call,) = calls_in(text, TOOLS)
    assert (call.name, json.loads(call.arguments)) == (name, arguments)


@pytest.mark.parametrize("text", ["", "I will compile it.", '{"tool": 3}', '{"verdict": "give-up"}', "[" * 100_000])
def test_a_reply_without_an_action_has_none(text: str) -> None:
    assert calls_in(text, TOOLS) == ()


# --- recording -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite", "json lines"])
def test_turns_with_tools_are_recorded_and_replayed(tmp_path: Path, kind: str) -> None:
    log = SqliteCallLog(tmp_path / "a") if kind == "sqlite" else JsonLinesCallLog(tmp_path / "b")
    reply = Reply("", 7, 5, "m", calls=CALLS, extra='{"reasoning_content": "hm"}')

    class Calling:
        name = "m"

        def complete(self, request: Request) -> Reply:
            return reply

    recorder = Recorder(Calling(), log)
    assert recorder.complete(ASKED) == recorder.complete(LATER) == reply
    assert Replay(log, "m").complete(LATER) == reply
    changed = replace(LATER, messages=(*LATER.messages[:2], Message("assistant", "Trying.", CALLS[:1])))
    with pytest.raises(Exception, match="no recorded reply"):
        Replay(log, "m").complete(changed)
    with pytest.raises(Exception, match="no recorded reply"):
        Replay(log, "m").complete(replace(ASKED, tools=TOOLS[:1]))


def test_requests_without_tools_keep_the_key_of_older_recordings() -> None:
    old = {
        "messages": [{"role": m.role, "text": m.text} for m in ASKED.messages],
        "schema": "", "temperature": 0.0, "max_tokens": 4096, "sample": 0,
    }  # fmt: skip
    text = json.dumps(["m", old], sort_keys=True, separators=(",", ":"))
    assert call_key("m", replace(ASKED, tools=())) == hashlib.sha256(text.encode()).hexdigest()
    assert call_key("m", ASKED) != call_key("m", replace(ASKED, tools=()))
