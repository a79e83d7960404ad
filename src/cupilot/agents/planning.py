"""How many calls a run may make, and how long they may be: what a dry run tells before money is spent."""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.agents.asking import asked
from cupilot.records import RunInfo


@dataclass(frozen=True)
class Planned:
    """Calls with one prompt; tokens are the most that one call may have."""

    prompt: str
    calls: int
    prompt_tokens: int
    reply_tokens: int

    @property
    def role(self) -> str:
        return self.prompt.partition("_")[0]


def plan(
    info: RunInfo,
    *,
    elite: int,
    revisions: int,
    prompt_tokens: int | None = None,
    reply_tokens: int | None = None,
) -> tuple[Planned, ...]:
    """The most calls that a run of this size makes; a reply that cannot be read is asked for once more.

    ``elite`` individuals of a generation are not bred anew, and each candidate may be revised
    ``revisions`` times; prompts and replies may be limited further than they are by themselves.
    """
    rounds = info.epochs * (info.generations + 1)
    children = info.epochs * info.generations * max(1, info.population - elite)
    candidates = info.epochs * info.population + children
    attempts = candidates * (1 + revisions)
    calls = {
        "generator_write": 0 if info.kernel else 1,
        "prophet_place": rounds + info.epochs if info.guided else 0,
        "manager_initialize": info.epochs,
        "manager_cross": children,
        "translator_write": candidates,
        "translator_align": attempts,
        "revisor_repair": candidates * revisions,
    }
    sizes = {prompt: asked(prompt, prompt_tokens, reply_tokens) for prompt in calls}
    return tuple(
        Planned(prompt, count, sizes[prompt].prompt_tokens, sizes[prompt].reply_tokens)
        for prompt, count in calls.items()
        if count
    )
