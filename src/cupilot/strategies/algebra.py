"""Operations on strategies: pure functions that know cards, but not how a move becomes code.

A move without a card (invented by a language model) is kept everywhere and has no rules.  These functions check whether
the cards allow a combination; whether it can be *realised* is up to a recipe.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cupilot.errors import DataError
from cupilot.records import Move, Strategy, Value
from cupilot.strategies.deck import CARD_NAME, PARAMETER_NAME, Deck

Preference = Callable[[Move], float]

# a shared card with all parameters different is still half alike
_CARD_SHARE = 0.5

_LINE = re.compile(
    rf"(?P<card>{CARD_NAME.pattern})\s*"
    r'(\((?P<parameters>(?:"(?:[^"\\]|\\.)*"|[^"()])*)\))?\s*'
    r"(#\s*(?P<reason>.*))?"
)
_PARAMETER = re.compile(rf'\s*(?P<name>{PARAMETER_NAME.pattern})\s*=\s*(?P<value>"(?:[^"\\]|\\.)*"|[^\s,"]+)\s*(?:,|$)')


def order(strategy: Strategy) -> Strategy:
    """The same strategy with its moves in canonical (alphabetical) order."""
    return replace(strategy, moves=tuple(sorted(strategy.moves, key=lambda move: move.card)))


def same(a: Strategy, b: Strategy) -> bool:
    """Whether the moves are equal; their order, their reasons and the text do not matter."""
    return _table(a) == _table(b)


# --- rules -----------------------------------------------------------------------------------


def compatible(strategy: Strategy, deck: Deck, *, capability: float, precision: str) -> tuple[str, ...]:
    """Why the cards do not allow this strategy on such a device and in such a precision; empty if they do."""
    reasons: list[str] = []
    present = strategy.cards
    for move in strategy.moves:
        card = deck.get(move.card)
        if card is None:
            continue
        reasons += [f"{card.name} needs {need}" for need in card.needs if need not in present]
        reasons += [
            f"{card.name} excludes {other}"
            for other in sorted(present)
            if deck.excluded(card.name, other) and (card.name < other or other not in deck)
        ]
        if not card.allows(precision):
            reasons.append(f"{card.name} is for {', '.join(card.precisions)}, not for {precision}")
        if not card.runs_on(capability):
            reasons.append(f"{card.name} needs compute capability {card.min_capability}, not {capability}")
        reasons += _parameter_faults(move, deck)
    return tuple(reasons)


def _parameter_faults(move: Move, deck: Deck) -> list[str]:
    card = deck[move.card]
    known = {parameter.name: parameter for parameter in card.parameters}
    given = dict(move.parameters)
    faults = [f"{card.name} has no parameter {name}" for name in given if name not in known]
    for name, parameter in known.items():
        if name not in given:
            faults.append(f"{card.name} needs a value for {name}")
        elif not any(_alike(given[name], choice) for choice in parameter.choices):
            faults.append(f"{card.name}: {name}={given[name]} is none of {', '.join(map(str, parameter.choices))}")
    return faults


def _alike(a: Value, b: Value) -> bool:
    return type(a) is type(b) and a == b


def default_move(card: str, deck: Deck, reason: str = "") -> Move:
    """A move with every parameter at its card's default."""
    return Move.of(card, reason, **{p.name: p.default for p in deck.card(card).parameters})


# --- merging ---------------------------------------------------------------------------------


def merge(a: Strategy, b: Strategy, deck: Deck, prefer: Preference, *, complete: bool = True) -> Strategy:
    """All moves of both strategies that can be combined, by preference.

    ``prefer`` gives a move's weight and is called once per move; larger is better.  Of two moves of one card the
    heavier wins (``a``'s when equal).  Needed moves are added, from the other parent or with default parameters; a move
    whose needs are excluded by a heavier move is dropped.  Without ``complete`` no parameters are made up: of moves
    that neither strategy has, only those without parameters are added.
    """
    weights: dict[str, float] = {}
    union: dict[str, Move] = {}
    for move in (*a.moves, *b.moves):
        if move.card in union and union[move.card].same(move):
            continue
        weight = prefer(move)
        if move.card not in union or weight > weights[move.card]:
            union[move.card], weights[move.card] = move, weight
    kept: dict[str, Move] = {}
    for name in sorted(union, key=lambda card: (-weights[card], card)):
        closure = _closure(name, union, deck, complete)
        everything = {*closure, *kept}
        if not any(deck.excluded(x, y) for x in closure for y in everything):
            kept = {**closure, **kept}
    return order(Strategy(tuple(kept.values()), a.text if a.text == b.text else ""))


def _closure(name: str, available: Mapping[str, Move], deck: Deck, complete: bool) -> dict[str, Move]:
    """The move and everything it needs, directly or not."""
    found: dict[str, Move] = {}
    waiting = [name]
    while waiting:
        card = waiting.pop()
        if card in found or not (complete or card in available or not deck[card].parameters):
            continue
        found[card] = available[card] if card in available else default_move(card, deck, reason=f"needed by {name}")
        waiting += deck[card].needs if card in deck else ()
    return found


# --- comparing -------------------------------------------------------------------------------


