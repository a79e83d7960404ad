"""A real Dask cluster on this machine: two worker processes, some of which die."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from odd_evaluators import BRANCHING, DYING

from cupilot.contracts import ExecutorOptions
from cupilot.errors import MachineError, MissingExtra
from cupilot.executors import dask, open_executor
from cupilot.executors._dask_worker import FOLDER, WorkerFolder
from cupilot.records import TaskSource
from cupilot.testing import ExecutorContract
from cupilot.testing.executor import ECHO, SCRIPTED, TIMEOUT_S, Held, answer, scripted_request


class TestDaskExecutor(ExecutorContract):
    open_executor = staticmethod(dask.open_executor)


def options(folder: Path, slots: int = 2, evaluator: str = SCRIPTED) -> ExecutorOptions:
    return ExecutorOptions(slots=slots, cache=folder, evaluator=evaluator)


def test_what_a_killed_worker_was_evaluating_is_evaluated_again_and_told_once(tmp_path: Path) -> None:
    executor, told = dask.open_executor(options(tmp_path)), Counter[int]()
    held = [Held(tmp_path, str(number)) for number in range(2)]
    requests = [*(one.request for one in held), *(scripted_request(ECHO, str(number)) for number in range(8))]
    futures = [executor.submit(request) for request in requests]
    for number, future in enumerate(futures):
        future.add_done_callback(lambda _, number=number: told.update([number]))
    first, _ = (one.wait_until_started() for one in held)
    os.kill(first, signal.SIGKILL)
    held[1].release()
    assert held[0].wait_until_started() != first
    held[0].release()
    assert [future.result(TIMEOUT_S) for future in futures] == [answer(request) for request in requests]
    executor.close()
    assert told == Counter(range(10))


def test_a_worker_that_hangs_is_ended_and_another_takes_over(tmp_path: Path) -> None:
    executor, held = dask.open_executor(options(tmp_path, slots=1), limit_s=lambda request: 2.0), Held(tmp_path, "held")
    future = executor.submit(held.request)
    first = held.wait_until_started()
    assert held.wait_until_started() != first
    held.release()
    assert future.result(TIMEOUT_S) == answer(held.request)
    executor.close()


def test_an_evaluation_that_no_worker_survives_is_given_up_with_a_sentence(tmp_path: Path) -> None:
    with dask.dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        executor = dask.open_executor(options(tmp_path, slots=1, evaluator=DYING))
    request = scripted_request(ECHO)
    with pytest.raises(
        MachineError, match=f"^evaluating kernel {request.kernel.digest} was tried 1 times, and each time"
    ):
        executor.submit(request).result(TIMEOUT_S)
    executor.close()


def test_what_a_killed_worker_started_dies_with_it(tmp_path: Path) -> None:
    executor, held = dask.open_executor(options(tmp_path, slots=1, evaluator=BRANCHING)), Held(tmp_path, "held")
    os.mkfifo(tmp_path / "children")
    request = replace(held.request, task=TaskSource(name=str(tmp_path / "children"), source=""))
    future = executor.submit(request)
    child = int((tmp_path / "children").read_text())
    ending = os.pidfd_open(child)
    os.kill(held.wait_until_started(), signal.SIGKILL)
    assert select.select([ending], [], [], TIMEOUT_S)[0], "the child is still there"
    os.close(ending)
    again = os.pidfd_open(int((tmp_path / "children").read_text()))
    held.wait_until_started()
    assert executor.abandon() is False
    assert select.select([again], [], [], TIMEOUT_S)[0], "the child is still there"
    os.close(again)
    assert future.done()


def test_closing_leaves_no_files_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    executor = dask.open_executor(options(tmp_path, slots=1))
    assert len(list((tmp_path / "scratch").glob(f"{FOLDER}*"))) == 1
    executor.submit(scripted_request(ECHO)).result(TIMEOUT_S)
    executor.close()
    assert list((tmp_path / "scratch").glob(f"{FOLDER}*")) == []


def test_folders_of_killed_programs_are_removed_and_those_in_use_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"{FOLDER}left" / "array0").mkdir(parents=True)
    os.utime(tmp_path / f"{FOLDER}left", (0, 0))
    used = WorkerFolder()
    assert list(tmp_path.iterdir()) == [used.path]
    os.utime(used.path, (0, 0))
    other = WorkerFolder()
    assert set(tmp_path.iterdir()) == {used.path, other.path}
    used.remove()
    assert list(tmp_path.iterdir()) == [other.path]
    other.remove()


@pytest.mark.parametrize("package", ["distributed", "cryptography"])
def test_a_missing_package_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "cupilot.executors.dask")
    with pytest.raises(MissingExtra, match=rf"^--executor dask needs the package {package}: pip install 'cupilot\[dis"):
        open_executor("dask", options(tmp_path))
