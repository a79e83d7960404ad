"""Who stays and who breeds: elitism, tournaments, and distance between strategies.

Pure functions of individuals and a generator; every individual given must have a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from cupilot.evolution.ledger import fitness
from cupilot.records import Individual
from cupilot.strategies.algebra import distance

CONTENDERS = 3


def survivors(individuals: Sequence[Individual], size: int, elite: int, rng: Random) -> tuple[Individual, ...]:
    """The ``elite`` fastest, then winners of tournaments among those unlike the ones chosen."""
    remaining = sorted(individuals, key=fitness)
    chosen = remaining[: min(elite, size)]
    remaining = remaining[len(chosen) :]
    while remaining and len(chosen) < size:
        fresh = [one for one in remaining if all(distance(one.strategy, other.strategy) > 0 for other in chosen)]
        winner = tournament(fresh or remaining, rng)
        chosen.append(winner)
        remaining.remove(winner)
    return tuple(chosen)


def tournament(individuals: Sequence[Individual], rng: Random) -> Individual:
    """The fastest of a few drawn at random."""
    return min(rng.sample(list(individuals), min(CONTENDERS, len(individuals))), key=fitness)


def mate(first: Individual, individuals: Sequence[Individual], rng: Random) -> Individual | None:
    """A second parent: of a few drawn at random, the one whose strategy differs most from the first's.

    None when nobody differs: then there is nothing to combine.
    """
    others = [one for one in individuals if distance(one.strategy, first.strategy) > 0]
    if not others:
        return None
    drawn = rng.sample(others, min(CONTENDERS, len(others)))
    return min(drawn, key=lambda one: (-distance(one.strategy, first.strategy), fitness(one)))
