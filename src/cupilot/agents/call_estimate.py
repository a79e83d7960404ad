"""How many model calls a run may make, and how long they may be; used to estimate costs before any are made."""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.agents.prompting import settings_for
from cupilot.records import RunInfo


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
    """The most calls that a run of this size makes; each may be repeated once, when its reply cannot be used.

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
    settings = {prompt: settings_for(prompt, prompt_tokens, reply_tokens) for prompt in calls}
    return tuple(
        PlannedCalls(prompt, count, settings[prompt].prompt_tokens, settings[prompt].reply_tokens)
        for prompt, count in calls.items()
        if count
    )
