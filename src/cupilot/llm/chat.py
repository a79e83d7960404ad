"""One attempt at asking a server through any SDK: the reply, or an error in one clear sentence.

The body is read here and not by the SDK, so that a reply is limited in size and in time, even when a server sends a
little every second or sends without end.  Errors never contain the API key: it is removed from their text, and they
are not chained to the SDK's own errors, which hold the request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from cupilot.contracts import Message, Reply, Request, ToolCall
from cupilot.errors import ModelError
from cupilot.llm.cost import estimate_tokens
from cupilot.llm.dialects import Completion, Dialect
from cupilot.llm.errors import RequestRejected, Unavailable
from cupilot.llm.providers import ModelChoice
from cupilot.llm.request_options import AcceptedOptions, RequestOptions
from cupilot.llm.thinking import without_thinking
from cupilot.llm.tool_text import without_tools

BODY_LIMIT_BYTES = 16_000_000
QUOTED_CHARACTERS = 300

# besides 5xx: time-out, "too early" and too many requests
_TEMPORARY = frozenset({408, 425, 429})
_NO_TOOLS = re.compile(r"param: tools|tools param|support tool|support function|tool use", re.IGNORECASE)
_SENTENCES: Mapping[int, str] = {
    400: "the server did not accept the request",
    401: "the server did not accept the key in {key}",
    402: "the account behind {key} has no credit left",
    403: "the key in {key} may not use this model",
    404: "the server at {server} does not know this model, or is not an API server",
    413: "the request is too long for the server",
    422: "the server did not accept the request",
    429: "the server accepts no more requests for now",
}


class ChatModel:
    """A `cupilot.contracts.Model` without retries: every failure is raised at once."""

    def __init__(
        self, choice: ModelChoice, dialect: Dialect, key: str, timeout_s: float, clock: Callable[[], float]
    ) -> None:
        self._choice = choice
        self._dialect = dialect
        self._key = key
        self._timeout_s = timeout_s
        self._clock = clock
        self._options = AcceptedOptions(choice.provider)

    @property
    def name(self) -> str:
        return self._choice.name

    def complete(self, request: Request) -> Reply:
        if not any(message.role != "system" for message in request.messages):
            raise RequestRejected(f"{self.name}: a request needs at least one message besides the system message")
        request = replace(request, messages=tuple(map(_sendable_message, request.messages)))
        while True:
            options = self._options.current
            outcome = self._attempt(request, options)
            if isinstance(outcome, Reply):
                return outcome
            if not (isinstance(outcome, RequestRejected) and self._drop_rejected(outcome, options)):
                raise outcome  # not where the SDK's error is caught, or it would be chained to that error

    def _drop_rejected(self, error: RequestRejected, tried: RequestOptions) -> bool:
        if error.status == 404 and not _NO_TOOLS.search(error.complaint):
            return False
        return error.status in (400, 404, 422) and self._options.drop_rejected(error.complaint, tried)

    def _attempt(self, request: Request, options: RequestOptions) -> Reply | RequestRejected | Unavailable:
        body = self._exchange(request if options.tools else without_tools(request), options)
        if isinstance(body, ModelError):
            return body
        try:
            data = json.loads(body)
            if isinstance(data, dict) and data.get("error"):  # some send errors with status 200
                return self._error(_status(data["error"]), data["error"], {})
            completion = self._dialect.read(data)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return Unavailable(
                f"{self.name}: the server sent something other than a reply: {self._quoted(body[:2000])}"
            )
        return self._reply(request, completion)

    def _exchange(self, request: Request, options: RequestOptions) -> str | RequestRejected | Unavailable:
        sdk = self._dialect.sdk
        end = self._clock() + self._timeout_s
        try:
            with self._dialect.send(request, options) as response:
                return self._receive(response, end)
        except sdk.APIStatusError as error:
            return self._error(error.status_code, error.body, error.response.headers)
        except sdk.APITimeoutError:
            return self._timed_out()
        except sdk.APIConnectionError:
            return Unavailable(f"{self.name}: the server at {self._server} cannot be reached")

    def _receive(self, response: Any, end: float) -> str | RequestRejected | Unavailable:
        chunks, size_bytes = [], 0
        try:
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                size_bytes += len(chunk)
                if size_bytes > BODY_LIMIT_BYTES:
                    return RequestRejected(f"{self.name}: the server sent more than {BODY_LIMIT_BYTES} bytes")
                if self._clock() > end:
                    return self._timed_out()
        except Exception as error:
            # errors of the SDK's transport, a package that differs between releases
            if "Timeout" in type(error).__name__:
                return self._timed_out()
            return Unavailable(f"{self.name}: the connection to {self._server} broke off ({type(error).__name__})")
        return b"".join(chunks).decode("utf-8", "replace")

    def _reply(self, request: Request, completion: Completion) -> Reply:
        estimated = completion.input_tokens is None or completion.output_tokens is None
        return Reply(
            text=without_thinking(completion.text),
            input_tokens=completion.input_tokens or request_tokens(request),
            output_tokens=completion.output_tokens or estimate_tokens(completion.text + _arguments(completion.calls)),
            model=self.name,
            cut=completion.cut,
            estimated=estimated,
            calls=completion.calls if request.tools else (),
            extra=completion.extra if request.tools else "",
        )

    def _timed_out(self) -> Unavailable:
        return Unavailable(f"{self.name}: no answer within {self._timeout_s:g} s")

    def _error(self, status: int, body: object, headers: Mapping[str, str]) -> RequestRejected | Unavailable:
        complaint = self._without_key(_message(body))
        sentence = _SENTENCES.get(status, "the server failed" if status >= 500 else "the server refused")
        if status == 401 and not self._key:
            sentence = "the server wants a key, and {key} is not set"
        sentence = sentence.format(key=self._choice.provider.key, server=self._server)
        text = f"{self.name}: {sentence} (status {status}: {self._quoted(complaint)})"
        if status >= 500 and _NO_TOOLS.search(complaint):  # llama.cpp's way to say that it was started without them
            return RequestRejected(text, 400, complaint)
        # OpenAI sends 429 also when the account is empty, and then no retry helps
        if (status in _TEMPORARY or status >= 500) and "insufficient_quota" not in str(body):
            return Unavailable(text, _retry_after_s(headers))
        return RequestRejected(text, status, complaint)

    def _quoted(self, text: str) -> str:
        """A server's message as one short line, without the key and without control characters."""
        line = re.sub(r"[^\x20-\x7e\xa0-\U0010ffff]+", " ", self._without_key(text)).strip()
        return line if len(line) <= QUOTED_CHARACTERS else line[:QUOTED_CHARACTERS] + "..."

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text

    @property
    def _server(self) -> str:
        """Host and port, without a user name or password that the URL may contain."""
        parts = urlsplit(self._choice.base_url)
        return (parts.hostname or "") + (f":{parts.port}" if parts.port else "")


