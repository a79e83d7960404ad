"""The contract of an executor.

Work is held back by named pipes, so that the same tests serve threads, processes and clusters on
one machine without sleeping.
"""

from __future__ import annotations

import os
from concurrent.futures import wait
from pathlib import Path
from threading import Event, Thread

import pytest

from cupilot.contracts import Executor

TIMEOUT_S = 30.0


def square(number: int) -> int:
    return number * number


def fail(text: str) -> None:
    raise LookupError(text)


def hold(started: str, gate: str) -> str:
    """Say that it runs, then block until somebody opens the gate."""
    Path(started).write_text("started")
    return Path(gate).read_text()


class ExecutorContract:
    """Offer a fixture ``executor``: a new one, with two slots or more."""

    def test_has_slots(self, executor: Executor) -> None:
        assert executor.slots >= 2
        executor.close()

    def test_gives_each_result_to_its_own_future(self, executor: Executor) -> None:
        futures = [executor.submit(square, number) for number in range(20)]
        assert [future.result(TIMEOUT_S) for future in futures] == [number * number for number in range(20)]
        executor.close()

    def test_an_exception_reaches_the_caller(self, executor: Executor) -> None:
        future = executor.submit(fail, "nothing here")
        with pytest.raises(LookupError, match="nothing here"):
            future.result(TIMEOUT_S)
        assert executor.submit(square, 3).result(TIMEOUT_S) == 9, "a failure does not harm the executor"
        executor.close()

    def test_runs_as_many_as_it_has_slots_and_no_more(self, executor: Executor, tmp_path: Path) -> None:
        held = [self._hold(executor, tmp_path, str(slot)) for slot in range(executor.slots)]
        late = executor.submit(square, 5)
        for started, _, _ in held:
            started.read_text()  # blocks until that one runs: all of them do, at the same time
        assert not late.done()
        for _, gate, _ in held:
            gate.write_text("open")
        assert [future.result(TIMEOUT_S) for _, _, future in held] == ["open"] * executor.slots
        assert late.result(TIMEOUT_S) == 25
        executor.close()

    def test_close_waits(self, executor: Executor) -> None:
        futures = [executor.submit(square, number) for number in range(10)]
        executor.close()
        assert all(future.done() and not future.cancelled() for future in futures)

    def test_close_with_cancel_drops_what_has_not_started(self, executor: Executor, tmp_path: Path) -> None:
        held = [self._hold(executor, tmp_path, str(slot)) for slot in range(executor.slots)]
        late = executor.submit(square, 5)
        dropped = Event()
        late.add_done_callback(lambda future: dropped.set())
        for started, _, _ in held:
            started.read_text()
        closing = Thread(target=lambda: executor.close(cancel=True))
        closing.start()
        assert dropped.wait(TIMEOUT_S)
        for _, gate, _ in held:
            gate.write_text("open")
        closing.join(TIMEOUT_S)
        assert not closing.is_alive()
        assert late.cancelled()
        assert not wait([future for _, _, future in held], TIMEOUT_S).not_done, "what was running has ended"

    @staticmethod
    def _hold(executor: Executor, folder: Path, name: str):  # type: ignore[no-untyped-def]
        started, gate = folder / f"started-{name}", folder / f"gate-{name}"
        os.mkfifo(started)
        os.mkfifo(gate)
        return started, gate, executor.submit(hold, str(started), str(gate))
