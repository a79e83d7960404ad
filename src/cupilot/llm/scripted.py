"""A model that answers from a script: for tests, examples and plug-in authors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cupilot.contracts import Reply, Request
from cupilot.errors import ModelError


class Scripted:
    """Answers with prepared replies: in order, or by the text of the last message.

    ``requests`` are all requests so far, for tests to look at.  Tokens are counted as words.  A request without a reply
    is a `ModelError`.
    """

    def __init__(self, replies: Iterable[str] | Mapping[str, str], name: str = "scripted") -> None:
        self._by_text: dict[str, str] | None = dict(replies) if isinstance(replies, Mapping) else None
        self._in_order: Iterator[str] = iter(()) if isinstance(replies, Mapping) else iter(tuple(replies))
        self._name = name
        self.requests: list[Request] = []

    @property
    def name(self) -> str:
        return self._name

    def complete(self, request: Request) -> Reply:
        if not request.messages:
            raise ModelError(f"{self._name}: a request needs at least one message")
        self.requests.append(request)
        text = self._answer(request.messages[-1].text)
        words = sum(len(message.text.split()) for message in request.messages)
        return Reply(text, words, len(text.split()), self._name)

    def _answer(self, text: str) -> str:
        if self._by_text is None:
            answer = next(self._in_order, None)
            if answer is None:
                raise ModelError(f"{self._name}: the script has no reply left for request {len(self.requests)}")
            return answer
        if text not in self._by_text:
            raise ModelError(f"{self._name}: the script has no reply to {text[:60]!r}")
        return self._by_text[text]
