"""The Manager's fallback for a missing or unusable reply: merge the parents, or draw moves from the cards."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from cupilot.agents.prompt_sections import PLAIN, PromptContext, relevant_cards
from cupilot.agents.reply_parsing import distinct, make_legal
from cupilot.records import Card, Move, Strategy
from cupilot.strategies import default_move, merge, same
from cupilot.strategies.choice import suits, task_families

TRIES = 16
MUTATIONS = ("add a move", "drop a move", "change a parameter of a move")
MUTATION_WEIGHTS = (0.45, 0.2, 0.35)
SUGGESTED = 12
"""Of so many of the most promising cards, one is suggested."""


def suggested_card(context: PromptContext, rng: Random) -> str:
    """A card to suggest in a prompt, so that repeated questions get different answers: one that no parent has."""
    named = {card for one in context.brief.parents for card in one.strategy.cards}
    names = [card.name for card in _relieving(context) if card.name not in named][:SUGGESTED]
    return rng.choice(names) if names else ""


def mutation(strategy: Strategy, rng: Random) -> str:
    """The kind of a mutation that a strategy allows: what has no moves can only get one."""
    possible = (True, len(strategy.moves) > 0, any(move.parameters for move in strategy.moves))
    weights = [weight * allowed for weight, allowed in zip(MUTATION_WEIGHTS, possible, strict=True)]
    return rng.choices(MUTATIONS, weights=weights)[0]


def pool_strategies(context: PromptContext, most: int) -> list[Strategy]:
    """What paid on similar tasks, made legal for this one; the most similar first."""
    found = []
    for record in context.brief.similar:
        reason = f"{record.worth_text} on {record.task}"
        moves = tuple(replace(move, reason=reason) for move in record.strategy.moves)
        found.append(_legal(context, Strategy(moves)))
    return distinct(found, [PLAIN])[:most]


def draw_strategy(context: PromptContext, rng: Random, known: list[Strategy]) -> Strategy | None:
    """One of ``known`` or the plain strategy with one more move, different from all of them; None if none is found."""
    for _ in range(TRIES):
        start = rng.choice([PLAIN, *known]) if known else PLAIN
        strategy = _with_move(context, start, rng)
        if strategy is not None and distinct([strategy], [PLAIN, *known]):
            return strategy
    return None


def merge_parents(context: PromptContext, rng: Random) -> Strategy:
    """The parents merged; a move more or less when the result is one of the parents."""
    parents = [one.strategy for one in context.brief.parents] or [PLAIN]
    child = parents[0]
    if len(parents) > 1:
        relieving = {card.name for card in _relieving(context)}
        child = merge(
            parents[0], parents[1], context.deck, lambda move: (move.card in relieving) + rng.random(), complete=False
        )
        child = _legal(context, replace(child, text=""), complete=False)
    for _ in range(TRIES):
        if not any(same(child, parent) for parent in parents):
            break
        child = _with_move(context, child, rng) or _without_move(child, rng)
    return child


def _legal(context: PromptContext, strategy: Strategy, *, complete: bool = True) -> Strategy:
    brief = context.brief
    return make_legal(strategy, context.deck, brief.spec, brief.task.precision, complete=complete)[0]


def _relieving(context: PromptContext) -> list[Card]:
    """The cards for the task's operators that relieve the limit, or all of them if none does, most promising first."""
    families = task_families(context.brief.task)
    cards = [card for card in relevant_cards(context) if suits(card, families)]
    guidance = context.brief.guidance
    relieving = [card for card in cards if guidance is not None and guidance.limit in card.relieves]
    return relieving or cards


def _with_move(context: PromptContext, strategy: Strategy, rng: Random) -> Strategy | None:
    absent = [card for card in _relieving(context) if card.name not in strategy.cards]
    if not absent:
        return None
    card = rng.choice(absent)
    guidance = context.brief.guidance
    reason = f"relieves {guidance.limit}" if guidance is not None else "drawn"
    values = {parameter.name: rng.choice(parameter.choices) for parameter in card.parameters}
    move = Move.of(card.name, reason, **values) if values else default_move(card.name, context.deck, reason)
    # the new move comes first, so that conflicting moves give way to it
    return _legal(context, Strategy((move, *strategy.moves)))


def _without_move(strategy: Strategy, rng: Random) -> Strategy:
    if not strategy.moves:
        return strategy
    dropped = rng.choice(strategy.moves)
    return replace(strategy, moves=tuple(move for move in strategy.moves if move is not dropped), text="")
