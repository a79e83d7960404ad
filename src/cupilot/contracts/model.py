"""A language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from cupilot.contracts.tools import ToolCall, Tools, ToolSpec
from cupilot.records import Turn


@dataclass(frozen=True)
class Message:
    """One message of a conversation; ``role`` is system, user, assistant or tool.

    An assistant's message has the tools that it called, and in ``extra`` what its provider wants back, as JSON.  A
    tool's message is its answer; ``call_id`` is the call's.
    """

    role: str
    text: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    extra: str = ""


@dataclass(frozen=True)
class Request:
    """What a model is asked; ``sample`` tells apart several answers to one prompt, ``tools`` may be called."""

    messages: tuple[Message, ...]
    schema: str = ""
    temperature: float = 0.0
    max_tokens: int = 4096
    sample: int = 0
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True)
class Reply:
    """What a model answered, and the tokens it took.

    ``cut``: the reply ended at its token limit (None: the model does not say).  ``estimated``: the tokens are an
    estimate, because the server did not count them.  ``calls`` are the tools that it calls, ``extra`` is for its
    `Message` when the conversation goes on.  ``turns`` are those of a model that worked with tools on its own.
    """

    text: str
    input_tokens: int
    output_tokens: int
    model: str
    cut: bool | None = None
    estimated: bool = False
    calls: tuple[ToolCall, ...] = ()
    extra: str = ""
    turns: tuple[Turn, ...] = ()


class Model(Protocol):
    """A language model: one method."""

    @property
    def name(self) -> str: ...

    def complete(self, request: Request) -> Reply:
        """Answer, or raise `cupilot.errors.ModelError`."""


class AgentModel(Model, Protocol):
    """A model that works with tools on its own, such as a coding agent; asked without tools, it just answers.

    A model is one if it has ``works_alone``, and it is true.
    """

    @property
    def works_alone(self) -> bool: ...

    def work(self, request: Request, tools: Tools) -> Reply:
        """Work until a kernel is submitted or time is up; the reply calls ``submit`` or ``give_up``, or nothing.

        Raises `cupilot.errors.ModelError` when it could not work at all.
        """


def works_alone(model: Any) -> bool:
    """Whether a model is an `AgentModel`; what wraps a model passes the question on."""
    return bool(getattr(model, "works_alone", False))
