"""Recording of calls, and replay of recorded calls: no network, no cost, the same reply each time.

A call's key is the hash of the model's name and the whole request, including the sample's number: two samples of one
prompt are two calls, and a repeated request is the same call.  A recorder answers repeated requests from its log, so a
resumed run does not pay twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import zip_longest
from threading import Lock
from typing import Protocol, cast

from cupilot.contracts import AgentModel, Message, Model, Reply, Request, Tools, works_alone
from cupilot.errors import ModelError
from cupilot.llm.cost import Usage, price_usd
from cupilot.llm.role import role_of
from cupilot.records import to_plain

COMPARED_CHARACTERS = 2_000
SHOWN_CHARACTERS = 80
AGENT = "agent/"
"""Names of coding agents begin so."""
_DIGEST = "sha256:"
_OF_TOOLS = frozenset({"tools", "calls", "call_id", "extra"})


@dataclass(frozen=True)
class RecordedCall:
    """One recorded call; some logs keep only digests of the messages' texts."""

    key: str
    model: str
    request: Request
    reply: Reply
    price_usd: float | None = None


class CallLog(Protocol):
    """Keeps recorded calls; thread-safe.  The first reply put under a key stays."""

    def get(self, key: str) -> Reply | None: ...

    def put(self, key: str, request: Request, reply: Reply, price_usd: float | None) -> None: ...

    def calls(self) -> Iterator[RecordedCall]: ...


def is_agent(name: str) -> bool:
    return name.startswith(AGENT)


def call_key(model: str, request: Request) -> str:
    """The hash under which a call is kept."""
    plain = to_plain(request)
    # what requests without tools do not have is left out, so that older recordings keep their keys
    messages = [{name: value for name, value in m.items() if value or name not in _OF_TOOLS} for m in plain["messages"]]
    plain = {name: value for name, value in plain.items() if value or name not in _OF_TOOLS} | {"messages": messages}
    text = json.dumps([model, plain], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def abridged(message: Message) -> Message:
    """The message with a digest as its text, after the line that names the role."""
    first, _, _ = message.text.partition("\n")
    kept = f"{first}\n" if role_of(Request((message,))) else ""
    text = message.text + (json.dumps(to_plain(message.calls)) if message.calls else "")
    hashed = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Message(message.role, f"{kept}{_DIGEST}{hashed}")


def _is_abridged(message: Message) -> bool:
    return _DIGEST in message.text and message.text.rpartition("\n")[2].startswith(_DIGEST)


class Recorder:
    """A model whose calls are logged with their price.

    Each call is added to ``usage`` once, including logged calls that an earlier, killed run has paid: the total is the
    cost of the whole run, which its caps apply to.
    """

    def __init__(
        self,
        model: Model,
        log: CallLog,
        usage: Usage | None = None,
        price: Callable[[str, int, int], float | None] = price_usd,
    ) -> None:
        self._model = model
        self._log = log
        self._usage = usage
        self._price = price
        self._lock = Lock()
        self._counted: set[str] = set()

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def works_alone(self) -> bool:
        return works_alone(self._model)

    def complete(self, request: Request) -> Reply:
        return self._recorded(request, lambda: self._model.complete(request))

    def work(self, request: Request, tools: Tools) -> Reply:
        """The whole work is one call."""
        model = cast(AgentModel, self._model)
        return self._recorded(request, lambda: model.work(request, tools))

    def _recorded(self, request: Request, ask: Callable[[], Reply]) -> Reply:
        key = call_key(self.name, request)
        kept = self._log.get(key)
        if kept is not None:
            self._count(key, kept)
            return kept
        reply = replace(ask(), model=self.name)
        price = self._price(self.name, reply.input_tokens, reply.output_tokens)
        self._count(key, reply, again=True)
        self._log.put(key, request, reply, price)
        # another thread may have logged the same call first; all threads continue with that reply
        return self._log.get(key) or reply

    def _count(self, key: str, reply: Reply, *, again: bool = False) -> None:
        """Add a call to the total; with ``again`` even if another thread has just paid for the same call."""
        with self._lock:
            fresh = again or key not in self._counted
            self._counted.add(key)
        if fresh and self._usage is not None:
            self._usage.add(reply, self._price(self.name, reply.input_tokens, reply.output_tokens))


class Replay:
    """Answers from a log; ``name`` is the model's name in the recorded calls."""

    def __init__(self, log: CallLog, name: str) -> None:
        self._log = log
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @property
    def works_alone(self) -> bool:
        return is_agent(self._name)

    def work(self, request: Request, tools: Tools) -> Reply:
        return self.complete(request)

    def complete(self, request: Request) -> Reply:
        kept = self._log.get(call_key(self._name, request))
        if kept is None:
            raise ModelError(f"{self._name}: no recorded reply to this request; {self._difference(request)}")
        return kept

    def _difference(self, request: Request) -> str:
        nearest = max(self._log.calls(), key=lambda call: _likeness(self._name, request, call), default=None)
        if nearest is None:
            return "nothing is recorded at all"
        role = role_of(request)
        whose = f"the nearest one ({role})" if role else "the nearest one"
        if nearest.model != self._name:
            return f"{whose} was made to {nearest.model}"
        return f"{whose} differs in {_first_difference(nearest.request, request)}"


def _likeness(model: str, request: Request, call: RecordedCall) -> tuple[float, ...]:
    """A sort key, larger for a closer call: by model, role, equal messages, sample, then similar texts."""
    recorded = call.request
    pairs = [_comparable(a, b) for a, b in zip_longest(recorded.messages, request.messages, fillvalue=Message("", ""))]
    equal = sum(a == b for a, b in pairs)
    roles = role_of(recorded) == role_of(request)
    was, now = next(((a, b) for a, b in pairs if a != b), ("", ""))
    alike = SequenceMatcher(None, was[:COMPARED_CHARACTERS], now[:COMPARED_CHARACTERS], False).quick_ratio()
    return (call.model == model, roles, equal - abs(len(recorded.messages) - len(request.messages)),
            recorded.sample == request.sample, alike)  # fmt: skip


def _comparable(recorded: Message, asked: Message) -> tuple[str, str]:
    """Both texts, as digests if the recorded one is a digest."""
    if _is_abridged(recorded):
        asked = abridged(asked)
    return _shown(recorded), _shown(asked)


def _shown(message: Message) -> str:
    calls = "".join(f"\n{call.name}({call.arguments})" for call in message.calls)
    return f"{message.role}\n{message.text}{calls}"


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
    if [tool.name for tool in recorded.tools] != [tool.name for tool in asked.tools]:
        return "the tools that are offered"
    plain = to_plain(replace(recorded, messages=())), to_plain(replace(asked, messages=()))
    name = next((name for name in plain[0] if plain[0][name] != plain[1][name]), "nothing that was kept")
    return f"{name}: {plain[0].get(name)!r:.80} recorded, {plain[1].get(name)!r:.80} asked"


def _around(line: str, other: str) -> str:
    """The part of a long line around its first difference from another."""
    same = next((i for i, (a, b) in enumerate(zip(line, other, strict=False)) if a != b), min(len(line), len(other)))
    start = max(0, same - SHOWN_CHARACTERS // 2)
    return line[start : start + SHOWN_CHARACTERS]
