"""Adapters for SDKs: one module per SDK, named as providers' ``sdk`` names it.

A module's `connect` returns a `Dialect`.  It neither retries nor explains errors: `cupilot.llm.chat` and
`cupilot.llm.retry` do that for all of them.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from cupilot.contracts import Request, ToolCall
from cupilot.llm.request_options import RequestOptions

T = TypeVar("T")


@dataclass(frozen=True)
class Completion:
    """The parsed body of a response; tokens are None where the server did not count them."""

    text: str
    cut: bool
    input_tokens: int | None
    output_tokens: int | None
    calls: tuple[ToolCall, ...] = ()
    extra: str = ""


class Dialect(Protocol):
    """One client of an SDK."""

    @property
    def sdk(self) -> Any:
        """The SDK's module, for its exceptions."""

    def send(self, request: Request, options: RequestOptions) -> AbstractContextManager[Any]:
        """Make the call; the caller reads the body of the response."""

    def read(self, body: dict[str, Any]) -> Completion:
        """Parse the body; an unexpected one may raise LookupError, TypeError or ValueError."""


def token_count(value: object) -> int | None:
    """A positive number of tokens, or None."""
    return value if isinstance(value, int) and value > 0 else None


def text_of(content: object) -> str:
    """The text of a message, which some servers send in typed parts; parts other than text are dropped."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if part.get("type") == "text")
    if content is None:
        return ""
    if not isinstance(content, str):
        raise TypeError("the content of a message is neither text nor parts")
    return content


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """What a call was made with, for sending it back: servers refuse what is not an object."""
    try:
        found = json.loads(call.arguments, strict=False)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def extra_of(text: str, kind: type[T]) -> T:
    """What a provider wants back, if it is of this kind."""
    found = json.loads(text) if text else kind()
    return found if isinstance(found, kind) else kind()
