"""The sections of a prompt: which of the records each shows.  How they are worded is in `prompts/parts`.

A section without anything to say is None and left out.  Everything about zone, limit, counters and hot
lines hangs on the brief's guidance: without it, no section shows any of them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from cupilot.agents import counters
from cupilot.agents.budget import Part, lines_of, shortened
from cupilot.agents.wording import item
from cupilot.contracts import Brief
from cupilot.errors import DataError
from cupilot.languages import find_language, language_of, visible_source
from cupilot.records import Argument, Card, Evaluation, Kernel, Strategy, Timing
from cupilot.strategies import Deck, canonical

CONTEXT_LINES = 4
MESSAGE_CHARACTERS = 1200
PLAIN = Strategy()
SCALARS: Mapping[type, str] = {bool: "bool", int: "int64_t", float: "double", str: "std::string"}

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{5,}\b")


@dataclass(frozen=True)
class Matter:
    """What a prompt is about; ``kernel`` and ``evaluation`` belong together, ``failed`` is about our own replies."""

    brief: Brief
    deck: Deck
    kernel: Kernel | None = None
    evaluation: Evaluation | None = None
    strategy: Strategy = PLAIN
    failed: str = ""

    @property
    def language(self) -> str:
        """What the kernel is written in: that of the kernel at hand; CUDA before there is one."""
        return (self.kernel or Kernel("")).language

    @property
    def fence(self) -> str:
        """The word after the fence of a block with the kernel."""
        return find_language(self.language).fences[0]


def section_of(name: str, matter: Matter) -> Part | None:
    """The section of that name, or None where there is nothing to show."""
    if name not in SECTIONS:
        raise DataError(f"there is no section {name!r}; sections are {', '.join(SECTIONS)}")
    return SECTIONS[name](matter)


# --- the work ------------------------------------------------------------------------------


def _task(matter: Matter) -> Part:
    task = matter.brief.task
    values = {
        "name": task.name,
        "precision": task.precision,
        "arguments": [_argument(argument) for argument in task.arguments],
        "outputs": [str(output) for output in task.outputs],
        "operators": list(dict.fromkeys(task.operators)),
    }
    return Part("task", lines_of(task.source.strip()), ends=True, values=values)


def _argument(argument: Argument) -> str:
    shape = argument.tensor if argument.tensor is not None else f"{argument.value!r} (a {_scalar(argument)})"
    return f"{argument.name}: {shape}, {argument.origin}"


def _scalar(argument: Argument) -> str:
    return SCALARS.get(type(argument.value), "at::Scalar")


def _contract(matter: Matter) -> Part:
    values = {"task": matter.brief.task, "entry": Kernel("").entry, "scalars": SCALARS, "language": matter.language}
    return Part("contract", values=values)


def _limits(matter: Matter) -> Part:
    return Part("limits", values={"spec": matter.brief.spec})


@cache
def _precision_rules() -> Mapping[str, list[str]]:
    data: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("precision.toml").read_text(encoding="utf-8"))
    return data


def _precision(matter: Matter) -> Part | None:
    precision = matter.brief.task.precision
    rules = _precision_rules().get(precision, [])
    return Part("precision", tuple(f"- {rule}" for rule in rules), values={"precision": precision}) if rules else None


# --- the kernel and where it stands --------------------------------------------------------


def _kernel(matter: Matter) -> Part | None:
    if matter.kernel is None:
        return None
    values = {"time": _time(matter.evaluation), "fence": matter.fence}
    return Part("kernel", lines_of(matter.kernel.source), ends=True, values=values)


def _time(evaluation: Evaluation | None) -> str:
    return _timing(evaluation.timing) if evaluation is not None else ""


def _timing(timing: Timing | None) -> str:
    """Without what limits it: that is guidance."""
    return f"{timing.time_s * 1e3:.4g} ms, {timing.source}" if timing is not None else ""


def _guidance(matter: Matter) -> Part | None:
    guidance = matter.brief.guidance
    return Part("guidance", values={"guidance": guidance}) if guidance is not None else None


def _counters(matter: Matter) -> Part | None:
    brief = matter.brief
    if brief.guidance is None or matter.evaluation is None:
        return None
    rows = [item("share", *share) for share in counters.breakdown(matter.evaluation)]
    rows += [item("counter", row) for row in counters.shown(brief.guidance, brief.task, matter.evaluation, brief.spec)]
    return Part("counters", tuple(rows), "counters") if rows else None


def _hot(matter: Matter) -> Part | None:
    guidance = matter.brief.guidance
    if guidance is None or matter.kernel is None or matter.evaluation is None:
        return None
    profile = matter.evaluation.profile
    text = visible_source(matter.kernel, profile.launches if profile is not None else ())
    found = counters.hot_lines(guidance, text, profile)
    return Part("hot", tuple(item("hot", hot) for hot in found)) if found else None


# --- strategies ----------------------------------------------------------------------------


def words(strategy: Strategy) -> str:
    """A strategy as text; the plain kernel's has no moves."""
    return "\n".join(lines_of(canonical(strategy))) if strategy.moves or strategy.text else "(no moves: plain)"


