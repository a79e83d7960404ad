"""Strategies and kernels from a model's reply: lenient about spelling, strict about the records that come out.

Of a strategy names are normalised and illegal moves dropped, and the strategy's text lists every change.  What cannot
be read, is missing or contradicts the cards is a problem, about which the model is asked once.  A kernel comes out as
text that has at least a device function and the entry.  Nothing of a reply is run or opened here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from cupilot.agents.replies import ObservedMove
from cupilot.agents.templates import one_line
from cupilot.errors import DataError
from cupilot.gpu.spec import GpuSpec
from cupilot.languages import language_of
from cupilot.records import Failure, Kernel, Move, Parameter, Strategy, Value
from cupilot.records.kernel import CUDA
from cupilot.strategies import Deck, compatible, distance, merge, order, parse

MAX_MOVES = 16
NAME_CHARACTERS, SHOWN_CHARACTERS, REASON_CHARACTERS, TEXT_CHARACTERS = 40, 200, 1000, 1000
KERNEL_CHARACTERS = 100_000
LEAST_DISTANCE = 0.1
"""Strategies that are closer than this count as the same idea."""

_HEAD = re.compile(r"[^(#]*")
_NO_CARDS = Deck(())


# --- strategies ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadStrategy:
    """A strategy as read, and what to ask the model about: what contradicts the cards, or is missing."""

    strategy: Strategy
    problems: tuple[str, ...] = ()


@dataclass
class _Reading:
    """What was changed while reading, for the strategy's text, and what is worth a question."""

    remarks: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def both(self, problem: str, remark: str) -> None:
        self.problems.append(problem)
        self.remarks.append(remark)


def parse_strategy(moves: Iterable[str], text: str, deck: Deck, spec: GpuSpec, precision: str) -> ReadStrategy:
    """The strategy in these lines; it may be empty.

    No parameter is made up.  A move that needs another one is kept without it, when the model does not name it with
    its parameters; of two that exclude each other the first is kept; what device or precision forbid is dropped.
    """
    reading = _Reading()
    found = {move.card: move for move in reversed(_read_moves(moves, deck, reading))}
    kept = _allowed(dict(reversed(found.items())), deck, spec, precision, reading)
    strategy = order(Strategy(tuple(_with_needs(kept, deck, reading).values())))
    return ReadStrategy(replace(strategy, text=with_remarks(text, reading.remarks)), tuple(reading.problems))


def reported_moves(moves: Iterable[str], deck: Deck) -> tuple[Move, ...]:
    """The moves that a writer says its code makes, as they are; a line that is not a move is left out."""
    found: dict[str, Move] = {}
    for move in _read_moves(moves, deck, _Reading()):
        found.setdefault(move.card, move)
    return tuple(found.values())


def parse_report(given: Any) -> tuple[ObservedMove, ...] | str:
    """The moves, each with a quote, that a writer gives with a kernel; or a sentence that says what is wrong.

    Whether they are moves of cards, and visible, is checked later.
    """
    if isinstance(given, str):  # some models write an array as text
        try:
            given = json.loads(given.strip() or "[]", strict=False)
        except (ValueError, RecursionError):
            return "`moves` has to be an array of objects, and is a text that is no JSON."
    if given is None:
        return ()
    if not isinstance(given, list):
        return "`moves` has to be an array of objects, each with `move` and `quote`."
    for number, entry in enumerate(given, 1):
        if not isinstance(entry, dict):
            return f"Entry {number} of `moves` has to be an object with `move` and `quote`."
        for key, value in (("move", entry.get("move")), ("quote", entry.get("quote") or "")):
            if not isinstance(value, str):
                return f"Entry {number} of `moves` needs `{key}`, a string."
    return tuple(ObservedMove(entry["move"], entry.get("quote") or "") for entry in given[:MAX_MOVES])


def parse_move(line: str, deck: Deck) -> Move | None:
    """The move in a line, or None; a name without a card is kept."""
    moves = _read_moves([line], deck, _Reading())
    return moves[0] if moves else None


