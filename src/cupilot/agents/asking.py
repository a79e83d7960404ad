"""One question to one role: prompt put together, model asked, every call told to who wants to know."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from cupilot.agents.budget import fit, sizes, tokens_in
from cupilot.agents.parts import Matter, section_of
from cupilot.agents.wording import block, section
from cupilot.contracts import Message, Model, Reply, Request
from cupilot.errors import DataError
from cupilot.llm import Parsed, Unparsable, ask
from cupilot.records import from_plain

ROLES = ("generator", "prophet", "manager", "translator", "revisor")

OnCall = Callable[[str, Request, Reply], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Ask:
    """One entry of `asks.toml`."""

    parts: tuple[str, ...]
    temperature: float
    prompt_tokens: int
    reply_tokens: int


@cache
def asks() -> Mapping[str, Ask]:
    """The table of `asks.toml`, by prompt."""
    data = tomllib.loads(Path(__file__).with_name("asks.toml").read_text(encoding="utf-8"))
    return {name: from_plain(Ask, entry, f"asks.toml, {name}") for name, entry in data.items()}


def asked(prompt: str, prompt_tokens: int | None = None, reply_tokens: int | None = None) -> Ask:
    """The entry of ``<role>_<purpose>``, with less for prompt and reply where that is given."""
    entry = asks()[prompt]
    return replace(
        entry,
        prompt_tokens=min(entry.prompt_tokens, prompt_tokens or entry.prompt_tokens),
        reply_tokens=min(entry.reply_tokens, reply_tokens or entry.reply_tokens),
    )


def request_for(
    prompt: str, matter: Matter, prompt_tokens: int | None = None, reply_tokens: int | None = None, **values: Any
) -> Request:
    """The request for ``<role>_<purpose>``; ``values`` are those of the prompt file's own text.

    ``prompt_tokens`` and ``reply_tokens`` may lower what either may have (a model with a small window).  A prompt
    is never shorter than what it says beside tasks, kernels, cards and the like.
    """
    settings = asked(prompt, prompt_tokens, reply_tokens)
    parts = [part for name in settings.parts if (part := section_of(name, matter)) is not None]
    system = block(prompt, "system", language=matter.language)
    # what is said around the items is never cut, so the items share the rest
    frame = [section(replace(part, items=()) if part.name in sizes() else part) for part in parts]
    question = block(prompt, "user", sections="", **values)
    room = settings.prompt_tokens - sum(tokens_in(text) + 1 for text in (system, question, *frame))
    sections = "\n\n".join(section(part) for part in fit(parts, room, sizes()))
    user = block(prompt, "user", sections=sections, **values)
    return Request(
        (Message("system", system), Message("user", user)),
        temperature=settings.temperature,
        max_tokens=settings.reply_tokens,
        sample=matter.brief.sample,
    )


class Asker:
    """Asks the model of a role; safe to use from several threads if the models are."""

    def __init__(
        self,
        models: Mapping[str, Model],
        default: Model,
        on_call: OnCall,
        prompt_tokens: int | None = None,
        reply_tokens: int | None = None,
    ) -> None:
        unknown = sorted(set(models) - set(ROLES))
        if unknown:
            raise DataError(f"there is no role {unknown[0]!r}; roles are {', '.join(ROLES)}")
        self._models = {role: models.get(role, default) for role in ROLES}
        self._on_call = on_call
        self._prompt_tokens = prompt_tokens
        self._reply_tokens = reply_tokens

    def ask(self, prompt: str, matter: Matter, shape: type[T], **values: Any) -> Parsed[T] | Unparsable:
        """A record of ``shape``, or why there is none; a `ModelError` when the model could not be asked."""
        role = prompt.partition("_")[0]
        request = request_for(prompt, matter, self._prompt_tokens, self._reply_tokens, **values)
        return ask(_Overheard(self._models[role], role, self._on_call), request, shape)


class _Overheard:
    """A model whose calls are told to somebody."""

    def __init__(self, model: Model, role: str, on_call: OnCall) -> None:
        self._model = model
        self._role = role
        self._on_call = on_call

    @property
    def name(self) -> str:
        return self._model.name

    def complete(self, request: Request) -> Reply:
        reply = self._model.complete(request)
        self._on_call(self._role, request, reply)
        return reply
