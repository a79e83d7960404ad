"""Runs that are killed at any moment go on to the same end."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from toy import TOY_INFO, TOY_TASK, InlineExecutor, ToyAgents, evaluate_toy

from cupilot.errors import StoreError
from cupilot.evolution import ledger, loop
from cupilot.evolution.loop import Evolution
from cupilot.evolution.progress import Progress
from cupilot.evolution.store import SqliteStore, create_store, open_store
from cupilot.records import Evaluation, Individual, Kernel, RunResult, Task
from cupilot.testing.samples import SPEC
from cupilot.threads import DaemonThreads

INFO = replace(TOY_INFO, generations=3, epochs=2)
KILLS = 30


def search(
    store: SqliteStore,
    folder: Path | None,
    known: tuple[Individual, ...] = (),
    evaluator: Any = evaluate_toy,
    agents: Any = None,
    **options: Any,
) -> RunResult:
    threads = DaemonThreads(3)
    try:
        return Evolution(
            task=TOY_TASK, info=INFO, agents=agents or ToyAgents(repairs=True), executor=InlineExecutor(evaluator),
            threads=threads, store=store, spec=SPEC, folder=folder, known=known, **options,
        ).run()  # fmt: skip
    finally:
        threads.close(cancel=True)


def resume(folder: Path, evaluator: Any = evaluate_toy) -> RunResult:
    with closing(open_store(folder)) as store:
        return search(store, folder, store.repeat(), evaluator)


def history(folder: Path) -> tuple[list[Individual], list[tuple[str, str]], str]:
    with closing(open_store(folder)) as store:
        return list(store.individuals()), list(store.notes()), (folder / "best.cu").read_text()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    folder: Path = tmp_path_factory.mktemp("whole") / "run"
    with closing(create_store(folder)) as store:
        search(store, folder)
    return folder


def killed_run(folder: Path, moment: int) -> None:
    """In a child process: run, and kill itself at the given moment (before or after something durable).

    A run that outlives the moment leaves the number of its moments in a file.
    """
    seen = 0

    def may_die() -> None:
        nonlocal seen
        seen += 1
        if seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **more: Any) -> Any:
            may_die()
            result = function(*arguments, **more)
            may_die()
            return result

        return wrapped

    for name in ("add", "note", "begin", "finish"):
        setattr(SqliteStore, name, around(getattr(SqliteStore, name)))
    ledger.write_best = around(ledger.write_best)
    loop.develop = around(loop.develop)
    with closing(create_store(folder)) as store:
        search(store, folder)
    (folder / "moments").write_text(str(seen))


def in_child(folder: Path, moment: int) -> int | None:
    child = multiprocessing.get_context("fork").Process(target=killed_run, args=(folder, moment))
    child.start()
    child.join()
    return child.exitcode


def test_a_run_killed_at_any_of_many_moments_ends_as_if_it_had_not_been(tmp_path: Path, whole: Path) -> None:
    in_child(tmp_path / "never", 10**9)
    # threads make the order of moments vary a little, so the last few are left out
    total = int((tmp_path / "never" / "moments").read_text()) - 8
    for moment in sorted(Random(11).sample(range(3, total), KILLS)):
        folder = tmp_path / str(moment)
        assert in_child(folder, moment) == -signal.SIGKILL
        resume(folder)
        assert history(folder) == history(whole), f"killed at moment {moment}"


@pytest.mark.parametrize("moment", range(1, 25, 3))
def test_a_run_ended_by_ctrl_c_goes_on_as_if_it_had_not_been(tmp_path: Path, whole: Path, moment: int) -> None:
    folder = tmp_path / "run"
    events = iter(range(moment))

    def interrupt(progress: Progress) -> None:
        if progress.kind != "stopping" and next(events, None) is None:
            raise KeyboardInterrupt

    with closing(create_store(folder)) as store:
        stopped = search(store, folder, observer=interrupt).stopped
    assert stopped == "interrupted"
    resume(folder)
    assert history(folder)[0] == history(whole)[0]
    assert history(folder)[2] == history(whole)[2]


def test_two_processes_do_not_go_on_with_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with closing(create_store(folder)) as store:
        store.begin(INFO)
        with closing(open_store(folder)) as reader:
            assert reader.info() == INFO, "anybody may look"
            with pytest.raises(StoreError, match="another process is at work on the run in"):
                reader.repeat()
    with closing(open_store(folder)) as later:
        assert later.repeat() == ()


def test_what_was_evaluated_is_not_evaluated_again(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "run"
    in_child(folder, 80)
    known = {one.kernel.digest for one in history(folder)[0]}
    assert len(known) > 5
    again: list[str] = []

    def watching(task: Task, kernel: Kernel) -> Evaluation:
        again.append(kernel.digest)
        return evaluate_toy(task, kernel)

    resume(folder, watching)
    assert not known & set(again)
    assert history(folder) == history(whole)


def test_a_finished_run_can_be_repeated_for_nothing(whole: Path) -> None:
    before = history(whole)

    def never(task: Task, kernel: Kernel) -> Evaluation:
        raise AssertionError("everything is known")

    resume(whole, never)
    assert history(whole) == before


def test_a_run_that_comes_out_differently_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with closing(create_store(folder)) as store:
        search(store, folder)

    class Other(ToyAgents):
        def translate(self, brief: Any, strategy: Any) -> Kernel:
            kernel = super().translate(brief, strategy)
            assert isinstance(kernel, Kernel)
            return Kernel(kernel.source + " ")

    with closing(open_store(folder)) as store, pytest.raises(StoreError, match="came out differently"):
        search(store, None, store.repeat(), agents=Other())
    with closing(open_store(folder)) as store:
        store.repeat()
        with pytest.raises(StoreError, match="asked for something else"):
            store.begin(replace(INFO, seed=99))


def test_what_the_pool_answered_is_kept(tmp_path: Path) -> None:
    with closing(create_store(tmp_path / "run")) as store:
        assert store.once("recalled 1", str, lambda: ("a", "b")) == ("a", "b")
        assert store.once("recalled 1", str, lambda: pytest.fail("asked twice")) == ("a", "b")
        with closing(create_store(tmp_path / "other")) as other:
            other.once("recalled 1", str, lambda: ("of its own",))
            other.inherit(store)
            assert other.once("recalled 1", str, lambda: ()) == ("of its own",), "what is known stays"
        with closing(create_store(tmp_path / "third")) as third:
            third.inherit(store)
            assert third.once("recalled 1", str, lambda: ()) == ("a", "b")
            assert not third.begun