def _read_moves(lines: Iterable[str], deck: Deck, reading: _Reading) -> list[Move]:
    found: list[Move] = []
    for line in [line for entry in lines for line in entry.splitlines() if line.strip()]:
        if len(found) == MAX_MOVES:
            reading.remarks.append(f"only the first {MAX_MOVES} moves were read")
            break
        move = _read_move(line, deck, reading)
        if move is not None:
            found.append(move)
    return found


def _read_move(line: str, deck: Deck, reading: _Reading) -> Move | None:
    head = _HEAD.match(line)
    name = re.sub(r"[\s_]+", "-", head[0].strip(" \t-*`").lower()) if head else ""
    try:
        parsed = parse(name + line[len(head[0]) if head else 0 :].rstrip("` "), _NO_CARDS, invent=True)
    except DataError:
        shown = one_line(line, SHOWN_CHARACTERS)
        reading.both(f"{shown!r} is not of the form NAME(PARAMETER=VALUE, ...)  # REASON", f"not a move: {shown}")
        return None
    if not parsed.moves or len(parsed.moves[0].card) > NAME_CHARACTERS:
        return None
    move = parsed.moves[0]
    return replace(_with_values(move, deck, reading), reason=one_line(move.reason, REASON_CHARACTERS))


def _with_values(move: Move, deck: Deck, reading: _Reading) -> Move:
    """The move with the values that can be used; of a card, those of its parameters."""
    card = deck.get(move.card)
    if card is None:
        short = [(name, one_line(v, SHOWN_CHARACTERS) if isinstance(v, str) else v) for name, v in move.parameters]
        return replace(move, parameters=tuple(short))
    known = {parameter.name: parameter for parameter in card.parameters}
    values: dict[str, Value] = {}
    for name, value in move.parameters:
        shown = f"{name}={one_line(str(value), NAME_CHARACTERS)}"
        if name not in known:
            reading.both(f"{card.name} has no parameter {name}", f"{card.name} has no parameter {name}")
        elif not _fits(known[name], value):
            reading.both(f"{card.name}: {shown} is none of {_choices(known[name])}", f"{card.name}: {shown} left out")
        else:
            values[name] = value
    reading.problems += [
        f"{card.name} needs a value for {name}, such as {_choices(parameter)}"
        for name, parameter in known.items()
        if name not in dict(move.parameters)
    ]
    return Move.of(move.card, move.reason, **values)


def _fits(parameter: Parameter, value: Value) -> bool:
    """Whether it is a choice, or a number between the smallest and the largest: choices are what is usual."""
    choices = parameter.choices
    if any(type(choice) is type(value) and choice == value for choice in choices):
        return True
    numbers = [choice for choice in choices if isinstance(choice, int) and not isinstance(choice, bool)]
    return type(value) is int and len(numbers) == len(choices) and min(numbers) <= value <= max(numbers)


def _choices(parameter: Parameter) -> str:
    return ", ".join(map(str, parameter.choices))


def _allowed(moves: dict[str, Move], deck: Deck, spec: GpuSpec, precision: str, reading: _Reading) -> dict[str, Move]:
    """The moves that device and precision allow, and that no earlier one excludes."""
    kept: dict[str, Move] = {}
    for name, move in moves.items():
        card = deck.get(name)
        excluding = next((other for other in kept if deck.excluded(name, other)), "")
        if card is not None and not card.allows(precision):
            why = f"{name} is for {', '.join(card.precisions)}, not for {precision}"
        elif card is not None and not card.runs_on(spec.capability):
            why = f"{name} needs compute capability {card.min_capability}, not {spec.capability}"
        elif excluding:
            why = f"{name} excludes {excluding}"
        else:
            kept[name] = move
            continue
        reading.both(why, f"dropped: {why}")
    return kept


