"""Every call kept, and calls answered from what was kept: no network, no cost, the same reply each time.

A call's key is the hash of the model's name and the whole request, the sample's number included: two
samples of one prompt are two calls, and the same request again is the same call.  So a recorder answers
from its book what the book already holds, and a run that is resumed does not pay twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import zip_longest
from threading import Lock
from typing import Protocol

from cupilot.contracts import Message, Model, Reply, Request
from cupilot.errors import ModelError
from cupilot.llm.answer import Answer
from cupilot.llm.cost import Usage, price_usd
from cupilot.llm.role import role_of
from cupilot.records import to_plain

COMPARED_CHARACTERS = 2_000
SHOWN_CHARACTERS = 80
_DIGEST = "sha256:"


@dataclass(frozen=True)
class Call:
    """One recorded call; in some books the messages' texts are digests only."""

    key: str
    model: str
    request: Request
    reply: Answer
    price_usd: float | None = None


class Book(Protocol):
    """Where calls are kept; any thread may ask.  The first reply put under a key stays."""

    def get(self, key: str) -> Reply | None: ...

    def put(self, key: str, request: Request, reply: Reply, price_usd: float | None) -> None: ...

    def calls(self) -> Iterator[Call]: ...


def call_key(model: str, request: Request) -> str:
    """The content address of a call."""
    text = json.dumps([model, to_plain(request)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def abridged(message: Message) -> Message:
    """What a small book keeps of a message: the line that names the role, and a digest."""
    first, _, _ = message.text.partition("\n")
    kept = f"{first}\n" if role_of(Request((message,))) else ""
    hashed = hashlib.sha256(message.text.encode("utf-8", "surrogatepass")).hexdigest()
    return Message(message.role, f"{kept}{_DIGEST}{hashed}")


def _is_abridged(message: Message) -> bool:
    return _DIGEST in message.text and message.text.rpartition("\n")[2].startswith(_DIGEST)


def as_answer(reply: Reply) -> Answer:
    """The reply with the two marks of `Answer`, which a foreign model's reply lacks."""
    if isinstance(reply, Answer):
        return reply
    return Answer(reply.text, reply.input_tokens, reply.output_tokens, reply.model)


class Recorder:
    """A model whose calls go into a book, with their price.

    ``usage`` is told of each call once, also of those that a killed run has paid before: it is what the whole
    run costs, and so what its caps are for.
    """

    def __init__(
        self,
        model: Model,
        book: Book,
        usage: Usage | None = None,
        price: Callable[[str, int, int], float | None] = price_usd,
    ) -> None:
        self._model = model
        self._book = book
        self._usage = usage
        self._price = price
        self._lock = Lock()
        self._counted: set[str] = set()

    @property
    def name(self) -> str:
        return self._model.name

    def complete(self, request: Request) -> Reply:
        key = call_key(self.name, request)
        kept = self._book.get(key)
        if kept is not None:
            self._count(key, kept)
            return kept
        reply = replace(as_answer(self._model.complete(request)), model=self.name)
        price = self._price(self.name, reply.input_tokens, reply.output_tokens)
        self._count(key, reply, again=True)
        self._book.put(key, request, reply, price)
        # another thread may have asked the same and been first; all have to go on with one reply
        return self._book.get(key) or reply

    def _count(self, key: str, reply: Reply, *, again: bool = False) -> None:
        """Add to the total; a call that was made is paid, even when another thread has just made the same."""
        with self._lock:
            fresh = again or key not in self._counted
            self._counted.add(key)
        if fresh and self._usage is not None:
            self._usage.add(reply, self._price(self.name, reply.input_tokens, reply.output_tokens))


class Replay:
    """A recorded model; ``name`` is the one under which the calls were recorded."""

    def __init__(self, book: Book, name: str) -> None:
        self._book = book
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def complete(self, request: Request) -> Reply:
        kept = self._book.get(call_key(self._name, request))
        if kept is None:
            raise ModelError(f"{self._name}: no recorded reply to this request; {self._difference(request)}")
        return kept

    def _difference(self, request: Request) -> str:
        nearest = max(self._book.calls(), key=lambda call: _likeness(self._name, request, call), default=None)
        if nearest is None:
            return "nothing is recorded at all"
        role = role_of(request)
        whose = f"the nearest one ({role})" if role else "the nearest one"
        if nearest.model != self._name:
            return f"{whose} was made to {nearest.model}"
        return f"{whose} differs in {_first_difference(nearest.request, request)}"


def _likeness(model: str, request: Request, call: Call) -> tuple[float, ...]:
    """The larger the nearer: the model, equal messages, the sample, then alike texts."""
    recorded = call.request
    pairs = [_comparable(a, b) for a, b in zip_longest(recorded.messages, request.messages, fillvalue=Message("", ""))]
    equal = sum(a == b for a, b in pairs)
    roles = role_of(recorded) == role_of(request)
    was, now = next(((a, b) for a, b in pairs if a != b), ("", ""))
    alike = SequenceMatcher(None, was[:COMPARED_CHARACTERS], now[:COMPARED_CHARACTERS], False).quick_ratio()
    return (call.model == model, roles, equal - abs(len(recorded.messages) - len(request.messages)),
            recorded.sample == request.sample, alike)  # fmt: skip


def _comparable(recorded: Message, asked: Message) -> tuple[str, str]:
    """Both texts in the form in which the recorded one was kept."""
    if _is_abridged(recorded):
        asked = abridged(asked)
    return f"{recorded.role}\n{recorded.text}", f"{asked.role}\n{asked.text}"


def _first_difference(recorded: Request, asked: Request) -> str:
    for number, (was, now) in enumerate(zip(recorded.messages, asked.messages, strict=False), start=1):
        before, after = _comparable(was, now)
        if before == after:
            continue
        where = f"message {number} ({now.role})"
        if _is_abridged(was):
            return where
        lines = zip_longest(before.split("\n"), after.split("\n"), fillvalue="(nothing)")
        line, a, b = next((n, a, b) for n, (a, b) in enumerate(lines) if a != b)
        return f"{where}, line {line}: {_around(a, b)!r} was recorded, {_around(b, a)!r} is asked"
    if len(recorded.messages) != len(asked.messages):
        return f"the number of messages: {len(recorded.messages)} recorded, {len(asked.messages)} asked"
    plain = to_plain(replace(recorded, messages=())), to_plain(replace(asked, messages=()))
    name = next((name for name in plain[0] if plain[0][name] != plain[1][name]), "nothing that was kept")
    return f"{name}: {plain[0].get(name)!r:.80} recorded, {plain[1].get(name)!r:.80} asked"


def _around(line: str, other: str) -> str:
    """The part of a long line in which it differs from the other."""
    same = next((i for i, (a, b) in enumerate(zip(line, other, strict=False)) if a != b), min(len(line), len(other)))
    start = max(0, same - SHOWN_CHARACTERS // 2)
    return line[start : start + SHOWN_CHARACTERS]
