"""Parameters of cards that have another name or unit now: moves of older records are read as today's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from cupilot.records import Move, Strategy, Value

RENAMED: Mapping[tuple[str, str], tuple[str, Callable[[Value], Value]]] = {
    ("vector-load", "width"): ("bytes", lambda floats: 4 * floats if isinstance(floats, int) else floats),
}


def current_strategy(strategy: Strategy) -> Strategy:
    """The same strategy in the parameters that cards have today."""
    return replace(strategy, moves=tuple(map(_current_move, strategy.moves)))


def _current_move(move: Move) -> Move:
    parameters = {}
    for name, value in move.parameters:
        new, convert = RENAMED.get((move.card, name), (name, lambda same: same))
        parameters[new] = convert(value)
    return Move.of(move.card, move.reason, **parameters)
