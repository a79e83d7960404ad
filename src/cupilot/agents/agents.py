"""The five roles played by language models; `cupilot.contracts.Agents` like the expert.

A role that gets no usable answer never stops a run: the Translator and the Revisor return a `Failure`,
the Manager merges and draws by itself, the Prophet keeps to its numbers, alignment to what it can check
itself.  Only the Generator has nothing to fall back on, and raises `ModelError` after its tries.
The same replies and the same generator give the same answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from random import Random
from typing import Any, TypeVar

from cupilot.agents import chance
from cupilot.agents.asking import Asker, OnCall
from cupilot.agents.evidence import check
from cupilot.agents.parts import PLAIN, Matter
from cupilot.agents.prophet import computed
from cupilot.agents.reading import read_kernel, read_move, read_strategy, remarked, unlike
from cupilot.agents.replies import (
    GIVE_UP,
    AimReply,
    AlignReply,
    KernelReply,
    RepairReply,
    StrategiesReply,
    StrategyReply,
)
from cupilot.agents.wording import one_line
from cupilot.contracts import Brief, Model, Reply, Request
from cupilot.errors import ModelError
from cupilot.gpu.spec import GpuSpec
from cupilot.llm import Unparsable
from cupilot.records import Evaluation, Failure, Guidance, Kernel, Move, Strategy, Task
from cupilot.strategies import Deck, load_deck, same

TRIES = 3
AIM_CHARACTERS = 300

T = TypeVar("T")


def _nobody(role: str, request: Request, reply: Reply) -> None:
    """Nobody wants to know of the calls."""


class LlmAgents:
    """Implements `cupilot.contracts.Agents` with one model, or one for each role.

    ``on_call`` is told of every reply, from whichever thread it came in.  ``prompt_tokens`` and
    ``reply_tokens`` lower the length of all prompts and replies, for small models and small windows.
    """

    def __init__(
        self,
        default: Model,
        *,
        models: Mapping[str, Model] | None = None,
        deck: Deck | None = None,
        prompt_tokens: int | None = None,
        reply_tokens: int | None = None,
        on_call: OnCall = _nobody,
    ) -> None:
        self._deck = load_deck() if deck is None else deck
        self._asker = Asker(models or {}, default, on_call, prompt_tokens, reply_tokens)

    @property
    def name(self) -> str:
        return "llm"

    # --- Kernel Generator and Roofline Prophet ---------------------------------------------

    def generate(self, brief: Brief) -> Kernel:
        """Kernel Generator: asked up to three times, each time with what was wrong before."""
        why = ""
        for _ in range(TRIES):
            matter = Matter(brief, self._deck, failed=why)
            found = self._ask("generator_write", matter, KernelReply)
            kernel = found if isinstance(found, Failure) else read_kernel(found.code, "generate", matter.language)
            if isinstance(kernel, Kernel):
                return kernel
            why = kernel.message
        raise ModelError(f"no plain kernel for {brief.task.name} after {TRIES} tries: {why}")

    def foresee(self, task: Task, evaluation: Evaluation, spec: GpuSpec) -> Guidance:
        """Roofline Prophet: the numbers are computed; the model says in one sentence what to aim for."""
        guidance = computed(task, evaluation, spec)
        matter = Matter(Brief(task, spec, guidance), self._deck, evaluation=evaluation)
        found = self._ask("prophet_place", matter, AimReply)
        aim = "" if isinstance(found, Failure) else one_line(found.aim)[:AIM_CHARACTERS]
        return replace(
            guidance, sentence=f"{guidance.sentence} {aim or f'Aim at moves that relieve {guidance.limit}.'}"
        )

    # --- SCE Manager -----------------------------------------------------------------------

    def initialize(self, brief: Brief, count: int, rng: Random) -> tuple[Strategy, ...]:
        """SCE Manager: what paid on similar tasks, what the model proposes, and draws to fill up."""
        matter = self._matter(brief)
        chosen = chance.from_pool(matter, ceil(chance.POOL_SHARE * count))
        wanted = count - len(chosen)
        if wanted > 0:
            guided = brief.guidance is not None
            found = self._ask("manager_initialize", matter, StrategiesReply, count=wanted, guided=guided)
            replies = () if isinstance(found, Failure) else found.strategies
            proposed = [self._strategy(reply, brief) for reply in replies]
            chosen += unlike(proposed, [PLAIN, *chosen])
        while len(chosen) < count and (extra := chance.drawn(matter, rng, chosen)) is not None:
            chosen.append(extra)
        return tuple(chosen[:count])

    def cross(self, brief: Brief, rng: Random) -> Strategy:
        """SCE Manager: a child of two parents, or a step away from one; merged or drawn if the model has none."""
        matter = self._matter(brief)
        values: dict[str, Any] = {"guided": brief.guidance is not None, "spark": chance.spark(matter, rng)}
        if len(brief.parents) > 1:
            found = self._ask("manager_cross", matter, StrategyReply, **values)
        else:
            found = self._ask("manager_mutate", matter, StrategyReply, step=chance.step(rng), **values)
        parents = [PLAIN, *(one.strategy for one in brief.parents)]
        if not isinstance(found, Failure):
            child = self._strategy(found, brief)
            if not any(same(child, parent) for parent in parents):
                return child
        return chance.crossed(matter, rng)

    # --- Strategy Translator ---------------------------------------------------------------

    def translate(self, brief: Brief, strategy: Strategy) -> Kernel | Failure:
        """Strategy Translator: the model's code for the strategy, from the first parent's kernel."""
        matter = self._matter(brief, strategy=strategy)
        found = self._ask("translator_write", matter, KernelReply, has_kernel=matter.kernel is not None)
        if isinstance(found, Failure):
            return replace(found, stage="translate")
        return read_kernel(found.code, "translate", matter.language)

    def align(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Strategy:
        """Strategy Translator: the model's wording, less what cannot be seen; a plain kernel stays plain."""
        if not strategy.moves:
            return strategy
        matter = Matter(brief, self._deck, kernel, evaluation, strategy)
        found = self._ask("translator_align", matter, AlignReply)
        quotes: dict[str, str] | None = None
        claimed = strategy
        if not isinstance(found, Failure):
            read = [(read_move(seen.move, self._deck, []), seen.quote) for seen in found.moves]
            quotes = {move.card: quote for move, quote in read if move is not None}
            seen_moves = [seen.move for seen in found.moves]
            claimed = read_strategy(seen_moves, found.text, self._deck, brief.spec, brief.task.precision)
            claimed = replace(claimed, moves=tuple(_reasoned(move, strategy) for move in claimed.moves))
        checked = check(claimed, kernel, evaluation.profile, quotes)
        if not checked.struck:
            return claimed
        return Strategy(checked.moves, remarked(claimed.text, [f"struck {reason}" for reason in checked.struck]))

    # --- Kernel Revisor --------------------------------------------------------------------

    def revise(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Kernel | Failure:
        """Kernel Revisor: repaired code, or a failure with the reason."""
        matter = Matter(brief, self._deck, kernel, evaluation, strategy)
        found = self._ask("revisor_repair", matter, RepairReply, failed=evaluation.failure is not None)
        if isinstance(found, Failure):
            return replace(found, stage="revise")
        if found.verdict.strip().lower().replace(" ", "-") == GIVE_UP or not found.code.strip():
            return Failure("revise", "given-up", one_line(found.reason) or "the model gave no reason")
        return read_kernel(found.code, "revise", matter.language)

    # --- asking ----------------------------------------------------------------------------

    def _matter(self, brief: Brief, strategy: Strategy = PLAIN) -> Matter:
        """About the first parent's kernel."""
        first = brief.parents[0] if brief.parents else None
        if first is None:
            return Matter(brief, self._deck, strategy=strategy)
        return Matter(brief, self._deck, first.kernel, first.evaluation, strategy)

    def _strategy(self, reply: StrategyReply, brief: Brief) -> Strategy:
        text = f"{reply.text} {reply.reason}".strip()
        return read_strategy(reply.moves, text, self._deck, brief.spec, brief.task.precision)

    def _ask(self, prompt: str, matter: Matter, shape: type[T], **values: Any) -> T | Failure:
        """What the model says, or a failure that says why there is nothing."""
        try:
            found = self._asker.ask(prompt, matter, shape, **values)
        except ModelError as error:
            return Failure("ask", "no-reply", one_line(str(error)))
        if isinstance(found, Unparsable):
            log = found.replies[-1].text[:AIM_CHARACTERS] if found.replies else ""
            return Failure("ask", "unparsable", one_line(found.message), log)
        return found.value


def _reasoned(move: Move, strategy: Strategy) -> Move:
    """The reason for which a move was chosen stays with it."""
    before = strategy.move(move.card)
    return replace(move, reason=before.reason) if before is not None and before.reason else move
