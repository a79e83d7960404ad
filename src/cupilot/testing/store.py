"""The contract of a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cupilot.contracts import Store
from cupilot.errors import StoreError
from cupilot.records import Failure
from cupilot.testing.samples import FAILED, INDIVIDUAL, INFO, RESULT, STRATEGY


class StoreContract:
    """Offer ``store``, new and empty, and ``reopen``, which opens the same store once more."""

    def test_keeps_what_the_run_was_asked_to_do(self, store: Store, reopen: Callable[[], Store]) -> None:
        store.begin(INFO)
        assert store.info() == INFO
        store.close()
        again = reopen()
        assert again.info() == INFO
        again.close()

    def test_keeps_individuals_in_order(self, store: Store, reopen: Callable[[], Store]) -> None:
        store.begin(INFO)
        added = [replace(INDIVIDUAL, id=number, strategy=STRATEGY) for number in (0, 2, 1)]
        for individual in added:
            store.add(individual)
        assert list(store.individuals()) == added
        store.close()
        again = reopen()
        assert list(again.individuals()) == added
        again.close()

    def test_keeps_failures(self, store: Store) -> None:
        failed = replace(INDIVIDUAL, evaluation=FAILED)
        store.begin(INFO)
        store.add(failed)
        assert list(store.individuals()) == [failed]
        store.close()

    def test_text_that_no_file_can_hold_loses_nothing(self, store: Store) -> None:
        """A candidate's process chooses the words of its failure, halves of characters included."""
        bad = Failure("build", "compile-\ud800error", "half \udc80 of a character", "and \udfff more")
        failed = replace(INDIVIDUAL, evaluation=replace(FAILED, failure=bad))
        store.begin(INFO)
        store.add(failed)
        store.note("select", "because of \ud800")
        store.add(replace(INDIVIDUAL, id=1))
        assert list(store.individuals()) == [failed, replace(INDIVIDUAL, id=1)]
        assert [kind for kind, _ in store.notes()] == ["select"]
        store.close()

    def test_keeps_decisions_in_order(self, store: Store) -> None:
        store.begin(INFO)
        store.note("select", "1, 2 as the fastest")
        store.note("stop", "enough")
        assert list(store.notes()) == [("select", "1, 2 as the fastest"), ("stop", "enough")]
        store.close()

    def test_can_be_read_while_it_is_written(self, store: Store, reopen: Callable[[], Store]) -> None:
        store.begin(INFO)
        reader = reopen()
        for number in range(5):
            store.add(replace(INDIVIDUAL, id=number))
            assert [one.id for one in reader.individuals()] == list(range(number + 1))
        reader.close()
        store.close()

    def test_a_store_is_one_run(self, store: Store) -> None:
        store.begin(INFO)
        with pytest.raises(StoreError):
            store.begin(INFO)
        store.add(INDIVIDUAL)
        with pytest.raises(StoreError):
            store.add(INDIVIDUAL)
        store.add(replace(INDIVIDUAL, id=1))
        assert [one.id for one in store.individuals()] == [0, 1], "a refused individual leaves no trace"
        store.close()

    def test_a_run_that_was_not_begun_has_no_info(self, store: Store) -> None:
        with pytest.raises(StoreError):
            store.info()
        assert list(store.individuals()) == []
        store.close()

    def test_can_be_finished(self, store: Store, reopen: Callable[[], Store]) -> None:
        store.begin(INFO)
        store.add(INDIVIDUAL)
        store.finish(RESULT)
        store.close()
        again = reopen()
        assert list(again.individuals()) == [INDIVIDUAL]
        again.close()

    def test_says_whether_the_run_has_begun(self, store: Store, reopen: Callable[[], Store]) -> None:
        assert not store.begun
        store.begin(INFO)
        assert store.begun
        store.close()
        again = reopen()
        assert again.begun
        again.close()

    def test_asks_the_outside_once(self, store: Store, reopen: Callable[[], Store]) -> None:
        assert store.once("limit", int, lambda: (3, 4)) == (3, 4)
        assert store.once("limit", int, lambda: (5,)) == (3, 4)
        store.close()
        again = reopen()
        assert again.once("limit", int, lambda: (6,)) == (3, 4)
        again.close()

    def test_a_repeated_run_adds_only_what_is_new(self, store: Store, reopen: Callable[[], Store]) -> None:
        store.begin(INFO)
        store.add(INDIVIDUAL)
        store.note("select", "0 as the fastest")
        store.close()
        again = reopen()
        assert again.repeat() == (INDIVIDUAL,)
        again.begin(INFO)
        again.add(INDIVIDUAL)
        again.note("select", "0 as the fastest")
        later = replace(INDIVIDUAL, id=1)
        again.add(later)
        assert list(again.individuals()) == [INDIVIDUAL, later]
        assert again.individual(1) == later
        assert again.counts() == (2, 1)
        assert [outline.id for outline in again.outlines()] == [0, 1]
        again.close()

    def test_has_no_result_before_the_end(self, store: Store) -> None:
        store.begin(INFO)
        assert store.result() is None
        store.finish(RESULT)
        assert store.result() == RESULT
        store.close()
