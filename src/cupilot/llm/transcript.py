"""Replays of handwritten transcripts, for examples and tests.

A transcript is a file of JSON lines.  Replies are found by role and sample, so a changed prompt does not invalidate
it::

    {"role": "translator", "sample": 3, "text": "..."}
    {"role": "translator", "sample": 3, "attempt": 1, "file": "second-try.md"}
    {"role": "revisor", "text": "..."}

A line with a sample answers a request of that role and sample; ``attempt`` is 1 for the retry after an unusable reply,
and counts the turns of a dialogue with tools, whose actions stand in the text (see `cupilot.llm.tool_text`).
Several such lines answer different requests, in order.  Requests of different samples may come in any order and from
any thread.  Lines without a sample answer, in order, the requests of their role that no other line answers.  A repeated
request gets the same reply.  A reply is ``text``, or the contents of ``file`` beside the transcript, ``repeat`` times.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from cupilot.contracts import Reply, Request
from cupilot.errors import DataError, ModelError
from cupilot.llm.cost import estimate_tokens
from cupilot.llm.recording import call_key
from cupilot.llm.role import role_of
from cupilot.records import from_plain

# role, sample (None: any), attempt
Label = tuple[str, int | None, int]


@dataclass(frozen=True)
class TranscriptLine:
    """One line of a transcript; ``note`` is a comment."""

    role: str
    text: str = ""
    file: str = ""
    sample: int | None = None
    attempt: int = 0
    repeat: int = 1
    note: str = ""


class LabelledReplay:
    """A `cupilot.contracts.Model` that answers from a transcript; a request without a reply is an error."""

    def __init__(self, path: Path, name: str = "") -> None:
        self._path = path
        self._name = name or f"replay/{path.stem}"
        self._lock = Lock()
        self._left: defaultdict[Label, deque[str]] = defaultdict(deque)
        self._given: dict[str, str] = {}
        for number, line in _lines(path):
            label = (line.role, line.sample, line.attempt) if line.sample is not None else (line.role, None, 0)
            self._left[label].append(_text(line, path, number))

    @property
    def name(self) -> str:
        return self._name

    def complete(self, request: Request) -> Reply:
        role = role_of(request)
        if not role:
            raise ModelError(f"{self._name}: the request does not begin with '# role: NAME' in its system message")
        text = self._find(role, request)
        sent = sum(estimate_tokens(message.text) for message in request.messages)
        return Reply(text, sent, estimate_tokens(text), self._name, estimated=True)

    def _find(self, role: str, request: Request) -> str:
        attempt = sum(message.role == "assistant" for message in request.messages)
        key = call_key(self._name, request)
        with self._lock:
            if key not in self._given:
                left = self._left[role, request.sample, attempt] or self._left[role, None, 0]
                if not left:
                    raise ModelError(
                        f"{self._name}: {self._path.name} has no reply left for {role}, sample {request.sample}"
                        + (f", asked again {attempt} times" if attempt else "")
                    )
                self._given[key] = left.popleft()
            return self._given[key]


def _lines(path: Path) -> list[tuple[int, TranscriptLine]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the transcript {path} cannot be read: {error}") from error
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append((number, from_plain(TranscriptLine, json.loads(line), f"{path}, line {number}")))
        except json.JSONDecodeError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
    return found


def _text(line: TranscriptLine, path: Path, number: int) -> str:
    if bool(line.text) == bool(line.file):
        raise DataError(f"{path}, line {number}: give either text or file")
    if not line.file:
        return line.text * line.repeat
    if Path(line.file).name != line.file:
        raise DataError(f"{path}, line {number}: {line.file!r} has to be a file beside the transcript")
    try:
        return path.with_name(line.file).read_text(encoding="utf-8") * line.repeat
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}, line {number}: {line.file} cannot be read: {error}") from error
