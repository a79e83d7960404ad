"""One question to one role: build the prompt, ask the role's model, and notify an observer of every call."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from cupilot.agents.alignment import Report
from cupilot.agents.dialogue import CONVERSATION_TOKENS, Dialogue
from cupilot.agents.prompt_sections import PromptContext, build_section
from cupilot.agents.templates import render_block, render_file, render_section
from cupilot.agents.token_budget import fit_sections, section_sizes
from cupilot.contracts import ROLES, AgentModel, Message, Model, Reply, Request, Tools, works_alone
from cupilot.errors import DataError
from cupilot.llm import Parsed, Unparsable, ask, estimate_tokens
from cupilot.records import Failure, Kernel, from_plain

OnCall = Callable[[str, Request, Reply], None]
T = TypeVar("T")

LEAST_WINDOW_TOKENS = 4_000
FIRST_SHARE = 0.5
"""Of a window that the user has limited, for the first prompt of a dialogue; the rest is for what follows."""


@dataclass(frozen=True)
class PromptSettings:
    """One table of `prompts.toml`."""

    sections: tuple[str, ...]
    temperature: float
    prompt_tokens: int
    reply_tokens: int


@cache
def prompt_settings() -> Mapping[str, PromptSettings]:
    """The tables of `prompts.toml` by prompt, ``<role>_<purpose>``."""
    data = tomllib.loads(Path(__file__).with_name("prompts.toml").read_text(encoding="utf-8"))
    return {name: from_plain(PromptSettings, entry, f"prompts.toml, {name}") for name, entry in data.items()}


def settings_for(prompt: str, prompt_tokens: int | None = None, reply_tokens: int | None = None) -> PromptSettings:
    """The settings of a prompt; the arguments may lower its token limits, never raise them."""
    settings = prompt_settings()[prompt]
    return replace(
        settings,
        prompt_tokens=min(settings.prompt_tokens, prompt_tokens or settings.prompt_tokens),
        reply_tokens=min(settings.reply_tokens, reply_tokens or settings.reply_tokens),
    )


def build_request(
    prompt: str,
    context: PromptContext,
    prompt_tokens: int | None = None,
    reply_tokens: int | None = None,
    **values: Any,
) -> Request:
    """The request for a prompt, ``<role>_<purpose>``; ``values`` fill the prompt file's own text.

    ``prompt_tokens`` and ``reply_tokens`` lower the limits of `prompts.toml`, for a model with a small window.  Only
    the items of sections are cut; the instructions around them always stay.
    """
    settings = settings_for(prompt, prompt_tokens, reply_tokens)
    sections = [section for name in settings.sections if (section := build_section(name, context)) is not None]
    sizes = section_sizes()
    system = render_block(prompt, "system", language=context.language)
    question = render_block(prompt, "user", sections="", **values)
    # text around the items is never cut, so the items share what it leaves
    frames = [render_section(replace(s, items=()) if s.name in sizes else s) for s in sections]
    room = settings.prompt_tokens - sum(estimate_tokens(text) + 1 for text in (system, question, *frames))
    body = "\n\n".join(render_section(section) for section in fit_sections(sections, room, sizes))
    return Request(
        (Message("system", system), Message("user", render_block(prompt, "user", sections=body, **values))),
        temperature=settings.temperature,
        max_tokens=settings.reply_tokens,
        sample=context.brief.sample,
    )


class RoleClient:
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

    def ask(
        self, prompt: str, context: PromptContext, shape: type[T], objection: Callable[[T], str], **values: Any
    ) -> Parsed[T] | Unparsable:
        """A record of type ``shape``, or why there is none; a `ModelError` when the model cannot be asked."""
        role = prompt.partition("_")[0]
        request = build_request(prompt, context, self._prompt_tokens, self._reply_tokens, **values)
        return ask(_NotifyingModel(self._models[role], role, self._on_call), request, shape, objection)

    @property
    def has_room_for_tools(self) -> bool:
        """Whether a conversation fits: in a small window, there is one question and one reply."""
        return self._prompt_tokens is None or self._prompt_tokens >= LEAST_WINDOW_TOKENS

    def use_tools(
        self, prompt: str, context: PromptContext, tools: Tools, stage: str, **values: Any
    ) -> tuple[Kernel | Failure, Report | None]:
        """The kernel that a dialogue with tools ends with, or why there is none; and the report of a submission."""
        role = prompt.partition("_")[0]
        room = None if self._prompt_tokens is None else int(self._prompt_tokens * FIRST_SHARE)
        request = build_request(prompt, context, room, self._reply_tokens, **values)
        asked = render_file("tools", turns=tools.budget.turns, current=_CURRENT[context.kernel is not None])
        *before, last = request.messages
        request = replace(request, messages=(*before, replace(last, text=f"{last.text}\n\n{asked}")))
        model = _NotifyingModel(self._models[role], role, self._on_call)
        window = self._prompt_tokens or CONVERSATION_TOKENS
        dialogue = Dialogue(model, request, tools, role, stage, window)
        return dialogue.run(), dialogue.report


_CURRENT = {True: "the kernel shown above", False: "none"}


class _NotifyingModel:
    """Passes requests on to a model and calls ``on_call`` after each reply."""

    def __init__(self, model: Model, role: str, on_call: OnCall) -> None:
        self._model = model
        self._role = role
        self._on_call = on_call

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def works_alone(self) -> bool:
        return works_alone(self._model)

    def complete(self, request: Request) -> Reply:
        reply = self._model.complete(request)
        self._on_call(self._role, request, reply)
        return reply

    def work(self, request: Request, tools: Tools) -> Reply:
        reply = cast(AgentModel, self._model).work(request, tools)
        self._on_call(self._role, request, reply)
        return reply
