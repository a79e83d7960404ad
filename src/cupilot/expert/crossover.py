"""The expert as SCE Manager: first strategies, crossover and mutation, guided by zone and limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from random import Random

from cupilot.contracts import Brief
from cupilot.expert.space import Space, with_move, with_parameter
from cupilot.records import Guidance, Move, PoolRecord, Strategy
from cupilot.strategies import choice, distance, merge, same
from cupilot.strategies.pool_rank import POOL_SHARE
from cupilot.strategies.pool_tags import operator_tags

# probability of a card in a random strategy, and how much more if it relieves the limit
CHANCE, RELIEF_CHANCE = 0.35, 0.3
# draws per strategy, of which the one farthest from all others is taken
DRAWS = 6
# probability that a move of only one parent, which does not relieve the limit, is dropped
THINNING = 0.3
# mutations tried before a new draw
TRIES = 12
# relative frequency of mutations
MUTATIONS = {"add": 0.45, "change": 0.35, "drop": 0.2}


def relevance(space: Space, card: str, guidance: Guidance | None) -> float:
    """How relevant a card is for the guidance, by the weights that all choices of cards have."""
    return 0.0 if guidance is None else choice.relevance(space.deck.card(card), guidance.limit, guidance.zone)


def initialize(space: Space, brief: Brief, count: int, rng: Random) -> tuple[Strategy, ...]:
    """Up to ``count`` strategies, no two alike.

    First come strategies that paid on tasks with the same operators, then the recipe's starting points, those for the
    limit before others, and what paid on tasks with other operators, then random strategies spread over the space, the
    most relevant for the guidance first.  The empty strategy is not among them: it is the plain kernel.
    """
    guidance = brief.guidance
    pooled = ceil(POOL_SHARE * count)
    operators = set(operator_tags(brief.task))
    own = [record for record in brief.similar if set(record.operators) == operators]
    chosen = _adapted(space, own, pooled)
    half = len(chosen) + (count - len(chosen) + 1) // 2
    for start in space.starts(guidance.limit if guidance is not None else ""):
        if len(chosen) < half and not any(same(start, other) for other in chosen):
            chosen.append(start)
    others = [record for record in brief.similar if set(record.operators) != operators]
    for strategy in _adapted(space, others, pooled - len(own)):
        if len(chosen) < count and not any(same(strategy, other) for other in chosen):
            chosen.append(strategy)

    def chance(card: str) -> float:
        relieves = guidance is not None and guidance.limit in space.deck.card(card).relieves
        return CHANCE + (RELIEF_CHANCE if relieves else 0.0)

    known = len(chosen)
    drawn = [space.draw(rng, chance, "covers the space") for _ in range(DRAWS * max(count - len(chosen), 0))]
    while len(chosen) < count:
        taken = [Strategy(), *chosen]
        fresh = [s for s in drawn if not any(same(s, other) for other in taken)]
        if not fresh:
            break
        chosen.append(max(fresh, key=lambda s: min(distance(s, other) for other in taken)))
    ranked = sorted(chosen[known:], key=lambda s: -sum(relevance(space, card, guidance) for card in s.cards))
    return (*chosen[:known], *ranked)


def _adapted(space: Space, records: Sequence[PoolRecord], most: int) -> list[Strategy]:
    """Strategies of similar tasks, made legal for this one; the most similar first.

    A strategy that needs another GPU, or loses more than half of its moves, is left out.
    """
    found: list[Strategy] = []
    for record in records:
        reason = f"{record.worth_text} on {record.task}"
        moves = tuple(replace(move, reason=reason) for move in record.strategy.moves if move.card in space.cards)
        strategy = space.effective(space.repair(Strategy(moves)))
        kept = strategy.cards & record.strategy.cards
        if len(found) >= most or 2 * len(kept) < len(record.strategy.moves) or not kept:
            continue
        if any(card in space.deck and not space.capable(card) for card in record.strategy.cards):
            continue
        if not any(same(strategy, other) for other in found):
            found.append(strategy)
    return found


def cross(space: Space, parents: Sequence[Strategy], guidance: Guidance | None, rng: Random) -> Strategy:
    """A strategy from two parents, the better one first; from one parent, a mutation."""
    if len(parents) < 2:
        return mutate(space, parents[0] if parents else Strategy(), guidance, rng)
    better, other = (space.repair(parent) for parent in parents[:2])

    def prefer(move: Move) -> float:
        inherited = better.move(move.card)
        return relevance(space, move.card, guidance) + (0.5 if inherited == move else 0.0) + rng.random()

    child = merge(better, other, space.deck, prefer)
    for move in child.moves:
        single = (better.move(move.card) is None) != (other.move(move.card) is None)
        if single and relevance(space, move.card, guidance) < 1.0 and rng.random() < THINNING:
            child = space.without(child, move.card) if move.card in child.cards else child
    child = space.effective(space.repair(replace(child, text="")))
    if any(same(child, parent) for parent in parents):
        return mutate(space, child, guidance, rng, avoid=parents)
    return child


def mutate(
    space: Space, strategy: Strategy, guidance: Guidance | None, rng: Random, avoid: Sequence[Strategy] = ()
) -> Strategy:
    """A legal strategy one step away, and not in ``avoid``: a move added or dropped, or one parameter changed."""
    start = space.effective(space.repair(strategy))
    steps: dict[str, Callable[[Space, Strategy, Guidance | None, Random], tuple[Strategy, frozenset[str]] | None]]
    steps = {"add": _add, "change": _change, "drop": _drop}
    for _ in range(TRIES):
        kind = rng.choices(list(MUTATIONS), weights=list(MUTATIONS.values()))[0]
        step = steps[kind](space, start, guidance, rng)
        if step is None:
            continue
        changed, keep = step
        result = space.effective(space.repair(changed, keep))
        if not any(same(result, known) for known in (start, *avoid)):
            return result
    return space.draw(rng, lambda card: CHANCE, "no single step was legal")


def _add(
    space: Space, strategy: Strategy, guidance: Guidance | None, rng: Random
) -> tuple[Strategy, frozenset[str]] | None:
    absent = [card for card in space.cards if card not in strategy.cards]
    if not absent:
        return None
    card = rng.choices(absent, weights=[0.5 + 2.0 * relevance(space, card, guidance) for card in absent])[0]
    relieved = guidance is not None and guidance.limit in space.deck.card(card).relieves
    reason = f"relieves {guidance.limit}" if guidance is not None and relieved else "mutation: added"
    return with_move(strategy, space.draw_move(card, rng, reason)), frozenset({card})


def _change(
    space: Space, strategy: Strategy, guidance: Guidance | None, rng: Random
) -> tuple[Strategy, frozenset[str]] | None:
    options = [
        (move, name, value)
        for move in strategy.moves
        for name, current in move.parameters
        for value in space.choices(move.card, name)
        if value != current
    ]
    if not options:
        return None
    weights = [0.5 + relevance(space, move.card, guidance) for move, _, _ in options]
    move, name, value = rng.choices(options, weights=weights)[0]
    changed = replace(with_parameter(move, name, value), reason=f"mutation: {name} was {move.get(name)}")
    return with_move(strategy, changed), frozenset({move.card})


def _drop(
    space: Space, strategy: Strategy, guidance: Guidance | None, rng: Random
) -> tuple[Strategy, frozenset[str]] | None:
    if not strategy.moves:
        return None
    weights = [1.0 / (0.5 + relevance(space, move.card, guidance)) for move in strategy.moves]
    move = rng.choices(strategy.moves, weights=weights)[0]
    return space.without(strategy, move.card), frozenset()
