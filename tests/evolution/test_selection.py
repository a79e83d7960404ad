from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from toy import strategy

from cupilot.evolution.ledger import fitness
from cupilot.evolution.selection import mate, survivors, tournament
from cupilot.records import Individual, Timing
from cupilot.testing.samples import EVALUATION, INDIVIDUAL


def individual(number: int, time_s: float, *cards: str) -> Individual:
    evaluation = replace(EVALUATION, timing=Timing(time_s, "modelled", "sample"))
    return replace(INDIVIDUAL, id=number, evaluation=evaluation, strategy=strategy(frozenset(cards)))


POPULATION = [individual(number, 1.0 + (number * 7 % 11), f"card{number}") for number in range(11)]


@pytest.mark.parametrize("seed", range(10))
def test_the_elite_always_survives(seed: int) -> None:
    chosen = survivors(POPULATION, 5, 2, Random(seed))
    fastest = sorted(POPULATION, key=lambda one: one.time_s or 0.0)[:2]
    assert list(chosen[:2]) == fastest
    assert len(chosen) == len({one.id for one in chosen}) == 5


def test_everybody_survives_where_there_is_room() -> None:
    assert {one.id for one in survivors(POPULATION, 20, 2, Random(0))} == {one.id for one in POPULATION}


@pytest.mark.parametrize("seed", range(10))
def test_twins_give_way_to_the_unlike(seed: int) -> None:
    twins = [individual(number, 1.0 + number / 10, "tile") for number in range(6)]
    unlike = [individual(10, 9.0, "vector"), individual(11, 8.0, "stage")]
    chosen = survivors(twins + unlike, 3, 1, Random(seed))
    assert {one.id for one in chosen} == {0, 10, 11}


def test_a_tournament_favours_the_fast() -> None:
    ranks = sorted(POPULATION, key=lambda one: one.time_s or 0.0)
    rng = Random(0)
    wins = [ranks.index(tournament(POPULATION, rng)) for _ in range(300)]
    assert sum(wins) / len(wins) < 3.5, "the mean rank of a random draw would be 5"
    assert len(set(wins)) > 3, "but not only the fastest wins"


def test_a_mate_is_unlike() -> None:
    first = individual(0, 1.0, "tile")
    twin, near, far = individual(1, 1.0, "tile"), individual(2, 1.0, "tile", "pad"), individual(3, 5.0, "vector")
    assert mate(first, [first, twin], Random(0)) is None
    assert mate(first, [first, twin, near, far], Random(0)) == far


def test_of_equally_fast_ones_the_one_that_uses_its_limit_more_wins() -> None:
    def limited(number: int, dram_s: float) -> Individual:
        timing = Timing(1.0, "modelled", "sample", "dram", (("dram", dram_s), ("issue", 0.1)))
        return replace(individual(number, 1.0), evaluation=replace(EVALUATION, timing=timing))

    lazy, busy = limited(1, 0.5), limited(2, 0.9)
    assert min((lazy, busy), key=fitness) is busy
    assert min((busy, individual(3, 0.99)), key=fitness).id == 3, "time comes first"


def test_ties_go_to_the_earlier() -> None:
    pair = [individual(2, 1.0, "a"), individual(1, 1.0, "b")]
    assert all(tournament(pair, Random(seed)).id == 1 for seed in range(5))
