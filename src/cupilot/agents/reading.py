"""From a model's reply to records: lenient about form, strict about what comes out.

Strategies come out legal for device and precision: names are normalised, parameters put right, what cannot
stand is dropped, and all of it is said in the strategy's text.  Kernels come out as text that at
least looks like one.  Nothing of a reply is run or opened here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from cupilot.agents.wording import one_line
from cupilot.errors import DataError
from cupilot.gpu.spec import GpuSpec
from cupilot.languages import language_of
from cupilot.records import Failure, Kernel, Move, Parameter, Strategy, Value
from cupilot.records.kernel import CUDA
from cupilot.strategies import Deck, compatible, distance, merge, order, parse

MOST_MOVES = 16
NAME_CHARACTERS, REASON_CHARACTERS, TEXT_CHARACTERS = 40, 200, 600
KERNEL_CHARACTERS = 100_000
ALIKE = 0.1
"""Strategies nearer than this are taken for the same idea."""

_HEAD = re.compile(r"[^(#]*")
_NO_CARDS = Deck(())


# --- strategies ------------------------------------------------------------------------------


def read_strategy(moves: Iterable[str], text: str, deck: Deck, spec: GpuSpec, precision: str) -> Strategy:
    """The strategy that these lines mean, made legal; it may be empty."""
    remarks: list[str] = []
    found: dict[str, Move] = {}
    for line in [line for entry in moves for line in entry.splitlines() if line.strip()]:
        move = read_move(line, deck, remarks)
        if move is not None and len(found) < MOST_MOVES:
            found.setdefault(move.card, move)
    strategy, dropped = legal(Strategy(tuple(found.values())), deck, spec, precision)
    return replace(strategy, text=remarked(text, [*remarks, *dropped]))


def read_move(line: str, deck: Deck, remarks: list[str]) -> Move | None:
    """One move; unknown names are kept as inventions, a line that is no move at all is remarked upon."""
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
    return replace(_settled(move, deck, remarks), reason=one_line(move.reason)[:REASON_CHARACTERS])


def _settled(move: Move, deck: Deck, remarks: list[str]) -> Move:
    """The move with its card's parameters: strange ones left out, missing ones at their default."""
    card = deck.get(move.card)
    if card is None:
        short = [(name, v[:REASON_CHARACTERS] if isinstance(v, str) else v) for name, v in move.parameters]
        return replace(move, parameters=tuple(short))
    known = {parameter.name: parameter for parameter in card.parameters}
    values = {name: _chosen(parameter, move.get(name)) for name, parameter in known.items()}
    for name, value in move.parameters:
        if name not in known:
            remarks.append(f"{card.name} has no parameter {name}")
        elif values[name] != value:
            remarks.append(f"{card.name}: {name}={one_line(str(value))[:40]} became {values[name]}")
    return Move.of(move.card, move.reason, **values)


def _chosen(parameter: Parameter, value: Value | None) -> Value:
    """The choice that is meant: the value itself, the nearest number, or the default."""
    choices = parameter.choices
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
    numbers = [choice for choice in choices if isinstance(choice, (int, float)) and not isinstance(choice, bool)]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and len(numbers) == len(choices):
        return min(numbers, key=lambda choice: (abs(choice - value), choice))
    return parameter.default


def legal(strategy: Strategy, deck: Deck, spec: GpuSpec, precision: str) -> tuple[Strategy, list[str]]:
    """What of a strategy can stand, with what it needs pulled in; of two that exclude each other the first stays."""
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


def remarked(text: str, remarks: Iterable[str]) -> str:
    """A strategy's text with remarks behind it, in bounds and without lines that a parser could mistake."""
    told = "; ".join(dict.fromkeys(remarks))
    kept = one_line(text)[:TEXT_CHARACTERS]
    return f"{kept} [{told[:TEXT_CHARACTERS]}]".strip() if told else kept


def unlike(strategies: Iterable[Strategy], known: Iterable[Strategy] = ()) -> list[Strategy]:
    """Those that differ from each other and from ``known``, in order."""
    taken, chosen = list(known), []
    for strategy in strategies:
        if all(distance(strategy, other) >= ALIKE for other in taken):
            taken.append(strategy)
            chosen.append(strategy)
    return chosen


# --- kernels -----------------------------------------------------------------------------------


def read_kernel(source: str, stage: str, language: str = CUDA) -> Kernel | Failure:
    """A kernel, if its language finds no fault in the text; whether it is right is not asked."""
    text = source.replace("\r\n", "\n").replace("\r", "\n").strip("\n") + "\n"
    kernel = Kernel(text, language=language)
    if len(text) > KERNEL_CHARACTERS:
        return Failure(stage, "too-large", f"the source has {len(text)} characters; {KERNEL_CHARACTERS} are allowed")
    if any(ord(c) < 32 and c not in "\n\t\f" for c in text) or not _encodable(text):
        fault: Failure | None = Failure(stage, "not-text", "the source contains characters that no source has")
    else:
        fault = language_of(kernel).fault(kernel)
    return kernel if fault is None else replace(fault, stage=stage, log=text[:REASON_CHARACTERS])


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
