"""Chat completions, which OpenAI began and most servers speak.

Thinking that comes in a field of its own (``reasoning_content``, ``reasoning``) is not looked at.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from typing import Any

from cupilot.contracts import Request
from cupilot.llm.dialects import Reading, count, joined
from cupilot.llm.manner import Manner
from cupilot.llm.providers import Choice
from cupilot.llm.wording import worded

# the SDK would take these from the environment, and send them to whatever server was chosen
_NOT_SENT = ("OpenAI-Organization", "OpenAI-Project")


def connect(sdk: Any, choice: Choice, key: str, timeout_s: float) -> OpenAiChat:
    """A client; without a key a placeholder is sent, since the SDK would else look for one itself."""
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

    def __init__(self, sdk: Any, client: Any, choice: Choice) -> None:
        self.sdk = sdk
        self._client = client
        self._choice = choice

    def send(self, request: Request, manner: Manner) -> AbstractContextManager[Any]:
        messages = [{"role": message.role, "content": message.text} for message in request.messages]
        arguments: dict[str, Any] = {
            "model": self._choice.model,
            "messages": messages,
            self._choice.provider.max_tokens_name: request.max_tokens + manner.thinking_tokens,
        }
        if manner.temperature:
            arguments["temperature"] = request.temperature
        if manner.seed:
            arguments["seed"] = request.sample
        if request.schema and manner.form != "none":
            arguments["response_format"] = _response_format(manner.form, request.schema)
        if request.schema and manner.form != "json_schema":
            messages[-1]["content"] = worded(manner.form, text=messages[-1]["content"], schema=request.schema)
        call: AbstractContextManager[Any] = self._client.chat.completions.with_streaming_response.create(**arguments)
        return call

    def read(self, body: dict[str, Any]) -> Reading:
        choice = body["choices"][0]
        message = choice["message"]
        usage = body.get("usage") or {}
        sent, made, total = (count(usage.get(f"{name}_tokens")) for name in ("prompt", "completion", "total"))
        if sent and total and total - sent > (made or 0):
            made = total - sent  # some servers leave hidden thinking out of the completion's tokens
        text = joined(message.get("content")) or joined(message.get("refusal"))
        return Reading(text, choice.get("finish_reason") == "length", sent, made)


def _response_format(form: str, schema: str) -> dict[str, Any]:
    if form == "json_object":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": json.loads(schema)}}
