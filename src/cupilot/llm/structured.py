"""Asks a model for a record: the reply is validated, and requested once more when it does not fit.

The result is a record or an `Unparsable`, both with the replies.  An error is raised only when the model cannot be
asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from cupilot.contracts import Message, Model, Reply, Request
from cupilot.errors import DataError
from cupilot.llm.extract import find_data
from cupilot.llm.schema import code_field, schema_of
from cupilot.llm.templates import render
from cupilot.llm.thinking import without_thinking
from cupilot.records import from_plain

T = TypeVar("T")

READ_CHARACTERS = 200_000
QUOTED_REPLY_CHARACTERS = 4_000
REASON_CHARACTERS = 400


@dataclass(frozen=True)
class Parsed(Generic[T]):
    """The record.  ``replies`` are all replies received; ``note`` says what was wrong with the first."""

    value: T
    replies: tuple[Reply, ...]
    note: str = ""


@dataclass(frozen=True)
class Unparsable:
    """Two replies that do not fit, and the reasons."""

    reasons: tuple[str, ...]
    replies: tuple[Reply, ...]

    @property
    def message(self) -> str:
        return f"the model's replies cannot be used: {'; then: '.join(self.reasons)}"


def ask(
    model: Model, request: Request, shape: type[T], objection: Callable[[T], str] = lambda value: ""
) -> Parsed[T] | Unparsable:
    """Ask for a record of type ``shape`` (a frozen dataclass, see `cupilot.llm.schema`), at most twice.

    ``objection`` says what is wrong with a record, or nothing.  A record that it objects to is asked for once more; it
    is used after all when the second reply has none.
    """
    request = replace(request, schema=schema_of(shape))
    first = model.complete(request)
    value, reason = _parse(first, request, shape)
    if value is not None and not (wrong := objection(value)):
        return Parsed(value, (first,), reason)
    reason = reason if value is None else wrong
    second = model.complete(_retry(request, first, reason))
    better, second_reason = _parse(second, request, shape)
    if better is not None:
        return Parsed(better, (first, second), reason)
    if value is not None:
        return Parsed(value, (first, second), reason)
    return Unparsable((reason, second_reason), (first, second))


def _parse(reply: Reply, request: Request, shape: type[T]) -> tuple[T | None, str]:
    """The record and a remark, or None and the reason."""
    text, remark = without_thinking(reply.text), ""
    if len(text) > READ_CHARACTERS:
        remark = f"the reply has {len(text)} characters, and only the first {READ_CHARACTERS} were read"
        text = text[:READ_CHARACTERS]
    elif reply.output_tokens >= request.max_tokens if reply.cut is None else reply.cut:
        remark = f"the reply was cut off at {request.max_tokens} tokens"
    if not text:
        return None, remark or "the reply is empty"
    try:
        return from_plain(shape, find_data(text, code_field(shape)), "reply"), remark
    except (DataError, RecursionError) as error:  # RecursionError: deeply nested data in an error message
        why = str(error)
        why = why if len(why) <= REASON_CHARACTERS else why[:REASON_CHARACTERS] + "..."
        return None, f"{remark}; {why}" if remark else why


def _retry(request: Request, reply: Reply, reason: str) -> Request:
    text = without_thinking(reply.text)
    if len(text) > QUOTED_REPLY_CHARACTERS:
        text = text[:QUOTED_REPLY_CHARACTERS] + "\n[...]"
    turns = (Message("assistant", text or "(no text)"), Message("user", render("retry", reason=reason)))
    return replace(request, messages=request.messages + turns)
