"""Who stays and who breeds: elitism, tournaments, and distance between strategies.

Every individual given must have a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from cupilot.evolution.ranking import is_faster, ranked
from cupilot.records import Individual, Strategy
from cupilot.records.run import MODELLED_TIE
from cupilot.strategies.algebra import distance

ELITE = 2
CONTENDERS = 3


class Population:
    """Those that parents are chosen from: at most ``size``, the best of which never leave.

    ``tie`` is the resolution of modelled times.  The plain kernel is a member until two are faster.
    """

    def __init__(self, size: int, tie: float = MODELLED_TIE) -> None:
        self.size, self.tie = size, tie
        self.members: tuple[Individual, ...] = ()  # the best first
        self.crossed: set[frozenset[int]] = set()  # ids of the pairs that were chosen

    def admit(self, individual: Individual, rng: Random) -> None:
        """Take somebody in; when there are too many, one leaves."""
        members = ranked([*self.members, individual], self.tie)
        plain = next((one for one in members if is_plain(one)), None)
        if plain is not None and sum(self._faster(one, plain) for one in members) >= 2:
            members.remove(plain)
        if len(members) > self.size:
            members.remove(_leaver(members, rng))
        self.members = tuple(members)

    @property
    def breeders(self) -> tuple[Individual, ...]:
        """The members that children may come from: never the plain kernel once another is faster."""
        plain = next((one for one in self.members if is_plain(one)), None)
        if plain is None or not any(self._faster(one, plain) for one in self.members):
            return self.members
        return tuple(one for one in self.members if one is not plain)

    def parent(self, rng: Random) -> Individual:
        return tournament(self.breeders, rng, self.tie)

    def mate(self, first: Individual, rng: Random) -> Individual | None:
        """A second parent for the first; None when nobody differs, or one of them has no moves to combine.

        Those come first with whom the first was not crossed yet, and who have something that it lacks and lack
        something that it has: anybody else would most likely give a child that is known.
        """
        others = [one for one in self.breeders if one.strategy.moves] if first.strategy.moves else []
        unmet = [one for one in others if frozenset((one.id, first.id)) not in self.crossed]
        for some in ([one for one in unmet if combine(one.strategy, first.strategy)], unmet, others):
            if (found := mate(first, some, rng, self.tie)) is not None:
                return found
        return None

    def _faster(self, one: Individual, other: Individual) -> bool:
        return is_faster(one.evaluation, other.evaluation, self.tie)


def is_plain(individual: Individual) -> bool:
    """The kernel that a run starts from, unless a strategy was read out of it."""
    return individual.origin == "plain" and not individual.strategy.moves


def combine(one: Strategy, other: Strategy) -> bool:
    """Whether either has a move, or a parameter of one, that the other lacks."""
    mine, others = ({(move.card, move.parameters) for move in each.moves} for each in (one, other))
    return bool(mine - others) and bool(others - mine)


def _leaver(members: Sequence[Individual], rng: Random) -> Individual:
    """Of those beside the elite the last that has a better twin, else the last of a few drawn at random."""
    elite = min(ELITE, len(members) - 1)
    for place in range(len(members) - 1, elite - 1, -1):
        one = members[place]
        if any(distance(one.strategy, other.strategy) == 0 for other in members[:place]):
            return one
    rest = range(elite, len(members))
    return members[max(rng.sample(rest, min(CONTENDERS, len(rest))))]


def tournament(individuals: Sequence[Individual], rng: Random, tie: float = MODELLED_TIE) -> Individual:
    """The best of a few drawn at random."""
    return ranked(rng.sample(list(individuals), min(CONTENDERS, len(individuals))), tie)[0]


def mate(
    first: Individual, individuals: Sequence[Individual], rng: Random, tie: float = MODELLED_TIE
) -> Individual | None:
    """A second parent: of a few drawn at random, the one whose strategy differs most from the first's.

    None when nobody differs: then there is nothing to combine.
    """
    others = [one for one in individuals if distance(one.strategy, first.strategy) > 0]
    if not others:
        return None
    drawn = ranked(rng.sample(others, min(CONTENDERS, len(others))), tie)
    return max(drawn, key=lambda one: distance(one.strategy, first.strategy))  # of equally far ones the best
