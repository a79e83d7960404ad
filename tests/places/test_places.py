"""Places in results: stretches of positions, and the slices that are looked at."""

from __future__ import annotations

import numpy as np
import pytest

from cupilot.places import Runs, Slices

SHAPE = (6, 40, 9)


@pytest.fixture
def positions() -> np.ndarray:
    rng = np.random.default_rng(4)
    stretches = [np.arange(at, at + count) for at, count in ((3, 50), (100, 1), (102, 7), (300, 700), (1500, 600))]
    return np.unique(np.concatenate([*stretches, rng.integers(0, 2160, 40)]))


def test_runs_are_their_positions(positions: np.ndarray) -> None:
    runs = Runs.of(positions)
    assert runs.size == positions.size
    assert (np.diff(runs.first) > runs.length[:-1]).all()
    np.testing.assert_array_equal(runs.positions, positions)
    assert [runs[place] for place in (0, 51, -1)] == [positions[0], positions[51], positions[-1]]
    assert Runs.of(positions[:0]).size == 0
    values = np.random.default_rng(1).random(2160)
    np.testing.assert_array_equal(runs.of_values(values), values[positions])


def test_long_stretches_are_copied_as_such() -> None:
    runs, values = Runs(np.array([[10, 400], [900, 1000]])), np.arange(2000.0)
    assert runs.size > Runs.LONG * len(runs.table)
    np.testing.assert_array_equal(runs.of_values(values), values[runs.positions])


def test_places_within_others(positions: np.ndarray) -> None:
    runs = Runs.of(positions)
    part = Runs(runs.cut(310, 1600))
    wanted = positions[(positions >= 310) & (positions < 1600)]
    np.testing.assert_array_equal(part.positions, wanted)
    np.testing.assert_array_equal(positions[part.within(runs).positions], wanted)
    assert Runs(runs.cut(2160, 3000)).size == 0


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("some", [False, True])
def test_slices_hold_all_that_was_asked_of_their_indices(axis: int, some: bool, positions: np.ndarray) -> None:
    given = positions if some else np.arange(2160)
    slices = Slices(axis, 8, 5)
    where = Runs.of(given) if some else None
    chosen, found = slices.chosen(where, SHAPE), slices.of(where, SHAPE)
    along = np.unravel_index(given, SHAPE)[axis]
    wanted = given[np.isin(along, chosen)]
    np.testing.assert_array_equal(given if found is None else found.positions, wanted)
    quarters = {int(index) * 4 // SHAPE[axis] for index in along}
    assert {int(index) * 4 // SHAPE[axis] for index in chosen} == quarters
    assert len(chosen) <= max(8, 4)
    # who is handed these slices only finds the same ones
    np.testing.assert_array_equal(slices.chosen(Runs.of(wanted), SHAPE), chosen)


@pytest.mark.parametrize("stretch", [(0, 2160), (355, 10), (700, 400), (8, 2), (2159, 1), (300, 361)])
def test_stretches_over_several_indices_are_noticed(stretch: tuple[int, int]) -> None:
    where = Runs(np.array([stretch]))
    for axis in range(3):
        along = np.unravel_index(where.positions, SHAPE)[axis]
        chosen = Slices(axis, 4 * SHAPE[axis], 1).chosen(where, SHAPE)
        np.testing.assert_array_equal(chosen, np.unique(along))
