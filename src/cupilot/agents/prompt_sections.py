"""The sections of a prompt: which records each shows.  Their wording is in `prompts/sections`.

A section with nothing to show is None and left out.  Without guidance in the brief, no section shows zone, limit or
profile.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from cupilot.agents.prophet import compute_guidance
from cupilot.agents.templates import one_line, render_item
from cupilot.agents.token_budget import Section, lines_of, shortened
from cupilot.contracts import Brief
from cupilot.errors import DataError
from cupilot.evaluation.launch_text import profile_lines, summary_lines
from cupilot.evaluation.launch_view import ProfileView, modelled_view
from cupilot.gpu.roofline import ceilings
from cupilot.languages import find_language, language_of
from cupilot.numbers import duration, ratio
from cupilot.records import Argument, Card, Evaluation, Failure, Guidance, Individual, Kernel, Strategy
from cupilot.strategies import Deck, canonical
from cupilot.strategies.choice import card_query, rank_cards, suits, task_families

CONTEXT_LINES = 4
MESSAGE_CHARACTERS, REASON_CHARACTERS = 1200, 160
FULL_CARDS, LEAST_NEW_CARDS = 10, 6
"""Cards that are shown in full, and how many of them at least are not the parents' own."""
OTHER_LAUNCHES, MEANINGS = 2, 3
STRATEGY_CHARACTERS = 1300
"""The longest line of a strategy: a move with its reason."""
SAME_TIME = 0.005
"""Times that are closer than this are called the same."""
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
    def first_strategy(self) -> Strategy:
        """That of the first parent; the plain one before there are any."""
        return self.brief.parents[0].strategy if self.brief.parents else PLAIN

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
    spec, precision = context.brief.spec, context.brief.task.precision
    core, tensor = ceilings(spec, precision)
    values = {"spec": spec, "precision": precision, "tensor_flop_per_s": tensor if tensor > core else 0.0}
    return Section("limits", values=values)


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
    several = len(context.brief.parents) > 1 and context.kernel == context.brief.parents[0].kernel
    values = {"time": _time(context.evaluation), "fence": context.fence, "several": several}
    return Section("kernel", lines_of(context.kernel.source), keep_ends=True, values=values)


def _other(context: PromptContext) -> Section | None:
    """The kernel of the second parent, with its profile."""
    if len(context.brief.parents) < 2:
        return None
    other = context.brief.parents[1]
    view, first = _view(context, other.kernel, other.evaluation), _view(context, context.kernel, context.evaluation)
    profile = profile_lines(view, context.brief.task, OTHER_LAUNCHES, first) if view is not None else []
    values = {
        "time": _time(other.evaluation), "fence": find_language(other.kernel.language).fences[0],
        "profile": "\n".join(profile),
    }  # fmt: skip
    return Section("other", lines_of(other.kernel.source), keep_ends=True, values=values)


def _time(evaluation: Evaluation | None) -> str:
    """Time and source only: what limits the kernel is guidance."""
    timing = evaluation.timing if evaluation is not None else None
    return f"{duration(timing.time_s)}, {timing.source}" if timing is not None else ""


def _guidance(context: PromptContext) -> Section | None:
    """The Prophet's words; where a kernel with a time is at hand, its own numbers first."""
    guidance = context.brief.guidance
    if guidance is None:
        return None
    own = _own_guidance(context)
    if own is not None and guidance.sentence.startswith(own.sentence):
        own = None  # the Prophet speaks of this very kernel
    return Section("guidance", values={"guidance": guidance, "own": own})


def _own_guidance(context: PromptContext) -> Guidance | None:
    """Zone, limit and headroom of the kernel at hand: the brief's guidance is about the fastest one."""
    evaluation, brief = context.evaluation, context.brief
    if brief.guidance is None or evaluation is None or evaluation.timing is None:
        return None
    return compute_guidance(brief.task, evaluation, brief.spec)


def _view(context: PromptContext, kernel: Kernel | None, evaluation: Evaluation | None) -> ProfileView | None:
    """The profile of a kernel; none without guidance, or where nothing ran to its end."""
    if context.brief.guidance is None or kernel is None or evaluation is None or evaluation.profile is None:
        return None
    if evaluation.timing is None or not evaluation.profile.launches:
        return None
    return modelled_view(evaluation.profile, context.brief.spec, kernel)


def _profile(context: PromptContext) -> Section | None:
    view = _view(context, context.kernel, context.evaluation)
    if view is None:
        return None
    names = dict.fromkeys(launch.timing.limit for launch in view.longest[:MEANINGS])
    limits = [(name, _limit_meanings()[name]) for name in names if name in _limit_meanings()]
    lines = profile_lines(view, context.brief.task)
    return Section("profile", lines_of("\n".join(lines)), values={"limits": limits})


@cache
def _limit_meanings() -> Mapping[str, str]:
    data: dict[str, str] = tomllib.loads(Path(__file__).with_name("limits.toml").read_text(encoding="utf-8"))
    return data


# --- strategies ----------------------------------------------------------------------------


