"""The five roles played by language models, with the same interface as the expert: `cupilot.contracts.Agents`.

A missing or unusable reply never stops a run: the Translator and the Revisor return a `Failure`, the Manager merges and
draws strategies itself, the Prophet returns its computed numbers, alignment relies on the evidence alone.  Only the
Generator has no fallback, and raises `ModelError` after its tries.
The same replies and the same random generator give the same results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from random import Random
from typing import Any, TypeVar

from cupilot.agents import fallback
from cupilot.agents.evidence import check
from cupilot.agents.prompt_sections import PLAIN, PromptContext
from cupilot.agents.prompting import OnCall, RoleClient
from cupilot.agents.prophet import compute_guidance
from cupilot.agents.replies import (
    GIVE_UP,
    AimReply,
    AlignReply,
    KernelReply,
    RepairReply,
    StrategiesReply,
    StrategyReply,
)
from cupilot.agents.reply_parsing import distinct, parse_kernel, parse_move, parse_strategy, with_remarks
from cupilot.agents.templates import one_line
from cupilot.contracts import Brief, Model, Revision
from cupilot.errors import ModelError
from cupilot.gpu.spec import GpuSpec
from cupilot.llm import Unparsable
from cupilot.records import Evaluation, Failure, Guidance, Kernel, Move, Strategy, Task
from cupilot.strategies import Deck, load_deck, same
from cupilot.strategies.pool_rank import POOL_SHARE

TRIES = 3
AIM_CHARACTERS = 300

T = TypeVar("T")


class LlmAgents:
    """Implements `cupilot.contracts.Agents` with one model, or one for each role.

    ``on_call`` is called with every reply, in the thread that received it.  ``prompt_tokens`` and ``reply_tokens``
    lower the limits of all prompts and replies, for models with a small window.
    """

    def __init__(
        self,
        default: Model,
        *,
        models: Mapping[str, Model] | None = None,
        deck: Deck | None = None,
        prompt_tokens: int | None = None,
        reply_tokens: int | None = None,
        on_call: OnCall = lambda role, request, reply: None,
    ) -> None:
        self._deck = load_deck() if deck is None else deck
        self._client = RoleClient(models or {}, default, on_call, prompt_tokens, reply_tokens)

    @property
    def name(self) -> str:
        return "llm"

    # --- Kernel Generator and Roofline Prophet ---------------------------------------------

    def generate(self, brief: Brief) -> Kernel:
        """Kernel Generator: asked up to three times, each time with what was wrong with the last reply."""
        why = ""
        for _ in range(TRIES):
            context = PromptContext(brief, self._deck, reply_problem=why)
            found = self._ask("generator_write", context, KernelReply)
            kernel = found if isinstance(found, Failure) else parse_kernel(found.code, "generate", context.language)
            if isinstance(kernel, Kernel):
                return kernel
            why = kernel.message
        raise ModelError(f"no plain kernel for {brief.task.name} after {TRIES} tries: {why}")

    def foresee(self, task: Task, evaluation: Evaluation, spec: GpuSpec) -> Guidance:
        """Roofline Prophet: the numbers are computed; the model adds one sentence about what to aim for."""
        guidance = compute_guidance(task, evaluation, spec)
        context = PromptContext(Brief(task, spec, guidance), self._deck, evaluation=evaluation)
        found = self._ask("prophet_place", context, AimReply)
        aim = "" if isinstance(found, Failure) else one_line(found.aim)[:AIM_CHARACTERS]
        return replace(
            guidance, sentence=f"{guidance.sentence} {aim or f'Aim at moves that relieve {guidance.limit}.'}"
        )

    # --- SCE Manager -----------------------------------------------------------------------

    def initialize(self, brief: Brief, count: int, rng: Random) -> tuple[Strategy, ...]:
        """SCE Manager: what paid on similar tasks, what the model proposes, and random draws for the rest."""
        context = self._context(brief)
        chosen = fallback.pool_strategies(context, ceil(POOL_SHARE * count))
        wanted = count - len(chosen)
        if wanted > 0:
            guided = brief.guidance is not None
            found = self._ask("manager_initialize", context, StrategiesReply, count=wanted, guided=guided)
            replies = () if isinstance(found, Failure) else found.strategies
            proposed = [self._strategy(reply, brief) for reply in replies]
            chosen += distinct(proposed, [PLAIN, *chosen])
        while len(chosen) < count and (extra := fallback.draw_strategy(context, rng, chosen)) is not None:
            chosen.append(extra)
        return tuple(chosen[:count])

    def cross(self, brief: Brief, rng: Random) -> Strategy:
        """SCE Manager: a child of two parents, or a mutation of one; merged or drawn if the model proposes none."""
        context = self._context(brief)
        values: dict[str, Any] = {
            "guided": brief.guidance is not None,
            "suggestion": fallback.suggested_card(context, rng),
        }
        if len(brief.parents) > 1:
            found = self._ask("manager_cross", context, StrategyReply, **values)
        else:
            found = self._ask("manager_mutate", context, StrategyReply, step=fallback.mutation(rng), **values)
        parents = [PLAIN, *(one.strategy for one in brief.parents)]
        if not isinstance(found, Failure):
            child = self._strategy(found, brief)
            if not any(same(child, parent) for parent in parents):
                return child
        return fallback.merge_parents(context, rng)

    # --- Strategy Translator ---------------------------------------------------------------

    def translate(self, brief: Brief, strategy: Strategy) -> Kernel | Failure:
        """Strategy Translator: the model's code for the strategy, based on the first parent's kernel."""
        context = self._context(brief, strategy=strategy)
        if brief.tools is not None and self._client.has_room_for_tools:
            has_kernel = context.kernel is not None
            return self._client.use_tools("translator_write", context, brief.tools, "translate", has_kernel=has_kernel)
        found = self._ask("translator_write", context, KernelReply, has_kernel=context.kernel is not None)
        if isinstance(found, Failure):
            return replace(found, stage="translate")
        return parse_kernel(found.code, "translate", context.language)

    def align(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Strategy:
        """Strategy Translator: the model's wording without the moves that are not visible in the kernel."""
        if not strategy.moves:
            return strategy
        context = PromptContext(brief, self._deck, kernel, evaluation, strategy)
        found = self._ask("translator_align", context, AlignReply)
        quotes: dict[str, str] | None = None
        claimed = strategy
        if not isinstance(found, Failure):
            read = [(parse_move(seen.move, self._deck, []), seen.quote) for seen in found.moves]
            quotes = {move.card: quote for move, quote in read if move is not None}
            seen_moves = [seen.move for seen in found.moves]
            claimed = parse_strategy(seen_moves, found.text, self._deck, brief.spec, brief.task.precision)
            claimed = replace(claimed, moves=tuple(_with_reason(move, strategy) for move in claimed.moves))
        checked = check(claimed, self._deck, kernel, evaluation.profile, quotes)
        if not checked.struck:
            return claimed
        return Strategy(checked.moves, with_remarks(claimed.text, [f"struck {reason}" for reason in checked.struck]))

    # --- Kernel Revisor --------------------------------------------------------------------

    def revise(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Revision | Failure:
        """Kernel Revisor: repaired code for the same strategy, or a failure with the reason."""
        context = PromptContext(brief, self._deck, kernel, evaluation, strategy)
        failed = evaluation.failure is not None
        if brief.tools is not None and self._client.has_room_for_tools:
            written = self._client.use_tools("revisor_repair", context, brief.tools, "revise", failed=failed)
            return written if isinstance(written, Failure) else Revision(written, strategy)
        found = self._ask("revisor_repair", context, RepairReply, failed=failed)
        if isinstance(found, Failure):
            return replace(found, stage="revise")
        if found.verdict.strip().lower().replace(" ", "-") == GIVE_UP or not found.code.strip():
            return Failure("revise", "given-up", one_line(found.reason) or "the model gave no reason")
        repaired = parse_kernel(found.code, "revise", context.language)
        return repaired if isinstance(repaired, Failure) else Revision(repaired, strategy)

    # --- asking ----------------------------------------------------------------------------

    def _context(self, brief: Brief, strategy: Strategy = PLAIN) -> PromptContext:
        """The context with the first parent's kernel, if there is one."""
        first = brief.parents[0] if brief.parents else None
        if first is None:
            return PromptContext(brief, self._deck, strategy=strategy)
        return PromptContext(brief, self._deck, first.kernel, first.evaluation, strategy)

    def _strategy(self, reply: StrategyReply, brief: Brief) -> Strategy:
        text = f"{reply.text} {reply.reason}".strip()
        return parse_strategy(reply.moves, text, self._deck, brief.spec, brief.task.precision)

    def _ask(self, prompt: str, context: PromptContext, shape: type[T], **values: Any) -> T | Failure:
        """The model's reply, or a failure that says why there is none."""
        try:
            found = self._client.ask(prompt, context, shape, **values)
        except ModelError as error:
            return Failure("ask", "no-reply", one_line(str(error)))
        if isinstance(found, Unparsable):
            log = found.replies[-1].text[:AIM_CHARACTERS] if found.replies else ""
            return Failure("ask", "unparsable", one_line(found.message), log)
        return found.value


def _with_reason(move: Move, strategy: Strategy) -> Move:
    """The move with the reason it was chosen for."""
    before = strategy.move(move.card)
    return replace(move, reason=before.reason) if before is not None and before.reason else move
