"""How each SDK is spoken to: one module per SDK, found by the name that a provider gives.

A dialect is asked through `connect` and offers what `Dialect` names.  It neither retries nor
explains errors: that is the same for all, and done in `cupilot.llm.chat` and `cupilot.llm.patience`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from cupilot.contracts import Request
from cupilot.llm.manner import Manner


@dataclass(frozen=True)
class Reading:
    """What was found in the body of an answer; tokens are None where the server did not count them."""

    text: str
    cut: bool
    input_tokens: int | None
    output_tokens: int | None


class Dialect(Protocol):
    """One client of an SDK."""

    @property
    def sdk(self) -> Any:
        """The SDK's module, for its exceptions."""

    def send(self, request: Request, manner: Manner) -> AbstractContextManager[Any]:
        """Make the call; the body of the response is read by the caller."""

    def read(self, body: dict[str, Any]) -> Reading:
        """Take the answer apart; anything unexpected may raise LookupError, TypeError or ValueError."""


def count(value: object) -> int | None:
    """A number of tokens, where there is one."""
    return value if isinstance(value, int) and value > 0 else None


def joined(content: object) -> str:
    """The text of a message, which some servers send in typed parts; other parts (thinking) are dropped."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if part.get("type") == "text")
    if content is None:
        return ""
    if not isinstance(content, str):
        raise TypeError("the content of a message is neither text nor parts")
    return content
