"""OpenAI's chat completions API, which most servers implement.

Thinking in a field of its own (``reasoning_content``, ``reasoning``) is ignored.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from typing import Any

from cupilot.contracts import Request
from cupilot.llm.dialects import Completion, text_of, token_count
from cupilot.llm.providers import ModelChoice
from cupilot.llm.request_options import RequestOptions
from cupilot.llm.templates import render

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
        messages = [{"role": message.role, "content": message.text} for message in request.messages]
        arguments: dict[str, Any] = {
            "model": self._choice.model,
            "messages": messages,
            self._choice.provider.max_tokens_name: request.max_tokens + options.thinking_tokens,
        }
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
        return Completion(text, choice.get("finish_reason") == "length", sent, made)


def _response_format(kind: str, schema: str) -> dict[str, Any]:
    if kind == "json_object":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": json.loads(schema)}}
