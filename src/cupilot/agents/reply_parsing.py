"""Strategies and kernels from a model's reply: lenient about spelling, strict about the records that come out.

A strategy comes out legal for the device and the precision: names are normalised, parameters corrected, illegal moves
dropped, and the strategy's text lists every change.  A kernel comes out as text that has at least a device function and
the entry.  Nothing of a reply is run or opened here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from cupilot.agents.templates import one_line
from cupilot.errors import DataError
from cupilot.gpu.spec import GpuSpec
from cupilot.languages import language_of
from cupilot.records import Failure, Kernel, Move, Parameter, Strategy, Value
from cupilot.records.kernel import CUDA
from cupilot.strategies import Deck, compatible, distance, merge, order, parse

MAX_MOVES = 16
NAME_CHARACTERS, REASON_CHARACTERS, TEXT_CHARACTERS = 40, 200, 600
KERNEL_CHARACTERS = 100_000
LEAST_DISTANCE = 0.1
"""Strategies that are closer than this count as the same idea."""

_HEAD = re.compile(r"[^(#]*")
_NO_CARDS = Deck(())


# --- strategies ------------------------------------------------------------------------------


def parse_strategy(moves: Iterable[str], text: str, deck: Deck, spec: GpuSpec, precision: str) -> Strategy:
    """The strategy in these lines, made legal; it may be empty."""
    remarks: list[str] = []
    found: dict[str, Move] = {}
    for line in [line for entry in moves for line in entry.splitlines() if line.strip()]:
        move = parse_move(line, deck, remarks)
        if move is not None and len(found) < MAX_MOVES:
            found.setdefault(move.card, move)
    strategy, dropped = make_legal(Strategy(tuple(found.values())), deck, spec, precision)
    return replace(strategy, text=with_remarks(text, [*remarks, *dropped]))


def parse_move(line: str, deck: Deck, remarks: list[str]) -> Move | None:
    """The move in a line, or None.  A name without a card is kept; a line that is not a move adds a remark."""
    head = _HEAD.match(line)
    name = re.sub(r"[\s_]+", "-", head[0].strip(" \t-*`").lower()) if head else ""
    try:
        parsed = parse(name + line[len(head[0]) if head else 0 :].rstrip("` "), _NO_CARDS, invent=True)
    except DataError:
        remarks.append(f"not a move: {one_line(line)[:REASON_CHARACTERS]}")
        return None
    if not parsed.moves or len(parsed.moves[0].card) > NAME_CHARACTERS:
        return None
    move = parsed.moves[0]
    return replace(_with_card_parameters(move, deck, remarks), reason=one_line(move.reason)[:REASON_CHARACTERS])


def _with_card_parameters(move: Move, deck: Deck, remarks: list[str]) -> Move:
    """The move with its card's parameters: unknown ones dropped, missing ones at their default."""
    card = deck.get(move.card)
    if card is None:
        short = [(name, v[:REASON_CHARACTERS] if isinstance(v, str) else v) for name, v in move.parameters]
        return replace(move, parameters=tuple(short))
    known = {parameter.name: parameter for parameter in card.parameters}
    values = {name: _nearest_choice(parameter, move.get(name)) for name, parameter in known.items()}
    for name, value in move.parameters:
        if name not in known:
            remarks.append(f"{card.name} has no parameter {name}")
        elif values[name] != value:
            remarks.append(f"{card.name}: {name}={one_line(str(value))[:40]} became {values[name]}")
    return Move.of(move.card, move.reason, **values)


def _nearest_choice(parameter: Parameter, value: Value | None) -> Value:
    """The value itself if it is a choice, else the nearest number, else the default."""
    choices = parameter.choices
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
    numbers = [choice for choice in choices if isinstance(choice, (int, float)) and not isinstance(choice, bool)]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and len(numbers) == len(choices):
        return min(numbers, key=lambda choice: (abs(choice - value), choice))
    return parameter.default


def make_legal(strategy: Strategy, deck: Deck, spec: GpuSpec, precision: str) -> tuple[Strategy, list[str]]:
    """The legal part of a strategy, with the moves it needs, and why the other moves were dropped.

    Of two moves that exclude each other the first stays.
    """
    rank = {move.card: -number for number, move in enumerate(strategy.moves)}
    merged = merge(strategy, Strategy(), deck, lambda move: float(rank[move.card]))
    reasons = _faults(strategy, deck, spec, precision)
    dropped = [
        next((reason for reason in reasons if card in reason.split()), f"{card} does not fit")
        for card in sorted(strategy.cards - merged.cards)
    ]
    while faults := _faults(merged, deck, spec, precision):
        dropped.append(faults[0])
        unfit = re.split(r"[\s:]", faults[0], maxsplit=1)[0]
        merged = replace(merged, moves=tuple(move for move in merged.moves if move.card != unfit))
    return order(replace(merged, text=strategy.text)), dropped


def _faults(strategy: Strategy, deck: Deck, spec: GpuSpec, precision: str) -> tuple[str, ...]:
    return compatible(strategy, deck, capability=spec.capability, precision=precision)


def with_remarks(text: str, remarks: Iterable[str]) -> str:
    """A strategy's text with remarks after it, shortened, on one line so that it cannot be taken for a move."""
    appended = "; ".join(dict.fromkeys(remarks))
    kept = one_line(text)[:TEXT_CHARACTERS]
    return f"{kept} [{appended[:TEXT_CHARACTERS]}]".strip() if appended else kept


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
    return kernel if fault is None else replace(fault, stage=stage, log=text[:REASON_CHARACTERS])


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
