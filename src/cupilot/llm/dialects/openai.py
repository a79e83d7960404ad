"""OpenAI's chat completions API, which most servers implement.

Thinking in a field of its own (``reasoning_content``, ``reasoning``) is ignored, but sent back with the tools that it
led to, because some providers reject a conversation without it: DeepSeek wants ``reasoning_content``, OpenRouter
``reasoning_details``, and Gemini the ``extra_content`` of each call.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from typing import Any

from cupilot.contracts import Message, Request, ToolCall, ToolSpec
from cupilot.llm.dialects import Completion, arguments_of, extra_of, text_of, token_count
from cupilot.llm.providers import ModelChoice
from cupilot.llm.request_options import RequestOptions
from cupilot.llm.templates import render

_SENT_BACK = ("reasoning_content", "reasoning_details")
_OF_CALL = "extra_content"
# the SDK would read these from the environment and send them to any server
_NOT_SENT = ("OpenAI-Organization", "OpenAI-Project")


def connect(sdk: Any, choice: ModelChoice, key: str, timeout_s: float) -> OpenAiChat:
    """A client; without a key it sends a placeholder, or the SDK would look for a key in the environment."""
    client = sdk.OpenAI(
        api_key=key or "none",
        base_url=choice.base_url,
        timeout=sdk.Timeout(timeout_s, connect=min(timeout_s, 15.0)),
        max_retries=0,
        default_headers={name: sdk.Omit() for name in _NOT_SENT},
    )
    return OpenAiChat(sdk, client, choice)


class OpenAiChat:
    """See `cupilot.llm.dialects.Dialect`."""

    def __init__(self, sdk: Any, client: Any, choice: ModelChoice) -> None:
        self.sdk = sdk
        self._client = client
        self._choice = choice

    def send(self, request: Request, options: RequestOptions) -> AbstractContextManager[Any]:
        messages = [_message(message) for message in request.messages]
        arguments: dict[str, Any] = {
            "model": self._choice.model,
            "messages": messages,
            self._choice.provider.max_tokens_name: request.max_tokens + options.thinking_tokens,
        }
        if request.tools:
            arguments["tools"] = [_tool(tool) for tool in request.tools]
        if options.temperature:
            arguments["temperature"] = request.temperature
        if options.seed:
            arguments["seed"] = request.sample
        if request.schema and options.response_format != "none":
            arguments["response_format"] = _response_format(options.response_format, request.schema)
        if request.schema and options.response_format != "json_schema":
            messages[-1]["content"] = render(
                options.response_format, text=messages[-1]["content"], schema=request.schema
            )
        call: AbstractContextManager[Any] = self._client.chat.completions.with_streaming_response.create(**arguments)
        return call

    def read(self, body: dict[str, Any]) -> Completion:
        choice = body["choices"][0]
        message = choice["message"]
        usage = body.get("usage") or {}
        sent, made, total = (token_count(usage.get(f"{name}_tokens")) for name in ("prompt", "completion", "total"))
        if sent and total and total - sent > (made or 0):
            made = total - sent  # some servers do not count hidden thinking as completion tokens
        text = text_of(message.get("content")) or text_of(message.get("refusal"))
        calls = tuple(map(_call, message.get("tool_calls") or ()))
        kept = {name: message[name] for name in _SENT_BACK if message.get(name) is not None} if calls else {}
        cut = choice.get("finish_reason") == "length"
        return Completion(text, cut, sent, made, calls, json.dumps(kept) if kept else "")


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    if not message.calls:
        return {"role": message.role, "content": message.text}
    calls = [
        {
            "id": call.id, "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(arguments_of(call))},
            **({_OF_CALL: extra_of(call.extra, dict)} if call.extra else {}),
        }
        for call in message.calls
    ]  # fmt: skip
    thinking = extra_of(message.extra, dict)
    return {"role": message.role, "content": message.text or None, "tool_calls": calls, **thinking}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    parameters = json.loads(tool.parameters)
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


def _call(data: dict[str, Any]) -> ToolCall:
    function = data["function"]
    arguments = function.get("arguments") or "{}"
    if not isinstance(arguments, str):  # some servers send an object
        arguments = json.dumps(arguments)
    extra = data.get(_OF_CALL)
    return ToolCall(function["name"], arguments, data.get("id") or "", json.dumps(extra) if extra else "")


def _response_format(kind: str, schema: str) -> dict[str, Any]:
    if kind == "json_object":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": json.loads(schema)}}