def distance(a: Strategy, b: Strategy) -> float:
    """Between 0 (same moves) and 1 (no card in common); symmetric.

    The Jaccard distance over cards, where a common card counts half for itself and half for its share of equal
    parameters.
    """
    left, right = _table(a), _table(b)
    union = left.keys() | right.keys()
    if not union:
        return 0.0
    # sorted: a sum of floats must not depend on the order of a set
    return 1.0 - sum(_likeness(left[card], right[card]) for card in sorted(left.keys() & right.keys())) / len(union)


def _likeness(a: Mapping[str, Value], b: Mapping[str, Value]) -> float:
    names = a.keys() | b.keys()
    if not names:
        return 1.0
    equal = sum(name in a and name in b and _alike(a[name], b[name]) for name in names)
    return _CARD_SHARE + (1.0 - _CARD_SHARE) * equal / len(names)


def _table(strategy: Strategy) -> dict[str, dict[str, Value]]:
    return {move.card: dict(move.parameters) for move in strategy.moves}


@dataclass(frozen=True)
class Difference:
    """The changes from one strategy to another; ``changed`` are pairs of moves of one card."""

    added: tuple[Move, ...] = ()
    dropped: tuple[Move, ...] = ()
    changed: tuple[tuple[Move, Move], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.dropped or self.changed)

    def __str__(self) -> str:
        lines = [f"+ {move_text(move)}" for move in self.added]
        lines += [f"- {move_text(move)}" for move in self.dropped]
        lines += [f"~ {move_text(old)} -> {move_text(new)}" for old, new in self.changed]
        return "\n".join(lines)


def diff(a: Strategy, b: Strategy) -> Difference:
    """The moves to add, drop and change to get from ``a`` to ``b``."""
    old, new = order(a), order(b)
    pairs = [(x, y) for x in old.moves if (y := new.move(x.card)) is not None]
    return Difference(
        added=tuple(move for move in new.moves if move.card not in old.cards),
        dropped=tuple(move for move in old.moves if move.card not in new.cards),
        changed=tuple((x, y) for x, y in pairs if not x.same(y)),
    )


# --- text ------------------------------------------------------------------------------------


def move_text(move: Move) -> str:
    """A move without its reason, e.g. ``shared-tile(block_k=16, block_m=128, block_n=128)``."""
    inside = ", ".join(f"{name}={json.dumps(value)}" for name, value in sorted(move.parameters))
    return f"{move.card}({inside})" if inside else move.card


def canonical(strategy: Strategy) -> str:
    """One line per move with its reason after ``#``; the free text comes first, as comment lines.

    White space inside reasons and at line ends of the text is not preserved.
    """
    lines = [f"# {line}".rstrip() for line in strategy.text.split("\n")] if strategy.text else []
    for move in order(strategy).moves:
        reason = " ".join(move.reason.split())
        lines.append(move_text(move) + (f"  # {reason}" if reason else ""))
    return "\n".join(lines)


def parse(text: str, deck: Deck, *, invent: bool = False) -> Strategy:
    """The inverse of `canonical`; a `DataError` names the line that cannot be read.

    Names must be cards and their parameters, unless ``invent`` allows moves without a card.  `compatible` checks the
    values.
    """
    moves: dict[str, Move] = {}
    comments: list[str] = []
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if line.startswith("#"):
            comments.append(line[1:].strip())
        elif line:
            move = _parse_move(line, number, deck, invent)
            if move.card in moves:
                raise DataError(f"line {number}: {move.card} is named twice")
            moves[move.card] = move
    return order(Strategy(tuple(moves.values()), "\n".join(comments)))


def _parse_move(line: str, number: int, deck: Deck, invent: bool) -> Move:
    match = _LINE.fullmatch(line)
    if match is None:
        raise DataError(f"line {number}: not of the form card(name=value, ...)  # reason: {line!r}")
    name = match["card"]
    if name not in deck and not invent:
        try:
            deck.card(name)
        except DataError as error:
            raise DataError(f"line {number}: {error}") from None
    parameters = _parse_parameters(match["parameters"] or "", number)
    if name in deck:
        known = {parameter.name for parameter in deck[name].parameters}
        unknown = sorted(set(parameters) - known)
        if unknown:
            raise DataError(f"line {number}: {name} has no parameter {unknown[0]!r}; it has {sorted(known)}")
    return Move.of(name, " ".join((match["reason"] or "").split()), **parameters)


def _parse_parameters(text: str, number: int) -> dict[str, Value]:
    found: dict[str, Value] = {}
    position = 0
    while position < len(text) and text[position:].strip():
        match = _PARAMETER.match(text, position)
        if match is None:
            raise DataError(f"line {number}: cannot read the parameters at {text[position:].strip()!r}")
        try:
            value = json.loads(match["value"])
        except json.JSONDecodeError:
            raise DataError(f"line {number}: {match['value']!r} is no number, true, false or quoted text") from None
        if not isinstance(value, (bool, int, float, str)):
            raise DataError(f"line {number}: {match['value']!r} is no number, true, false or quoted text")
        if match["name"] in found:
            raise DataError(f"line {number}: {match['name']} is given twice")
        found[match["name"]] = value
        position = match.end()
    return found
