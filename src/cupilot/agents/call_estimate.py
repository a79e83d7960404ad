"""How many model calls a run may make, and how long they may be; used to estimate costs before any are made."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from cupilot.agents.dialogue import CONVERSATION_TOKENS
from cupilot.agents.prompting import LEAST_WINDOW_TOKENS, settings_for
from cupilot.records import RunInfo

DIALOGUES = ("translator_write", "revisor_repair")
"""Prompts that may take several turns with tools."""


@dataclass(frozen=True)
class PlannedCalls:
    """Calls with one prompt; tokens are the limits of one call."""

    prompt: str
    calls: int
    prompt_tokens: int
    reply_tokens: int

    @property
    def role(self) -> str:
        return self.prompt.partition("_")[0]


def plan_calls(
    info: RunInfo,
    *,
    elite: int,
    revisions: int,
    prompt_tokens: int | None = None,
    reply_tokens: int | None = None,
) -> tuple[PlannedCalls, ...]:
    """The most calls that a run of this size makes; each may be repeated once, when its reply cannot be used, or takes
    all turns of its dialogue.

    Not among them is the question about the moves of a kernel whose writer reported none (`translator_align`).

    ``elite`` individuals of a generation survive unchanged, and each candidate may be revised ``revisions`` times.
    ``prompt_tokens`` and ``reply_tokens`` lower the limits of `prompts.toml`.
    """
    rounds = info.epochs * (info.generations + 1)
    children = info.epochs * info.generations * max(1, info.population - elite)
    candidates = info.epochs * info.population + children
    calls = {
        "generator_write": 0 if info.kernel else 1,
        "prophet_place": rounds + info.epochs if info.guided else 0,
        "manager_initialize": info.epochs,
        "manager_cross": children,
        "translator_write": candidates,
        "revisor_repair": candidates * revisions,
    }
    has_room = prompt_tokens is None or prompt_tokens >= LEAST_WINDOW_TOKENS
    turns = info.dialogue.turns if has_room else 1
    settings = {prompt: settings_for(prompt, prompt_tokens, reply_tokens) for prompt in calls}
    planned = []
    for prompt, count in calls.items():
        longest, times = settings[prompt].prompt_tokens, 1
        if prompt in DIALOGUES and turns > 1:
            # the last turn begins when the tokens are spent, and may be as long as the window
            window, times = prompt_tokens or CONVERSATION_TOKENS, turns
            longest = min(window, ceil((info.dialogue.tokens + window) / turns))
        planned.append(PlannedCalls(prompt, count * times, longest, settings[prompt].reply_tokens))
    return tuple(one for one in planned if one.calls)
