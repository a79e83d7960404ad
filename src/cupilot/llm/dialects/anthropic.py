"""Anthropic's messages API.

It has neither temperature nor seed, and no response format between a JSON schema and plain text.  Thinking is not
requested, and thinking blocks are ignored.
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
        messages = [{"role": m.role, "content": m.text} for m in request.messages if m.role != "system"]
        arguments: dict[str, Any] = {
            "model": self._choice.model,
            "messages": messages,
            self._choice.provider.max_tokens_name: request.max_tokens + options.thinking_tokens,
        }
        system = "\n\n".join(message.text for message in request.messages if message.role == "system")
        if system:
            arguments["system"] = system
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
        return Completion(text, body.get("stop_reason") == "max_tokens", sent, token_count(usage.get("output_tokens")))
