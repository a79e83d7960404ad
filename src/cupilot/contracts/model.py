"""A language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Message:
    """One turn of a conversation; ``role`` is system, user or assistant."""

    role: str
    text: str


@dataclass(frozen=True)
class Request:
    """What a model is asked; ``sample`` tells apart several answers to one prompt."""

    messages: tuple[Message, ...]
    schema: str = ""
    temperature: float = 0.0
    max_tokens: int = 4096
    sample: int = 0


@dataclass(frozen=True)
class Reply:
    """What a model answered, and the tokens it took.

    ``cut``: the reply ended at its token limit (None: the model does not say).  ``estimated``: the tokens are an
    estimate, because the server did not count them.
    """

    text: str
    input_tokens: int
    output_tokens: int
    model: str
    cut: bool | None = None
    estimated: bool = False


class Model(Protocol):
    """A language model: one method."""

    @property
    def name(self) -> str: ...

    def complete(self, request: Request) -> Reply:
        """Answer, or raise `cupilot.errors.ModelError`."""
