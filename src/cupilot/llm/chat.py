"""One attempt at asking a server, whatever its SDK: the answer, or an error in a clear sentence.

The body is read here and not by the SDK, so that a reply has a limit in size and in time: a server that
sends a little every second, or sends without end, is stopped.  Keys: error texts are rid of the key, and no
error refers to the SDK's own one, which holds the request and so the key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from cupilot.contracts import Message, Request
from cupilot.errors import ModelError
from cupilot.llm.answer import Answer, Refused, Unavailable, count_tokens
from cupilot.llm.dialects import Dialect, Reading
from cupilot.llm.manner import Manner, Manners
from cupilot.llm.providers import Choice
from cupilot.llm.thinking import without_thinking

BODY_LIMIT_BYTES = 16_000_000
QUOTED_CHARACTERS = 300

# beside 5xx: time-out, "too early" and too many requests
_PASSING = frozenset({408, 425, 429})
_SENTENCES: Mapping[int, str] = {
    400: "the server did not take the request",
    401: "the server did not accept the key in {key}",
    402: "the account behind {key} has no credit left",
    403: "the key in {key} may not use this model",
    404: "the server at {server} does not know this model, or is no such server",
    413: "the request is too long for the server",
    422: "the server did not take the request",
    429: "the server takes no more requests for now",
}


class Chat:
    """A `cupilot.contracts.Model` without patience: every failure is raised at once."""

    def __init__(
        self, choice: Choice, dialect: Dialect, key: str, timeout_s: float, clock: Callable[[], float]
    ) -> None:
        self._choice = choice
        self._dialect = dialect
        self._key = key
        self._timeout_s = timeout_s
        self._clock = clock
        self._manners = Manners(choice.provider)

    @property
    def name(self) -> str:
        return self._choice.name

    def complete(self, request: Request) -> Answer:
        if not any(message.role != "system" for message in request.messages):
            raise Refused(f"{self.name}: a request needs at least one message beside the system's")
        request = replace(request, messages=tuple(Message(m.role, _sendable(m.text)) for m in request.messages))
        while True:
            manner = self._manners.current
            outcome = self._attempt(request, manner)
            if isinstance(outcome, Answer):
                return outcome
            if not (isinstance(outcome, Refused) and self._concede(outcome, manner)):
                raise outcome  # here and not where the SDK's error was caught: it must not refer to that one

    def _concede(self, refusal: Refused, tried: Manner) -> bool:
        return refusal.status in (400, 422) and self._manners.concede(refusal.complaint, tried)

    def _attempt(self, request: Request, manner: Manner) -> Answer | Refused | Unavailable:
        body = self._exchange(request, manner)
        if isinstance(body, ModelError):
            return body
        try:
            data = json.loads(body)
            if isinstance(data, dict) and data.get("error"):  # some send errors with status 200
                return self._error(_status(data["error"]), data["error"], {})
            reading = self._dialect.read(data)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return Unavailable(f"{self.name}: the server sent something that is no reply: {self._quoted(body[:2000])}")
        return self._answer(request, reading)

    def _exchange(self, request: Request, manner: Manner) -> str | Refused | Unavailable:
        sdk = self._dialect.sdk
        end = self._clock() + self._timeout_s
        try:
            with self._dialect.send(request, manner) as response:
                return self._receive(response, end)
        except sdk.APIStatusError as error:
            return self._error(error.status_code, error.body, error.response.headers)
        except sdk.APITimeoutError:
            return self._too_late()
        except sdk.APIConnectionError:
            return Unavailable(f"{self.name}: the server at {self._server} cannot be reached")

    def _receive(self, response: Any, end: float) -> str | Refused | Unavailable:
        chunks, size_bytes = [], 0
        try:
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                size_bytes += len(chunk)
                if size_bytes > BODY_LIMIT_BYTES:
                    return Refused(f"{self.name}: the server sent more than {BODY_LIMIT_BYTES} bytes")
                if self._clock() > end:
                    return self._too_late()
        except Exception as error:
            # the errors of the SDK's transport, which is not ours to import and differs between releases
            if "Timeout" in type(error).__name__:
                return self._too_late()
            return Unavailable(f"{self.name}: the connection to {self._server} broke off ({type(error).__name__})")
        return b"".join(chunks).decode("utf-8", "replace")

    def _answer(self, request: Request, reading: Reading) -> Answer:
        estimated = reading.input_tokens is None or reading.output_tokens is None
        return Answer(
            text=without_thinking(reading.text),
            input_tokens=reading.input_tokens or count_tokens("".join(m.text for m in request.messages)),
            output_tokens=reading.output_tokens or count_tokens(reading.text),
            model=self.name,
            cut=reading.cut,
            estimated=estimated,
        )

    def _too_late(self) -> Unavailable:
        return Unavailable(f"{self.name}: no answer within {self._timeout_s:g} s")

    def _error(self, status: int, body: object, headers: Mapping[str, str]) -> Refused | Unavailable:
        complaint = self._without_key(_message(body))
        sentence = _SENTENCES.get(status, "the server failed" if status >= 500 else "the server refused")
        if status == 401 and not self._key:
            sentence = "the server wants a key, and {key} is not set"
        sentence = sentence.format(key=self._choice.provider.key, server=self._server)
        text = f"{self.name}: {sentence} (status {status}: {self._quoted(complaint)})"
        # OpenAI says 429 also when the account is empty, which no waiting helps against
        if (status in _PASSING or status >= 500) and "insufficient_quota" not in str(body):
            return Unavailable(text, _retry_after_s(headers))
        return Refused(text, status, complaint)

    def _quoted(self, text: str) -> str:
        """A server's words as one short line: no key, and nothing a terminal would act on."""
        line = re.sub(r"[^\x20-\x7e\xa0-\U0010ffff]+", " ", self._without_key(text)).strip()
        return line if len(line) <= QUOTED_CHARACTERS else line[:QUOTED_CHARACTERS] + "..."

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text

    @property
    def _server(self) -> str:
        """Where the server is, without what an address may hold in names and passwords."""
        parts = urlsplit(self._choice.base_url)
        return (parts.hostname or "") + (f":{parts.port}" if parts.port else "")


def _sendable(text: str) -> str:
    """Half characters, as they come out of undecodable logs, cannot be sent."""
    return text.encode("utf-8", "replace").decode()


def _message(body: object) -> str:
    """The sentence in an error's body, which is found at several places."""
    while isinstance(body, dict):
        body = body.get("error") or body.get("message") or body.get("detail") or json.dumps(body)
    return str(body or "no reason given")


def _status(error: object) -> int:
    code = error.get("code") or error.get("status") if isinstance(error, dict) else None
    return code if isinstance(code, int) and code >= 400 else 500


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long the server asks to wait: in seconds, milliseconds, or as a date after its own clock's."""
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", headers.get(name, "")):
            return float(headers[name]) * unit_s
    try:
        wait = parsedate_to_datetime(headers["retry-after"]) - parsedate_to_datetime(headers["date"])
        return max(0.0, wait.total_seconds())
    except (KeyError, ValueError, TypeError):
        return None
