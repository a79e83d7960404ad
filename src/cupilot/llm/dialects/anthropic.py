"""Anthropic's messages API.

It has neither temperature nor seed, and no response format between a JSON schema and plain text.  Thinking is not
requested, and thinking blocks are ignored, but sent back with the tools that they led to, as the API asks for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from cupilot.contracts import Message, Request, ToolCall
from cupilot.llm.dialects import Completion, arguments_of, extra_of, text_of, token_count
from cupilot.llm.providers import ModelChoice
from cupilot.llm.request_options import RequestOptions
from cupilot.llm.templates import render

_THINKING = ("thinking", "redacted_thinking")


def connect(sdk: Any, choice: ModelChoice, key: str, timeout_s: float) -> AnthropicMessages:
    """A client with the given key."""
    client = sdk.Anthropic(
        api_key=key,
        base_url=choice.base_url,
        timeout=sdk.Timeout(timeout_s, connect=min(timeout_s, 15.0)),
        max_retries=0,
        open_telemetry=False,
    )
    return AnthropicMessages(sdk, client, choice)


class AnthropicMessages:
    """See `cupilot.llm.dialects.Dialect`."""

    def __init__(self, sdk: Any, client: Any, choice: ModelChoice) -> None:
        self.sdk = sdk
        self._client = client
        self._choice = choice

    def send(self, request: Request, options: RequestOptions) -> AbstractContextManager[Any]:
        messages = _messages(request.messages)
        arguments: dict[str, Any] = {
            "model": self._choice.model,
            "messages": messages,
            self._choice.provider.max_tokens_name: request.max_tokens + options.thinking_tokens,
        }
        system = "\n\n".join(message.text for message in request.messages if message.role == "system")
        if system:
            arguments["system"] = system
        if request.tools:
            arguments["tools"] = [
                {"name": t.name, "description": t.description, "input_schema": json.loads(t.parameters)}
                for t in request.tools
            ]
        if request.schema and options.response_format == "json_schema":
            arguments["output_config"] = {"format": {"type": "json_schema", "schema": json.loads(request.schema)}}
        elif request.schema:
            messages[-1]["content"] = render(
                options.response_format, text=messages[-1]["content"], schema=request.schema
            )
        call: AbstractContextManager[Any] = self._client.messages.with_streaming_response.create(**arguments)
        return call

    def read(self, body: dict[str, Any]) -> Completion:
        usage = body.get("usage") or {}
        read_anew = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        sent = sum(token_count(usage.get(name)) or 0 for name in read_anew) or None
        text = text_of(body["content"])
        blocks = [block for block in body["content"] if isinstance(block, dict)]
        calls = tuple(
            ToolCall(b["name"], json.dumps(b.get("input") or {}), b["id"])
            for b in blocks
            if b.get("type") == "tool_use"
        )
        thinking = [block for block in blocks if block.get("type") in _THINKING] if calls else []
        made, cut = token_count(usage.get("output_tokens")), body.get("stop_reason") == "max_tokens"
        return Completion(text, cut, sent, made, calls, json.dumps(thinking) if thinking else "")


def _messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Turns of the two sides in alternation; answers of tools, and what is said after them, are one turn of the user's.

    A turn that is only text stays text.
    """
    turns: list[dict[str, Any]] = []
    for message in (message for message in messages if message.role != "system"):
        role = "user" if message.role == "tool" else message.role
        if turns and turns[-1]["role"] == role and isinstance(turns[-1]["content"], list):
            turns[-1]["content"] += _blocks(message)
        elif message.role == "tool" or message.calls:
            turns.append({"role": role, "content": _blocks(message)})
        else:
            turns.append({"role": role, "content": message.text})
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.call_id, "content": message.text}]
    text = [{"type": "text", "text": message.text}] if message.text.strip() else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_of(call)} for call in message.calls
    ]
    return [*extra_of(message.extra, list), *text, *calls]
