"""The five roles played by language models, with the same interface as the expert: `cupilot.contracts.Agents`.

A missing or unusable reply never stops a run: the Translator and the Revisor return a `Failure`, the Manager merges and
draws strategies itself, the Prophet returns its computed numbers, alignment relies on the evidence alone.  Only the
Generator has no fallback, and raises `ModelError` after its tries.
The same replies and the same random generator give the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from random import Random
from typing import Any, TypeVar

from cupilot.agents import fallback
from cupilot.agents.alignment import Report, Reports, aligned
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
from cupilot.agents.reply_parsing import REASON_CHARACTERS, ReadStrategy, distinct, parse_kernel, parse_strategy
from cupilot.agents.templates import one_line
from cupilot.contracts import Brief, Model, Revision, Tools
from cupilot.errors import ModelError
from cupilot.gpu.spec import GpuSpec
from cupilot.llm import Unparsable
from cupilot.records import Evaluation, Failure, Guidance, Kernel, Strategy, Task
from cupilot.strategies import Deck, load_deck, same
from cupilot.strategies.pool_rank import POOL_SHARE
from cupilot.strategies.reading import read_strategy

TRIES = 3
AIM_CHARACTERS, PROBLEM_CHARACTERS = 400, 1500

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
        self._reports = Reports()

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

    def foresee(self, task: Task, evaluation: Evaluation, spec: GpuSpec, kernel: Kernel | None = None) -> Guidance:
        """Roofline Prophet: the numbers are computed; the model adds one sentence about what to aim for."""
        guidance = compute_guidance(task, evaluation, spec)
        context = PromptContext(Brief(task, spec, guidance), self._deck, kernel, evaluation)
        found = self._ask("prophet_place", context, AimReply)
        aim = "" if isinstance(found, Failure) else one_line(found.aim, AIM_CHARACTERS)
        return replace(
            guidance, sentence=f"{guidance.sentence} {aim or f'Aim at moves that relieve {guidance.limit}.'}"
        )

    # --- SCE Manager -----------------------------------------------------------------------

    def initialize(self, brief: Brief, count: int, rng: Random) -> tuple[Strategy, ...]:
        """SCE Manager: what the model proposes, who is shown what paid on similar tasks; random draws for the rest."""
        context = self._context(brief)

        def objection(reply: StrategiesReply) -> str:
            read = [self._read(each, brief) for each in reply.strategies]
            return _joined([f"strategy {n}: {why}" for n, one in enumerate(read, 1) for why in one.problems])

        guided = brief.guidance is not None
        values: dict[str, Any] = {"count": count, "guided": guided, "similar": bool(brief.similar)}
        found = self._ask("manager_initialize", context, StrategiesReply, objection, **values)
        replies = () if isinstance(found, Failure) else found.strategies
        chosen = distinct([self._read(reply, brief).strategy for reply in replies], [PLAIN])[:count]
        if not chosen:
            chosen += fallback.pool_strategies(context, ceil(POOL_SHARE * count))
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
        parents = [PLAIN, *(one.strategy for one in brief.parents)]

        def objection(reply: StrategyReply) -> str:
            read = self._read(reply, brief)
            known = any(same(read.strategy, parent) for parent in parents)
            return _joined([*read.problems, *(["the strategy has the moves of a parent"] if known else [])])

        if len(brief.parents) > 1:
            found = self._ask("manager_cross", context, StrategyReply, objection, **values)
        else:
            values |= {"step": fallback.mutation(context.first_strategy, rng)}
            found = self._ask("manager_mutate", context, StrategyReply, objection, **values)
        if not isinstance(found, Failure):
            child = self._read(found, brief).strategy
            if not any(same(child, parent) for parent in parents):
                return child
        return fallback.merge_parents(context, rng)

    # --- Strategy Translator ---------------------------------------------------------------

    def translate(self, brief: Brief, strategy: Strategy) -> Kernel | Failure:
        """Strategy Translator: the model's code for the strategy, based on the first parent's kernel."""
        context = self._context(brief, strategy=strategy)
        values: dict[str, Any] = {"has_kernel": context.kernel is not None, "crossing": len(brief.parents) > 1}
        if brief.tools is not None and self._client.has_room_for_tools:
            return self._use_tools("translator_write", context, brief.tools, "translate", **values)
        found = self._ask("translator_write", context, KernelReply, **values)
        if isinstance(found, Failure):
            return replace(found, stage="translate")
        kernel = parse_kernel(found.code, "translate", context.language)
        if isinstance(kernel, Kernel):
            self._reports.keep(brief, kernel, Report(found.moves, found.notes))
        return kernel

    def align(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Strategy:
        """Strategy Translator: what the writer of the code reported of it, without what is not visible in the kernel.

        A model is asked only about a kernel whose writer reported no moves.
        """
        if not strategy.moves:
            return strategy
        report = self._reports.find(brief, kernel)
        if report is None or not report.moves:
            context = PromptContext(brief, self._deck, kernel, evaluation, strategy)
            found = self._ask("translator_align", context, AlignReply)
            report = None if isinstance(found, Failure) else Report(found.moves, found.text)
        return aligned(strategy, report, self._deck, kernel, evaluation.profile)

    def read(self, brief: Brief, kernel: Kernel, evaluation: Evaluation) -> Strategy:
        """Strategy Translator: what the code shows by the evidence of cards, aligned as a written strategy is."""
        cards = self._deck.usable(capability=brief.spec.capability, precision=brief.task.precision)
        return self.align(brief, kernel, read_strategy(kernel, evaluation.profile, cards), evaluation)

    # --- Kernel Revisor --------------------------------------------------------------------

    def revise(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Revision | Failure:
        """Kernel Revisor: repaired code for the same strategy, or a failure with the reason."""
        context = PromptContext(brief, self._deck, kernel, evaluation, strategy)
        failed = evaluation.failure is not None
        if brief.tools is not None and self._client.has_room_for_tools:
            written = self._use_tools("revisor_repair", context, brief.tools, "revise", failed=failed)
            return written if isinstance(written, Failure) else Revision(written, strategy)
        found = self._ask("revisor_repair", context, RepairReply, failed=failed)
        if isinstance(found, Failure):
            return replace(found, stage="revise")
        if found.verdict.strip().lower().replace(" ", "-") == GIVE_UP or not found.code.strip():
            reason = one_line(found.reason, REASON_CHARACTERS)
            return Failure("revise", "given-up", reason or "the model gave no reason")
        repaired = parse_kernel(found.code, "revise", context.language)
        if isinstance(repaired, Failure):
            return repaired
        self._reports.keep(brief, repaired, Report(found.moves, found.reason))
        return Revision(repaired, strategy)

    # --- asking ----------------------------------------------------------------------------

    def _context(self, brief: Brief, strategy: Strategy = PLAIN) -> PromptContext:
        """The context with the first parent's kernel, if there is one."""
        first = brief.parents[0] if brief.parents else None
        if first is None:
            return PromptContext(brief, self._deck, strategy=strategy)
        return PromptContext(brief, self._deck, first.kernel, first.evaluation, strategy)

    def _read(self, reply: StrategyReply, brief: Brief) -> ReadStrategy:
        text = f"{reply.text} {reply.reason}".strip()
        return parse_strategy(reply.moves, text, self._deck, brief.spec, brief.task.precision)

    def _use_tools(
        self, prompt: str, context: PromptContext, tools: Tools, stage: str, **values: Any
    ) -> Kernel | Failure:
        """The kernel that a dialogue ends with; what its writer reports of it is kept."""
        written, report = self._client.use_tools(prompt, context, tools, stage, **values)
        if isinstance(written, Kernel) and report is not None:
            self._reports.keep(context.brief, written, report)
        return written

    def _ask(
        self,
        prompt: str,
        context: PromptContext,
        shape: type[T],
        objection: Callable[[T], str] = lambda reply: "",
        **values: Any,
    ) -> T | Failure:
        """The model's reply, or a failure that says why there is none; one with an objection is asked for again."""
        try:
            found = self._client.ask(prompt, context, shape, objection, **values)
        except ModelError as error:
            return Failure("ask", "no-reply", one_line(str(error)))
        if isinstance(found, Unparsable):
            log = found.replies[-1].text[:AIM_CHARACTERS] if found.replies else ""
            return Failure("ask", "unparsable", one_line(found.message), log)
        return found.value


def _joined(problems: Sequence[str]) -> str:
    return one_line("; ".join(dict.fromkeys(problems)), PROBLEM_CHARACTERS)
