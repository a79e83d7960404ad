"""The sections of a prompt: which records each shows.  Their wording is in `prompts/sections`.

A section with nothing to show is None and left out.  Without guidance in the brief, no section shows zone, limit,
counters or hot lines.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from cupilot.agents import counters
from cupilot.agents.templates import render_item
from cupilot.agents.token_budget import Section, lines_of, shortened
from cupilot.contracts import Brief
from cupilot.errors import DataError
from cupilot.languages import find_language, language_of, visible_source
from cupilot.records import Argument, Card, Evaluation, Failure, Kernel, Strategy
from cupilot.strategies import Deck, canonical

CONTEXT_LINES = 4
MESSAGE_CHARACTERS = 1200
PLAIN = Strategy()
SCALARS: Mapping[type, str] = {bool: "bool", int: "int64_t", float: "double", str: "std::string"}

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{5,}\b")


@dataclass(frozen=True)
class PromptContext:
    """The records that a prompt shows.

    ``evaluation`` is that of ``kernel``; ``reply_problem`` says why the role's last reply was rejected.
    """

    brief: Brief
    deck: Deck
    kernel: Kernel | None = None
    evaluation: Evaluation | None = None
    strategy: Strategy = PLAIN
    reply_problem: str = ""

    @property
    def language(self) -> str:
        """The language of the kernel at hand; CUDA before there is one."""
        return (self.kernel or Kernel("")).language

    @property
    def fence(self) -> str:
        """The word after the fence of a block with the kernel."""
        return find_language(self.language).fences[0]


def build_section(name: str, context: PromptContext) -> Section | None:
    """The section of that name, or None when it has nothing to show."""
    if name not in SECTIONS:
        raise DataError(f"there is no section {name!r}; sections are {', '.join(SECTIONS)}")
    return SECTIONS[name](context)


# --- the task ------------------------------------------------------------------------------


def _task(context: PromptContext) -> Section:
    task = context.brief.task
    values = {
        "name": task.name,
        "precision": task.precision,
        "arguments": [_argument(argument) for argument in task.arguments],
        "outputs": [str(output) for output in task.outputs],
        "operators": list(dict.fromkeys(task.operators)),
    }
    return Section("task", lines_of(task.source.strip()), keep_ends=True, values=values)


def _argument(argument: Argument) -> str:
    shape = argument.tensor if argument.tensor is not None else f"{argument.value!r} (a {_scalar(argument)})"
    return f"{argument.name}: {shape}, {argument.origin}"


def _scalar(argument: Argument) -> str:
    return SCALARS.get(type(argument.value), "at::Scalar")


def _contract(context: PromptContext) -> Section:
    values = {"task": context.brief.task, "entry": Kernel("").entry, "scalars": SCALARS, "language": context.language}
    return Section("contract", values=values)


def _limits(context: PromptContext) -> Section:
    return Section("limits", values={"spec": context.brief.spec})


@cache
def _precision_rules() -> Mapping[str, list[str]]:
    data: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("precision.toml").read_text(encoding="utf-8"))
    return data


def _precision(context: PromptContext) -> Section | None:
    precision = context.brief.task.precision
    rules = _precision_rules().get(precision, [])
    return (
        Section("precision", tuple(f"- {rule}" for rule in rules), values={"precision": precision}) if rules else None
    )


# --- the kernel and where it stands --------------------------------------------------------


def _kernel(context: PromptContext) -> Section | None:
    if context.kernel is None:
        return None
    values = {"time": _time(context.evaluation), "fence": context.fence}
    return Section("kernel", lines_of(context.kernel.source), keep_ends=True, values=values)


def _time(evaluation: Evaluation | None) -> str:
    """Time and source only: what limits the kernel is guidance."""
    timing = evaluation.timing if evaluation is not None else None
    return f"{timing.time_s * 1e3:.4g} ms, {timing.source}" if timing is not None else ""


def _guidance(context: PromptContext) -> Section | None:
    guidance = context.brief.guidance
    return Section("guidance", values={"guidance": guidance}) if guidance is not None else None


def _counters(context: PromptContext) -> Section | None:
    brief = context.brief
    if brief.guidance is None or context.evaluation is None:
        return None
    rows = [render_item("share", *share) for share in counters.largest_parts(context.evaluation)]
    rows += [
        render_item("counter", row)
        for row in counters.relevant_counters(brief.guidance, brief.task, context.evaluation, brief.spec)
    ]
    return Section("counters", tuple(rows), "counters") if rows else None


def _hot(context: PromptContext) -> Section | None:
    guidance = context.brief.guidance
    if guidance is None or context.kernel is None or context.evaluation is None:
        return None
    profile = context.evaluation.profile
    text = visible_source(context.kernel, profile.launches if profile is not None else ())
    found = counters.hottest_lines(guidance, text, profile)
    return Section("hot", tuple(render_item("hot", hot, text) for hot, text in found)) if found else None


# --- strategies ----------------------------------------------------------------------------


def strategy_text(strategy: Strategy) -> str:
    """A strategy as text."""
    return "\n".join(lines_of(canonical(strategy))) if strategy.moves or strategy.text else "(no moves: plain)"


def _strategy(context: PromptContext) -> Section:
    return Section("strategy", tuple(strategy_text(context.strategy).split("\n")))


def _parents(context: PromptContext) -> Section | None:
    items = [
        render_item("parent", number, strategy_text(one.strategy), _time(one.evaluation) or "not timed")
        for number, one in enumerate(context.brief.parents, start=1)
    ]
    return Section("parents", tuple(items), "parents") if items else None


def relevant_cards(context: PromptContext) -> tuple[Card, ...]:
    """The usable cards; with guidance, those for the zone or the limit, the ones that relieve the limit first."""
    brief, guidance = context.brief, context.brief.guidance
    cards = context.deck.usable(capability=brief.spec.capability, precision=brief.task.precision)
    if guidance is None:
        return cards
    # cards that the strategy already names are shown in any case
    relevant = [
        card
        for card in cards
        if guidance.limit in card.relieves or guidance.zone in card.zones or card.name in context.strategy.cards
    ]
    return tuple(sorted(relevant, key=lambda card: (guidance.limit not in card.relieves, card.name)))


def _cards(context: PromptContext) -> Section | None:
    guidance = context.brief.guidance
    items = [
        render_item("card", card, ", ".join(card.relieves) if guidance is not None else "")
        for card in relevant_cards(context)
    ]
    return Section("cards", tuple(items), "moves", values={"limit": guidance.limit if guidance is not None else ""})


def _moves(context: PromptContext) -> Section | None:
    """The cards that the strategy names."""
    named = [context.deck[move.card] for move in context.strategy.moves if move.card in context.deck]
    return Section("moves", tuple(render_item("card", card, "") for card in named), "moves") if named else None


def _similar(context: PromptContext) -> Section | None:
    guided = context.brief.guidance is not None
    items = [render_item("similar", record, strategy_text(record.strategy), guided) for record in context.brief.similar]
    return Section("similar", tuple(items), "entries") if items else None


def _tried(context: PromptContext) -> Section | None:
    items = []
    for one in reversed(context.brief.tried):
        failure = one.evaluation.failure
        if failure is not None:
            items.append(
                render_item(
                    "failed", strategy_text(one.strategy), replace(failure, message=without_addresses(failure.message))
                )
            )
        else:
            time = _time(one.evaluation) or "not timed"
            items.append(render_item("slow", strategy_text(one.strategy), time, _spill_bytes(one.evaluation)))
    return Section("tried", tuple(items), "attempts") if items else None


def _spill_bytes(evaluation: Evaluation) -> int:
    """The spills of the launch with the most: a likely reason why a strategy does not pay."""
    launches = evaluation.profile.launches if evaluation.profile is not None else ()
    return max((launch.resources.spill_bytes for launch in launches), default=0)


# --- what went wrong -----------------------------------------------------------------------


def _failure(context: PromptContext) -> Section | None:
    evaluation, parents = context.evaluation, context.brief.parents
    if evaluation is None:
        return None
    failure = evaluation.failure
    values = {
        "failure": failure,
        "message": shortened(without_addresses(failure.message), MESSAGE_CHARACTERS) if failure is not None else "",
        "around": _around(failure, context.kernel) if failure is not None else "",
        "time": _time(evaluation),
        "fence": context.fence,
        "parent": _time(parents[0].evaluation) if parents else "",
    }
    log = without_addresses(failure.details).strip() if failure is not None else ""
    return Section("failure", lines_of(log) if log else (), keep_ends=True, values=values)


def without_addresses(text: str) -> str:
    """The text with its addresses masked: they differ between runs, so that no recorded reply would match."""
    return _ADDRESS.sub("0x...", text)


def _around(failure: Failure, kernel: Kernel | None) -> str:
    """The source lines around the first finding, if that is in the kernel's file."""
    place = failure.findings[0] if failure.findings else None
    if place is None or kernel is None or not (not place.file or place.file.endswith(language_of(kernel).suffix)):
        return ""
    text, line = kernel.source.split("\n"), place.line
    if not 1 <= line <= len(text):
        return ""
    first, last = max(1, line - CONTEXT_LINES), min(len(text), line + CONTEXT_LINES)
    marked = (f"{'>' if number == line else ' '} {number:4} {text[number - 1]}" for number in range(first, last + 1))
    return "\n".join(lines_of("\n".join(marked)))


def _reply_problem(context: PromptContext) -> Section | None:
    return Section("reply_problem", lines_of(context.reply_problem)) if context.reply_problem else None


SECTIONS: Mapping[str, Callable[[PromptContext], Section | None]] = {
    "task": _task,
    "contract": _contract,
    "limits": _limits,
    "precision": _precision,
    "kernel": _kernel,
    "guidance": _guidance,
    "counters": _counters,
    "hot": _hot,
    "strategy": _strategy,
    "parents": _parents,
    "cards": _cards,
    "moves": _moves,
    "similar": _similar,
    "tried": _tried,
    "failure": _failure,
    "reply_problem": _reply_problem,
}