def _strategy(matter: Matter) -> Part:
    return Part("strategy", tuple(words(matter.strategy).split("\n")))


def _parents(matter: Matter) -> Part | None:
    items = [
        item("parent", number, words(one.strategy), _time(one.evaluation) or "not timed")
        for number, one in enumerate(matter.brief.parents, start=1)
    ]
    return Part("parents", tuple(items), "parents") if items else None


def fitting(matter: Matter) -> tuple[Card, ...]:
    """The cards for this device, precision and, with guidance, zone and limit; those that relieve the limit first."""
    brief, guidance = matter.brief, matter.brief.guidance
    cards = [
        card
        for card in matter.deck.values()
        if brief.spec.capability >= card.min_capability
        and (not card.precisions or brief.task.precision in card.precisions)
    ]
    if guidance is None:
        return tuple(cards)
    # what the strategy names already has to be there in any case
    cards = [
        card
        for card in cards
        if guidance.limit in card.relieves or guidance.zone in card.zones or card.name in matter.strategy.cards
    ]
    return tuple(sorted(cards, key=lambda card: (guidance.limit not in card.relieves, card.name)))


def _cards(matter: Matter) -> Part | None:
    guidance = matter.brief.guidance
    items = [item("card", card, ", ".join(card.relieves) if guidance is not None else "") for card in fitting(matter)]
    return Part("cards", tuple(items), "moves", values={"limit": guidance.limit if guidance is not None else ""})


def _moves(matter: Matter) -> Part | None:
    """Only the cards that the strategy names."""
    named = [matter.deck[move.card] for move in matter.strategy.moves if move.card in matter.deck]
    return Part("moves", tuple(item("card", card, "") for card in named), "moves") if named else None


def _similar(matter: Matter) -> Part | None:
    guided = matter.brief.guidance is not None
    items = [item("similar", record, words(record.strategy), guided) for record in matter.brief.similar]
    return Part("similar", tuple(items), "entries") if items else None


def _tried(matter: Matter) -> Part | None:
    items = []
    for one in reversed(matter.brief.tried):
        failure = one.evaluation.failure
        if failure is not None:
            items.append(item("failed", words(one.strategy), replace(failure, message=steady(failure.message))))
        else:
            time = _time(one.evaluation) or "not timed"
            items.append(item("slow", words(one.strategy), time, _spill_bytes(one.evaluation)))
    return Part("tried", tuple(items), "attempts") if items else None


def _spill_bytes(evaluation: Evaluation) -> int:
    """Of the launch that spills most: what is known about why a combination does not pay."""
    launches = evaluation.profile.launches if evaluation.profile is not None else ()
    return max((launch.resources.spill_bytes for launch in launches), default=0)


# --- what went wrong -----------------------------------------------------------------------


def _failure(matter: Matter) -> Part | None:
    evaluation, parents = matter.evaluation, matter.brief.parents
    if evaluation is None:
        return None
    failure = evaluation.failure
    values = {
        "failure": failure,
        "message": shortened(steady(failure.message), MESSAGE_CHARACTERS) if failure is not None else "",
        "around": _around(failure.message, matter.kernel) if failure is not None else "",
        "time": _time(evaluation),
        "parent": _time(parents[0].evaluation) if parents else "",
        "fence": matter.fence,
    }
    log = steady(failure.log).strip() if failure is not None else ""
    return Part("failure", lines_of(log) if log else (), ends=True, values=values)


def steady(text: str) -> str:
    """Without addresses: they say nothing to a model, and differ each time, so that no recorded reply would fit."""
    return _ADDRESS.sub("0x...", text)


def _around(message: str, kernel: Kernel | None) -> str:
    """The source around the line that a message names."""
    if kernel is None:
        return ""
    # kernel.cu:12 and kernel.cu(12) of compilers, "line 12" of the virtual GPU's findings
    found = re.search(rf"{re.escape(language_of(kernel).suffix)}[:(](\d+)|\bline (\d+)", message)
    if found is None:
        return ""
    text, line = kernel.source.split("\n"), int(found[1] or found[2])
    if not 1 <= line <= len(text):
        return ""
    first, last = max(1, line - CONTEXT_LINES), min(len(text), line + CONTEXT_LINES)
    marked = (f"{'>' if number == line else ' '} {number:4} {text[number - 1]}" for number in range(first, last + 1))
    return "\n".join(lines_of("\n".join(marked)))


def _failed(matter: Matter) -> Part | None:
    return Part("failed", lines_of(matter.failed)) if matter.failed else None


SECTIONS: Mapping[str, Callable[[Matter], Part | None]] = {
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
    "failed": _failed,
}