def _sendable(text: str) -> str:
    """The text with lone surrogates, which undecodable logs contain, replaced: they cannot be sent."""
    return text.encode("utf-8", "replace").decode()


def _sendable_message(message: Message) -> Message:
    calls = tuple(replace(call, arguments=_sendable(call.arguments)) for call in message.calls)
    return replace(message, text=_sendable(message.text), calls=calls)


def _arguments(calls: Iterable[ToolCall]) -> str:
    return "".join(call.name + call.arguments for call in calls)


def request_tokens(request: Request) -> int:
    """An estimate of what a request comes to: all texts, calls and tools."""
    texts = [message.text + _arguments(message.calls) for message in request.messages]
    tools = [tool.name + tool.description + tool.parameters for tool in request.tools]
    return estimate_tokens("".join((*texts, *tools)))


def _message(body: object) -> str:
    """The message in an error's body, which servers put in different places."""
    while isinstance(body, dict):
        body = body.get("error") or body.get("message") or body.get("detail") or json.dumps(body)
    return str(body or "no reason given")


def _status(error: object) -> int:
    code = error.get("code") or error.get("status") if isinstance(error, dict) else None
    return code if isinstance(code, int) and code >= 400 else 500


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long the server asks to wait, given in seconds, in milliseconds, or as a date."""
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", headers.get(name, "")):
            return float(headers[name]) * unit_s
    try:
        wait = parsedate_to_datetime(headers["retry-after"]) - parsedate_to_datetime(headers["date"])
        return max(0.0, wait.total_seconds())
    except (KeyError, ValueError, TypeError):
        return None
