from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from toy import strategy

from cupilot.evolution.ranking import best_of, fitness, is_faster, ranked, resolution
from cupilot.evolution.selection import ELITE, Population, mate, tournament
from cupilot.records import Individual, Interval, Measurement, Strategy, Timing
from cupilot.testing.samples import EVALUATION, INDIVIDUAL


def individual(number: int, time_s: float, *cards: str) -> Individual:
    evaluation = replace(EVALUATION, timing=Timing(time_s, "modelled", "sample"))
    return replace(INDIVIDUAL, id=number, evaluation=evaluation, strategy=strategy(frozenset(cards)))


POPULATION = [individual(number, 1.0 + (number * 7 % 11), f"card{number}") for number in range(11)]


def admitted(size: int, individuals: list[Individual], seed: int = 0) -> Population:
    population = Population(size)
    rng = Random(seed)
    for one in individuals:
        population.admit(one, rng)
    return population


@pytest.mark.parametrize("seed", range(10))
def test_the_elite_never_leaves(seed: int) -> None:
    shuffled = Random(seed).sample(POPULATION, len(POPULATION))
    members = admitted(5, shuffled, seed).members
    fastest = sorted(POPULATION, key=lambda one: one.time_s or 0.0)[:ELITE]
    assert list(members[:ELITE]) == fastest
    assert len(members) == len({one.id for one in members}) == 5
    assert list(members) == ranked(members)


def test_everybody_stays_where_there_is_room() -> None:
    assert {one.id for one in admitted(20, POPULATION).members} == {one.id for one in POPULATION}


@pytest.mark.parametrize("seed", range(10))
def test_twins_give_way_to_the_unlike(seed: int) -> None:
    twins = [individual(number, 1.0 + number / 10, "tile") for number in range(6)]
    unlike = [individual(10, 9.0, "vector"), individual(11, 8.0, "stage")]
    members = admitted(4, [*unlike, *twins], seed).members
    assert {one.id for one in members} == {0, 1, 10, 11}


# --- the plain kernel ------------------------------------------------------------------------


def plain(time_s: float) -> Individual:
    return replace(individual(0, time_s), origin="plain", strategy=Strategy())


def test_the_plain_kernel_stays_until_two_are_faster_and_breeds_until_one_is() -> None:
    population = admitted(4, [plain(1.0)])
    assert population.breeders == population.members
    rng = Random(0)
    population.admit(individual(1, 2.0, "pad"), rng)
    assert {one.id for one in population.breeders} == {0, 1}, "slower and right: both may breed"
    assert population.mate(population.members[0], rng) is None, "the plain kernel has nothing to cross"
    population.admit(individual(2, 0.5, "tile"), rng)
    assert {one.id for one in population.members} == {0, 1, 2}
    assert {one.id for one in population.breeders} == {1, 2}
    population.admit(individual(3, 0.6, "vector"), rng)
    assert {one.id for one in population.members} == {1, 2, 3}


def test_a_kernel_whose_strategy_was_read_is_one_like_any_other() -> None:
    given = replace(individual(0, 1.0, "tile"), origin="plain")
    population = admitted(4, [given, individual(1, 0.5, "vector"), individual(2, 0.6, "stage")])
    assert {one.id for one in population.breeders} == {0, 1, 2}


# --- ties ------------------------------------------------------------------------------------


def test_a_tie_goes_to_the_simpler_strategy() -> None:
    complex_, simple = individual(1, 1.0, "tile", "vector", "pad"), individual(2, 1.015, "tile")
    slower = individual(3, 1.03, "vector")
    assert best_of([complex_, simple, slower]) is simple
    assert ranked([slower, complex_, simple]) == [simple, complex_, slower]
    assert best_of([complex_, simple], 0.0) is complex_, "without ties the fastest"
    assert all(tournament([complex_, simple], Random(seed)).id == 2 for seed in range(5))


def test_ties_do_not_add_up() -> None:
    """Everybody is within a tie of the next: only those within a tie of the fastest are preferred for being simple."""
    chain = [individual(number, 1.0 + 0.015 * number, *"abcdefgh"[: 8 - number]) for number in range(6)]
    assert best_of(chain).id == 1
    assert [one.id for one in ranked(chain)] == [1, 0, 3, 2, 5, 4]


def measured(number: int, time_s: float, spread: float, *cards: str) -> Individual:
    """With an interval of so much to each side."""
    one = individual(number, time_s, *cards)
    interval = Interval(time_s * (1 - spread), time_s * (1 + spread))
    measurement = Measurement((time_s,), time_s, interval, (), 10, 0)
    timing = Timing(time_s, "measured", "sample")
    return replace(one, evaluation=replace(one.evaluation, timing=timing, measurement=measurement))


def test_measured_times_tie_within_the_spread_of_both() -> None:
    precise, near = measured(1, 1.0, 0.001, "a", "b"), measured(2, 1.01, 0.001, "a")
    assert is_faster(precise.evaluation, near.evaluation), "1 % apart and known to 0.14 %"
    noisy = measured(3, 1.01, 0.02, "a")
    assert not is_faster(precise.evaluation, noisy.evaluation)
    assert best_of([precise, noisy]) is noisy
    wild = measured(4, 2.0, 0.9)
    assert resolution(precise.evaluation, wild.evaluation) == 0.05, "no spread makes everything a tie"


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


def test_of_alike_ones_the_earlier_wins() -> None:
    pair = [individual(2, 1.0, "a"), individual(1, 1.0, "b")]
    assert all(tournament(pair, Random(seed)).id == 1 for seed in range(5))
