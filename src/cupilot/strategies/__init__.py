"""Strategy cards and the algebra of strategies."""

from cupilot.strategies.algebra import (
    Difference,
    canonical,
    compatible,
    default_move,
    diff,
    distance,
    merge,
    move_text,
    order,
    parse,
    same,
)
from cupilot.strategies.deck import LIMITS, ZONES, Deck, load_deck

__all__ = [
    "LIMITS", "ZONES", "Deck", "Difference", "canonical", "compatible", "default_move", "diff",
    "distance", "load_deck", "merge", "move_text", "order", "parse", "same",
]  # fmt: skip