def strategy_text(strategy: Strategy, reason_characters: int | None = None) -> str:
    """A strategy as text; the whole of it is what an invented move has for a specification."""
    if not strategy.moves and not strategy.text:
        return "(no moves: plain)"
    if reason_characters is not None:
        moves = (replace(move, reason=one_line(move.reason, reason_characters)) for move in strategy.moves)
        strategy = Strategy(tuple(moves), one_line(strategy.text, reason_characters))
    return "\n".join(lines_of(canonical(strategy), STRATEGY_CHARACTERS))


def _strategy(context: PromptContext) -> Section:
    return Section("strategy", tuple(strategy_text(context.strategy).split("\n")))


def _parents(context: PromptContext) -> Section | None:
    items = [
        render_item("parent", number, strategy_text(one.strategy), _time(one.evaluation) or "not timed")
        for number, one in enumerate(context.brief.parents, start=1)
    ]
    return Section("parents", tuple(items), "parents") if items else None


def relevant_cards(context: PromptContext) -> tuple[Card, ...]:
    """All cards that device and precision allow, the most promising first for the kernel at hand."""
    brief, evaluation = context.brief, context.evaluation
    timing = evaluation.timing if evaluation is not None else None
    guidance = _own_guidance(context) or brief.guidance
    return rank_cards(context.deck, card_query(brief.task, brief.spec, guidance, timing, brief.similar))


def _cards(context: PromptContext) -> Section | None:
    """In full some cards of the parents and the most promising others; all others by title."""
    ranked, guided = relevant_cards(context), context.brief.guidance is not None
    named = {card for one in context.brief.parents for card in one.strategy.cards} | context.strategy.cards
    own = [card for card in ranked if card.name in named][: FULL_CARDS - LEAST_NEW_CARDS]
    new = [card for card in ranked if card.name not in named][: FULL_CARDS - len(own)]
    items = [render_item("card", card, ", ".join(card.relieves) if guided else "") for card in (*own, *new)]
    others = [card for card in ranked if card not in own and card not in new]
    families = task_families(context.brief.task)
    items += [render_item("title", card, suits(card, families)) for card in others]
    return Section("cards", tuple(items), "moves", values={"chosen": bool(others), "guided": guided})


def _moves(context: PromptContext) -> Section | None:
    """The cards that the strategy names."""
    named = [context.deck[move.card] for move in context.strategy.moves if move.card in context.deck]
    return Section("moves", tuple(render_item("card", card, "") for card in named), "moves") if named else None


def _similar(context: PromptContext) -> Section | None:
    guided = context.brief.guidance is not None
    items = [render_item("similar", record, strategy_text(record.strategy), guided) for record in context.brief.similar]
    return Section("similar", tuple(items), "entries") if items else None


def _tried(context: PromptContext) -> Section | None:
    items = [_attempt(context, one) for one in reversed(context.brief.tried)]
    return Section("tried", tuple(items), "attempts") if items else None


def _attempt(context: PromptContext, one: Individual) -> str:
    strategy, failure = strategy_text(one.strategy, REASON_CHARACTERS), one.evaluation.failure
    if failure is not None:
        return render_item("failed", one, without_addresses(failure.message), strategy)
    view = _view(context, one.kernel, one.evaluation)
    profile = summary_lines(view) if view is not None else _spills(one.evaluation)
    return render_item("slow", strategy, _time(one.evaluation) or "not timed", _compared(context, one), profile)


def _compared(context: PromptContext, one: Individual) -> str:
    """Its time against that of the fastest parent, in words."""
    parents = [parent.time_s for parent in context.brief.parents if parent.time_s is not None]
    if one.time_s is None or not parents:
        return "NOT FASTER"
    factor = one.time_s / min(parents)
    if abs(factor - 1.0) < SAME_TIME:
        return "AS FAST AS ITS PARENT"
    return f"{ratio(factor)} THE TIME OF {'THE FASTER' if len(parents) > 1 else 'THE'} PARENT"


def _spills(evaluation: Evaluation) -> list[str]:
    """The spills of the launch with the most: a likely reason why a strategy does not pay."""
    launches = evaluation.profile.launches if evaluation.profile is not None else ()
    spilled = max((launch.resources.spill_bytes for launch in launches), default=0)
    return [f"registers spilled, {spilled} bytes per thread"] if spilled else []


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
        "parent_profile": "\n".join(_summary(context, parents[0])) if parents and failure is None else "",
    }
    log = without_addresses(failure.details).strip() if failure is not None else ""
    return Section("failure", lines_of(log) if log else (), keep_ends=True, values=values)


def _summary(context: PromptContext, one: Individual) -> list[str]:
    view = _view(context, one.kernel, one.evaluation)
    return summary_lines(view) if view is not None else []


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
    "other": _other,
    "guidance": _guidance,
    "profile": _profile,
    "strategy": _strategy,
    "parents": _parents,
    "cards": _cards,
    "moves": _moves,
    "similar": _similar,
    "tried": _tried,
    "failure": _failure,
    "reply_problem": _reply_problem,
}