def _with_needs(moves: dict[str, Move], deck: Deck, reading: _Reading) -> dict[str, Move]:
    """The moves, and those that they need where these have no parameters; a need that is not met is said."""
    complete, waiting = dict(moves), list(moves)
    while waiting:
        name = waiting.pop(0)
        for need in deck[name].needs if name in deck else ():
            if need in complete:
                continue
            if deck[need].parameters or any(deck.excluded(need, other) for other in complete):
                reading.both(
                    f"{name} needs {need}: name it with its parameters, or leave {name} out, or say in its reason what "
                    f"takes the place of {need}",
                    f"{name} without {need}",
                )
            else:
                complete[need] = Move.of(need, f"needed by {name}")
                waiting.append(need)
    return complete


def make_legal(
    strategy: Strategy, deck: Deck, spec: GpuSpec, precision: str, *, complete: bool = True
) -> tuple[Strategy, list[str]]:
    """The legal part of a strategy, with the moves it needs, and why the other moves were dropped.

    Of two moves that exclude each other the first stays.  For strategies that no model planned: needed moves have
    their default parameters, or with ``complete`` false are left out.
    """
    rank = {move.card: -number for number, move in enumerate(strategy.moves)}
    merged = merge(strategy, Strategy(), deck, lambda move: float(rank[move.card]), complete=complete)
    reasons = _faults(strategy, deck, spec, precision)
    dropped = [
        next((reason for reason in reasons if card in reason.split()), f"{card} does not fit")
        for card in sorted(strategy.cards - merged.cards)
    ]
    if not complete:
        reading = _Reading()
        kept = _allowed({move.card: move for move in merged.moves}, deck, spec, precision, reading)
        return order(Strategy(tuple(kept.values()), strategy.text)), [*dropped, *reading.remarks]
    while faults := _faults(merged, deck, spec, precision):
        dropped.append(faults[0])
        unfit = re.split(r"[\s:]", faults[0], maxsplit=1)[0]
        merged = replace(merged, moves=tuple(move for move in merged.moves if move.card != unfit))
    return order(replace(merged, text=strategy.text)), dropped


def _faults(strategy: Strategy, deck: Deck, spec: GpuSpec, precision: str) -> tuple[str, ...]:
    return compatible(strategy, deck, capability=spec.capability, precision=precision)


def with_remarks(text: str, remarks: Iterable[str]) -> str:
    """A strategy's text with remarks after it, on one line so that it cannot be taken for a move; cuts are marked."""
    appended = one_line("; ".join(dict.fromkeys(remarks)), TEXT_CHARACTERS)
    kept = one_line(text, TEXT_CHARACTERS)
    return f"{kept} [{appended}]".strip() if appended else kept


def distinct(strategies: Iterable[Strategy], known: Iterable[Strategy] = ()) -> list[Strategy]:
    """The strategies that differ from each other and from ``known``, in order."""
    taken, chosen = list(known), []
    for strategy in strategies:
        if all(distance(strategy, other) >= LEAST_DISTANCE for other in taken):
            taken.append(strategy)
            chosen.append(strategy)
    return chosen


# --- kernels -----------------------------------------------------------------------------------


def parse_kernel(source: str, stage: str, language: str = CUDA) -> Kernel | Failure:
    """A kernel, if its language finds no fault in the text; its correctness is not checked here."""
    text = source.replace("\r\n", "\n").replace("\r", "\n").strip("\n") + "\n"
    kernel = Kernel(text, language=language)
    if len(text) > KERNEL_CHARACTERS:
        return Failure(stage, "too-large", f"the source has {len(text)} characters; {KERNEL_CHARACTERS} are allowed")
    if any(ord(c) < 32 and c not in "\n\t\f" for c in text) or not _encodable(text):
        fault: Failure | None = Failure(stage, "not-text", "the source contains control characters")
    else:
        fault = language_of(kernel).fault(kernel)
    return kernel if fault is None else replace(fault, stage=stage, log=text[:SHOWN_CHARACTERS])


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
