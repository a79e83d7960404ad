"""The optional parts of a request, and which of them a server accepts.

Servers differ in the options they accept, and reject others with status 400 or 422.  An option that such an error names
is not sent again.  The response format is weakened step by step: JSON schema, any JSON object, plain text with fenced
blocks.  Where tools are not accepted, they are described in the prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock

from cupilot.llm.providers import RESPONSE_FORMATS, Provider


@dataclass(frozen=True)
class RequestOptions:
    """The optional parts of a request that are sent."""

    response_format: str
    temperature: bool
    seed: bool
    thinking_tokens: int
    tools: bool = True


def _weaker_response_format(options: RequestOptions) -> RequestOptions:
    step = RESPONSE_FORMATS.index(options.response_format) + 1
    return replace(options, response_format=RESPONSE_FORMATS[min(step, len(RESPONSE_FORMATS) - 1)])


# words in a server's complaint, and the change that answers it; the first that changes something is taken
_CHANGES: tuple[tuple[tuple[str, ...], Callable[[RequestOptions], RequestOptions]], ...] = (
    (("response_format", "json_schema", "json_object", "json mode", "output_config", "output_format", "schema",
      "grammar", "structured output"), _weaker_response_format),
    (("temperature",), lambda options: replace(options, temperature=False)),
    (("seed",), lambda options: replace(options, seed=False)),
    (("tool", "function call", "--jinja"), lambda options: replace(options, tools=False)),
    (("max_tokens", "max_completion_tokens", "context length"), lambda options: replace(options, thinking_tokens=0)),
)  # fmt: skip


class AcceptedOptions:
    """The options that one server is known to accept; safe to use from several threads."""

    def __init__(self, provider: Provider) -> None:
        self._lock = Lock()
        self._options = RequestOptions(
            provider.response_format, provider.temperature, provider.seed, provider.thinking_tokens,
            provider.tools,
        )  # fmt: skip

    @property
    def current(self) -> RequestOptions:
        with self._lock:
            return self._options

    def drop_rejected(self, complaint: str, tried: RequestOptions) -> bool:
        """Drop the option that the server complains about; False when nothing is left to change."""
        text = complaint.lower()
        with self._lock:
            if self._options != tried:  # another thread has changed them meanwhile
                return True
            for words, change in _CHANGES:
                if any(word in text for word in words) and change(tried) != tried:
                    self._options = change(tried)
                    return True
        return False
