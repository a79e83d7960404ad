"""The strategies that one recipe can realise for one task: legality, repair and sampling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from types import SimpleNamespace
from typing import Any

from cupilot.expert.expressions import value_of
from cupilot.expert.matching import Problem
from cupilot.expert.recipe import Realised, identifier
from cupilot.records import Move, Strategy, Value
from cupilot.strategies import Deck, compatible, order, parse, same

# the templates use nothing that this compute capability lacks
CAPABILITY = 8.0


@dataclass(frozen=True)
class Space:
    """See the module's docstring.  All methods are pure functions of problem, deck and compute capability.

    ``only`` leaves out all other cards, for searches in a part of the strategies.
    """

    problem: Problem
    deck: Deck
    capability: float = CAPABILITY
    only: frozenset[str] | None = None

    @property
    def cards(self) -> tuple[str, ...]:
        """The recipe's cards that the task's precision and the device allow."""
        known = (move.card for move in self.problem.recipe.moves)
        kept = (card for card in known if self.only is None or card in self.only)
        return tuple(card for card in kept if self._allowed_precision(card) and self.capable(card))

    def capable(self, card: str) -> bool:
        """Whether the device has what the card uses."""
        return self.deck.card(card).runs_on(self.capability)

    def _allowed_precision(self, card: str) -> bool:
        return self.deck.card(card).allows(self.problem.precision)

    def choices(self, card: str, parameter: str) -> tuple[Value, ...]:
        return self.problem.recipe.choices(card, parameter, self.deck)

    def values(self, strategy: Strategy) -> dict[str, Any]:
        """The names for expressions and the template: facts, moves, derived values."""
        recipe = self.problem.recipe
        names: dict[str, Any] = dict(self.problem.facts)
        for realised in recipe.moves:
            move = strategy.move(realised.card)
            names[identifier(realised.card)] = SimpleNamespace(**dict(move.parameters)) if move is not None else False
        for name, expression in recipe.derived:
            names[name] = value_of(expression, names)
        return names

    # --- legal or not ------------------------------------------------------------------------

    def faults(self, strategy: Strategy) -> tuple[str, ...]:
        """Why the recipe cannot realise the strategy; empty when it can."""
        found = [f"the recipe does not realise {m.card}" for m in strategy.moves if self._realised(m.card) is None]
        found += compatible(strategy, self.deck, capability=self.capability, precision=self.problem.precision)
        for move in strategy.moves:
            found += [f"{move.card} needs {need}" for need in self._own_needs(move.card) if not _met(need, strategy)]
            found += [
                f"{move.card}: {name}={value} is not what the recipe allows"
                for name, value in move.parameters
                if self._realised(move.card) is not None and value not in self._allowed(move.card, name)
            ]
        return tuple(dict.fromkeys(found)) or self._broken_rules(strategy)

    def _broken_rules(self, strategy: Strategy) -> tuple[str, ...]:
        names = self.values(strategy)
        return tuple(rule.text for rule in self.problem.recipe.rules if not value_of(rule.rule, names))

    def _realised(self, card: str) -> Realised | None:
        return self.problem.recipe.realised(card)

    def _own_needs(self, card: str) -> tuple[str, ...]:
        """The needs that the recipe adds, without those for another precision."""
        realised = self._realised(card)
        needs = realised.needs if realised is not None else ()
        return tuple(need for need in needs if any(map(self._allowed_precision, need.split("|"))))

    def _allowed(self, card: str, parameter: str) -> tuple[Value, ...]:
        known = {p.name for p in self.deck.card(card).parameters}
        return self.choices(card, parameter) if parameter in known else ()

    # --- repair ------------------------------------------------------------------------------

    def repair(self, strategy: Strategy, keep: frozenset[str] = frozenset()) -> Strategy:
        """A legal strategy close to the given one; moves of the cards in ``keep`` are changed last.

        Values are snapped to allowed ones, needed moves are added, and of two moves that exclude each other one is
        dropped.  Then single parameters are changed while that breaks fewer rules, else a move is dropped.  The empty
        strategy is always legal.
        """
        moves = {m.card: self._snapped(m) for m in order(strategy).moves if m.card in self.cards}
        moves = self._complete(self._without_conflicts(moves, keep))
        current = Strategy(tuple(moves.values()), strategy.text)
        while broken := self._broken_rules(current):
            better = self._fewest(self._variations(current, keep), len(broken))
            if better is None and keep:
                better = self._fewest(self._variations(current, frozenset()), len(broken))
            current = better or self._give_up(current, keep)
        return order(current)

    def _snapped(self, move: Move) -> Move:
        given = dict(move.parameters)
        parameters = {
            p.name: _nearest(given.get(p.name), self.choices(move.card, p.name))
            for p in self.deck.card(move.card).parameters
        }
        return Move.of(move.card, move.reason, **parameters)

    def _without_conflicts(self, moves: dict[str, Move], keep: frozenset[str]) -> dict[str, Move]:
        kept: dict[str, Move] = {}
        for card in sorted(moves, key=lambda card: (card not in keep, card)):
            if not any(self.deck.excluded(card, other) for other in kept):
                kept[card] = moves[card]
        return kept

    def _complete(self, moves: dict[str, Move]) -> dict[str, Move]:
        """Add needed moves; drop moves whose needs are excluded by the others."""
        dropped: set[str] = set()  # not added again, or the loop would not end
        while True:
            missing = [(card, need) for card in sorted(moves) for need in self._needs(card) if not _met(need, moves)]
            if not missing:
                return moves
            card, need = missing[0]
            free = [
                name
                for name in need.split("|")
                if name in self.cards and name not in dropped
                and not any(self.deck.excluded(name, other) for other in moves)
            ]  # fmt: skip
            if free:
                moves = {**moves, free[0]: self.default(free[0], f"needed by {card}")}
            else:
                dropped.add(card)
                moves = {name: move for name, move in moves.items() if name != card}

    def _needs(self, card: str) -> tuple[str, ...]:
        return (*self.deck.card(card).needs, *self._own_needs(card))

    def _variations(self, strategy: Strategy, keep: frozenset[str]) -> Iterator[Strategy]:
        """All changes of one parameter of a move that is not in ``keep``."""
        for move in strategy.moves:
            if move.card in keep:
                continue
            for name, value in move.parameters:
                for choice in self.choices(move.card, name):
                    if choice != value:
                        yield with_move(strategy, with_parameter(move, name, choice))

    def _fewest(self, candidates: Iterator[Strategy], fewer_than: int) -> Strategy | None:
        best, least = None, fewer_than
        for candidate in candidates:
            count = len(self._broken_rules(candidate))
            if count < least:
                best, least = candidate, count
        return best

    def _give_up(self, strategy: Strategy, keep: frozenset[str]) -> Strategy:
        """Drop the move that repairs the most rules per dropped move; those in ``keep`` only when no other is left."""
        free = [move.card for move in strategy.moves if move.card not in keep] or sorted(strategy.cards)
        broken = len(self._broken_rules(strategy))

        def price(candidate: Strategy) -> tuple[float, int]:
            lost = len(strategy.moves) - len(candidate.moves)
            return (len(self._broken_rules(candidate)) - broken) / lost, lost

        return min((self.without(strategy, card) for card in free), key=price)

    # --- building ----------------------------------------------------------------------------

    def default(self, card: str, reason: str = "") -> Move:
        """The card with all parameters at this recipe's defaults."""
        return Move.of(card, reason, **{p.name: self.choices(card, p.name)[0] for p in self.deck.card(card).parameters})

    def draw_move(self, card: str, rng: Random, reason: str = "") -> Move:
        """The card with parameters drawn at random."""
        parameters = self.deck.card(card).parameters
        return Move.of(card, reason, **{p.name: rng.choice(self.choices(card, p.name)) for p in parameters})

    def draw(self, rng: Random, chance: Callable[[str], float], reason: str = "") -> Strategy:
        """A random legal strategy; ``chance`` is the probability of each card."""
        wanted = {card: self.draw_move(card, rng, reason) for card in self.cards if rng.random() < chance(card)}
        complete = self._complete(self._without_conflicts(wanted, frozenset()))
        # added moves get random parameters too, or samples would cluster around the defaults
        moves = [wanted.get(card) or self.draw_move(card, rng, move.reason) for card, move in complete.items()]
        return self.effective(self.repair(Strategy(tuple(moves))))

    def without(self, strategy: Strategy, card: str) -> Strategy:
        """The strategy without a card and without everything that needs it."""
        gone = {card}
        while True:
            left = [move for move in strategy.moves if move.card not in gone]
            present = {move.card for move in left}
            more = {m.card for m in left if not all(_met(need, present) for need in self._needs(m.card))}
            if not more:
                return Strategy(tuple(left), strategy.text)
            gone |= more

    def effective(self, strategy: Strategy) -> Strategy:
        """A legal strategy without the moves that change nothing for this task."""
        names = self.values(strategy)
        for idle in self.problem.recipe.idle:
            if strategy.move(idle.card) is None or not value_of(idle.when, names):
                continue
            struck = Strategy(tuple(m for m in strategy.moves if m.card != idle.card), strategy.text)
            if not self.faults(struck):
                strategy = struck
        return order(strategy)

    def starts(self, limit: str) -> tuple[Strategy, ...]:
        """The recipe's starting points that the device allows, made legal for this task, those for this limit first."""
        found: list[Strategy] = []
        known = [start for start in self.problem.recipe.starts if value_of(start.when, self.problem.facts)]
        for start in sorted(known, key=lambda start: limit not in start.limits):
            moves = parse("\n".join(start.moves), self.deck).moves
            if not all(self.capable(move.card) for move in moves):
                continue
            reasoned = Strategy(tuple(replace(move, reason="a known starting point") for move in moves))
            strategy = self.effective(self.repair(reasoned))
            if strategy.moves and not any(same(strategy, other) for other in found):
                found.append(strategy)
        return tuple(found)

    def smaller(self, strategy: Strategy) -> Strategy | None:
        """The next strategy that needs fewer resources, if the recipe has one.

        No move is added and no parameter grows, so repeated steps terminate.
        """
        for entry in self.problem.recipe.smaller:
            move = strategy.move(entry.card)
            if move is None:
                continue
            if not entry.parameter:
                return self.repair(self.without(strategy, entry.card))
            value = move.get(entry.parameter)
            lower = [v for v in self.choices(entry.card, entry.parameter) if _number(v) < _number(value)]
            if lower:
                changed = with_parameter(move, entry.parameter, max(lower, key=_number))
                repaired = self.repair(with_move(strategy, changed), keep=frozenset({entry.card}))
                if repaired.move(entry.card) == changed and _within(repaired, strategy):
                    return repaired
        return None


