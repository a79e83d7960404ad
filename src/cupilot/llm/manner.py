"""How a server is asked, and what it turned out not to take.

Servers differ in the parts of a request that they accept, and say so with a 400.  What such an
answer names is left out from then on, the form of the reply one step weaker each time:
JSON schema, then any JSON object, then plain text with fenced blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock

from cupilot.llm.providers import FORMS, Provider


@dataclass(frozen=True)
class Manner:
    """The optional parts of a request that are sent."""

    form: str
    temperature: bool
    seed: bool
    thinking_tokens: int


def _weaker_form(manner: Manner) -> Manner:
    step = FORMS.index(manner.form) + 1
    return replace(manner, form=FORMS[min(step, len(FORMS) - 1)])


# words in a server's complaint, and what to do without; the first that changes something is taken
_CONCESSIONS: tuple[tuple[tuple[str, ...], Callable[[Manner], Manner]], ...] = (
    (("response_format", "json_schema", "json_object", "json mode", "output_config", "output_format", "schema",
      "grammar", "structured output"), _weaker_form),
    (("temperature",), lambda manner: replace(manner, temperature=False)),
    (("seed",), lambda manner: replace(manner, seed=False)),
    (("max_tokens", "max_completion_tokens", "context length"), lambda manner: replace(manner, thinking_tokens=0)),
)  # fmt: skip


class Manners:
    """The manner that is right for one server as far as is known; shared by threads."""

    def __init__(self, provider: Provider) -> None:
        self._lock = Lock()
        self._manner = Manner(provider.structured, provider.temperature, provider.seed, provider.thinking_tokens)

    @property
    def current(self) -> Manner:
        with self._lock:
            return self._manner

    def concede(self, complaint: str, tried: Manner) -> bool:
        """Whether the request is worth sending again, in another manner than the one that was tried."""
        said = complaint.lower()
        with self._lock:
            if self._manner != tried:  # another thread was told the same meanwhile
                return True
            for words, change in _CONCESSIONS:
                if any(word in said for word in words) and change(tried) != tried:
                    self._manner = change(tried)
                    return True
        return False
