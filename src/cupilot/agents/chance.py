"""What the Manager does without a model's help: merging, and moves drawn from the cards.

For when a reply is missing or of no use; a run goes on with this, and nothing here is clever.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from cupilot.agents.parts import PLAIN, Matter, fitting
from cupilot.agents.reading import legal, unlike
from cupilot.records import Card, Move, Strategy
from cupilot.strategies import default_move, merge, same

TRIES = 16
STEPS = ("add a move", "drop a move", "change a parameter of a move")
STEP_WEIGHTS = (0.45, 0.2, 0.35)
POOL_SHARE = 0.4
"""Of the first strategies, the share that is what paid on similar tasks, when there are any."""


def spark(matter: Matter, rng: Random) -> str:
    """A card to think of, so that asking twice need not give the same answer; those that relieve the limit first."""
    names = [card.name for card in _relieving(matter)]
    return rng.choice(names) if names else ""


def step(rng: Random) -> str:
    """The kind of a mutation."""
    return rng.choices(STEPS, weights=STEP_WEIGHTS)[0]


def from_pool(matter: Matter, most: int) -> list[Strategy]:
    """What paid on similar tasks, made legal here; the most similar first."""
    found = []
    for record in matter.brief.similar:
        reason = f"paid {record.gain:.1f}x on {record.task}"
        moves = tuple(replace(move, reason=reason) for move in record.strategy.moves)
        strategy, _ = legal(Strategy(moves), matter.deck, matter.brief.spec, matter.brief.task.precision)
        found.append(strategy)
    return unlike(found, [PLAIN])[:most]


def drawn(matter: Matter, rng: Random, known: list[Strategy]) -> Strategy | None:
    """One move more than one of ``known`` (or than nothing), unlike all of them."""
    for _ in range(TRIES):
        start = rng.choice([PLAIN, *known]) if known else PLAIN
        strategy = _with_move(matter, start, rng)
        if strategy is not None and unlike([strategy], [PLAIN, *known]):
            return strategy
    return None


def crossed(matter: Matter, rng: Random) -> Strategy:
    """The parents merged; when that is one of them again, a move more or less."""
    parents = [one.strategy for one in matter.brief.parents] or [PLAIN]
    child = parents[0]
    if len(parents) > 1:
        relieving = {card.name for card in _relieving(matter)}
        child = merge(parents[0], parents[1], matter.deck, lambda move: (move.card in relieving) + rng.random())
        child, _ = legal(replace(child, text=""), matter.deck, matter.brief.spec, matter.brief.task.precision)
    for _ in range(TRIES):
        if not any(same(child, parent) for parent in parents):
            break
        child = _with_move(matter, child, rng) or _without_move(child, rng)
    return child


def _relieving(matter: Matter) -> list[Card]:
    cards = fitting(matter)
    guidance = matter.brief.guidance
    answering = [card for card in cards if guidance is not None and guidance.limit in card.relieves]
    return answering or list(cards)


def _with_move(matter: Matter, strategy: Strategy, rng: Random) -> Strategy | None:
    absent = [card for card in _relieving(matter) if card.name not in strategy.cards]
    if not absent:
        return None
    card = rng.choice(absent)
    guidance = matter.brief.guidance
    reason = f"relieves {guidance.limit}" if guidance is not None else "drawn"
    values = {parameter.name: rng.choice(parameter.choices) for parameter in card.parameters}
    move = Move.of(card.name, reason, **values) if values else default_move(card.name, matter.deck, reason)
    # first, so that it is the others that give way
    grown = Strategy((move, *strategy.moves), "")
    return legal(grown, matter.deck, matter.brief.spec, matter.brief.task.precision)[0]


def _without_move(strategy: Strategy, rng: Random) -> Strategy:
    if not strategy.moves:
        return strategy
    gone = rng.choice(strategy.moves)
    return replace(strategy, moves=tuple(move for move in strategy.moves if move is not gone), text="")