def with_move(strategy: Strategy, move: Move) -> Strategy:
    """The strategy with this move, which replaces one of the same card."""
    if strategy.move(move.card) is None:
        return order(Strategy((*strategy.moves, move), strategy.text))
    return Strategy(tuple(move if m.card == move.card else m for m in strategy.moves), strategy.text)


def with_parameter(move: Move, name: str, value: Value) -> Move:
    """The move with one parameter changed."""
    return Move.of(move.card, move.reason, **{**dict(move.parameters), name: value})


def _met(need: str, present: Any) -> bool:
    cards = present.cards if isinstance(present, Strategy) else present
    return any(name in cards for name in need.split("|"))


def _within(inner: Strategy, outer: Strategy) -> bool:
    pairs = [(move, outer.move(move.card)) for move in inner.moves]
    return all(
        around is not None and all(_number(value) <= _number(around.get(name)) for name, value in move.parameters)
        for move, around in pairs
    )


def _nearest(value: Value | None, choices: tuple[Value, ...]) -> Value:
    """The allowed value closest to a number; the default for anything else."""
    if value in choices:
        return choices[choices.index(value)]
    if isinstance(value, (int, float)) and all(isinstance(choice, (int, float)) for choice in choices):
        return min(choices, key=lambda choice: abs(_number(choice) - _number(value)))
    return choices[0]


def _number(value: Value | None) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
