"""The contract of an executor.

Evaluations are scripted: a request's kernel says what its evaluation does.  They are held back by named pipes, so that
the same tests serve threads, processes and clusters on one machine without sleeping.
"""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from cupilot.contracts import Executor, ExecutorOptions
from cupilot.errors import UserError
from cupilot.records import Evaluation, EvaluationRequest, Failure, Kernel, TaskSource, to_plain
from cupilot.testing.samples import TASK

TIMEOUT_S = 30.0
SLOTS = 2
SCRIPTED = "cupilot.testing.executor:open_scripted_evaluator"
ECHO, HOLD, REFUSE = "echo", "hold", "refuse"


def open_scripted_evaluator(**options: Any) -> Callable[[EvaluationRequest], Evaluation]:
    """What `ExecutorOptions.evaluator` names in these tests."""
    return scripted


def scripted(request: EvaluationRequest) -> Evaluation:
    """Do what the kernel's entry says, then answer."""
    script, text = request.kernel.entry, request.kernel.source
    if script == REFUSE:
        raise UserError(text)
    if script == HOLD:
        started, gate = json.loads(text)
        Path(started).write_text(f"{os.getpid()}\n")
        with open(gate, "rb", buffering=0) as pipe:
            pipe.read(1)
    return answer(request)


def answer(request: EvaluationRequest) -> Evaluation:
    """The evaluation of a scripted request; it carries the whole request in its log."""
    told = Failure("run", "scripted", request.kernel.entry, json.dumps(to_plain(request)))
    return Evaluation(request.kernel.digest, request.task.name, request.device, told)


def scripted_request(
    script: str, text: str = "", device: str = "virtual:a100-80gb", gpu: str = ""
) -> EvaluationRequest:
    kernel = Kernel(text, entry=script)
    return EvaluationRequest(task=TaskSource.of(TASK), kernel=kernel, device=device, gpu=gpu, seed=7, timeout_s=30.0)


class Held:
    """A request that is held while it is evaluated; both pipes are open here, so that nobody waits for a reader."""

    def __init__(self, folder: Path, name: str) -> None:
        self._paths = [str(folder / f"{name}-{end}") for end in ("started", "gate")]
        for path in self._paths:
            os.mkfifo(path)
        self._started, self._gate = (os.open(path, os.O_RDWR) for path in self._paths)
        self.request = scripted_request(HOLD, json.dumps(self._paths))

    def wait_until_started(self) -> int:
        """The number of the process that evaluates it."""
        line = b""
        while not line.endswith(b"\n"):
            assert select.select([self._started], [], [], TIMEOUT_S)[0], "the evaluation has not started"
            line += os.read(self._started, 1)
        return int(line)

    def release(self) -> None:
        os.write(self._gate, b".")


class ExecutorContract:
    """Offer ``open_executor``, a static method from `ExecutorOptions` to an executor with so many slots."""

    open_executor: Callable[[ExecutorOptions], Executor]

    @pytest.fixture(scope="class")
    @classmethod
    def options(cls, tmp_path_factory: pytest.TempPathFactory) -> ExecutorOptions:
        return ExecutorOptions(slots=SLOTS, cache=tmp_path_factory.mktemp("cache"), evaluator=SCRIPTED)

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, options: ExecutorOptions) -> Iterator[Executor]:
        """One for all tests that leave it as it was."""
        executor = cls.open_executor(options)
        yield executor
        executor.close()

    @pytest.fixture
    def executor(self, options: ExecutorOptions) -> Executor:
        """One for a test that closes it."""
        return type(self).open_executor(options)

    def test_has_slots(self, shared: Executor) -> None:
        assert shared.slots == SLOTS

    def test_a_request_arrives_whole_and_so_does_its_evaluation(self, shared: Executor) -> None:
        request = scripted_request(ECHO, "µ \0 \n")
        assert shared.submit(request).result(TIMEOUT_S) == answer(request)

    def test_gives_each_result_to_its_own_future(self, shared: Executor) -> None:
        requests = [scripted_request(ECHO, str(number)) for number in range(20)]
        futures = [shared.submit(request) for request in requests]
        assert [future.result(TIMEOUT_S) for future in futures] == [answer(request) for request in requests]

    def test_any_thread_may_submit(self, shared: Executor) -> None:
        requests = [scripted_request(ECHO, str(number)) for number in range(20)]
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda request: shared.submit(request).result(TIMEOUT_S), requests))
        assert found == [answer(request) for request in requests]

    def test_the_same_request_twice_is_evaluated_twice(self, shared: Executor, tmp_path: Path) -> None:
        held = Held(tmp_path, "twice")
        futures = [shared.submit(held.request) for _ in range(SLOTS)]
        for _ in futures:
            held.wait_until_started()
        for _ in futures:
            held.release()
        assert len({future.result(TIMEOUT_S) for future in futures}) == 1

    def test_an_error_reaches_the_caller(self, shared: Executor) -> None:
        with pytest.raises(UserError, match="no such device"):
            shared.submit(scripted_request(REFUSE, "no such device")).result(TIMEOUT_S)
        request = scripted_request(ECHO)
        assert shared.submit(request).result(TIMEOUT_S) == answer(request), "an error does not harm the executor"

    def test_runs_as_many_as_it_has_slots_in_the_order_of_submission(self, shared: Executor, tmp_path: Path) -> None:
        held = [Held(tmp_path, str(number)) for number in range(2 * SLOTS)]
        futures = [shared.submit(one.request) for one in held]
        for one in held[:SLOTS]:
            one.wait_until_started()
        for number, later in enumerate(held[SLOTS:]):
            assert not any(future.running() for future in futures[SLOTS + number :])
            held[number].release()
            futures[number].result(TIMEOUT_S)
            later.wait_until_started()
        for one in held[SLOTS:]:
            one.release()
        assert not wait(futures, TIMEOUT_S).not_done

    def test_can_be_cancelled_until_it_starts(self, shared: Executor, tmp_path: Path) -> None:
        held = [Held(tmp_path, str(number)) for number in range(SLOTS)]
        running = [shared.submit(one.request) for one in held]
        for one in held:
            one.wait_until_started()
        late = [shared.submit(scripted_request(ECHO, text)) for text in "ab"]
        assert late[0].cancel()
        assert not running[0].cancel()
        for one in held:
            one.release()
        assert not wait(running, TIMEOUT_S).not_done
        assert late[1].result(TIMEOUT_S).correct is False
        with pytest.raises(CancelledError):
            late[0].result(TIMEOUT_S)

    def test_close_waits(self, executor: Executor) -> None:
        futures = [executor.submit(scripted_request(ECHO, str(number))) for number in range(10)]
        executor.close()
        assert all(future.done() and not future.cancelled() for future in futures)

    def test_close_with_cancel_drops_what_has_not_started(self, executor: Executor, tmp_path: Path) -> None:
        held, running, late = self._fill(executor, tmp_path)
        dropped = Event()
        late.add_done_callback(lambda future: dropped.set())
        closing = Thread(target=lambda: executor.close(cancel=True))
        closing.start()
        assert dropped.wait(TIMEOUT_S)
        for one in held:
            one.release()
        closing.join(TIMEOUT_S)
        assert not closing.is_alive()
        assert late.cancelled()
        assert all(future.done() and future.exception() is None for future in running), "what was running has ended"

    def test_abandon_waits_for_nothing(self, executor: Executor, tmp_path: Path) -> None:
        held, running, late = self._fill(executor, tmp_path)
        assert executor.abandon() == executor.busy
        assert late.cancelled()
        with pytest.raises(RuntimeError, match="closed"):
            executor.submit(scripted_request(ECHO))
        for one in held:
            one.release()
        assert not wait(running, TIMEOUT_S).not_done, "nobody who waits for an abandoned evaluation waits forever"

    @staticmethod
    def _fill(executor: Executor, folder: Path) -> tuple[list[Held], list[Future[Evaluation]], Future[Evaluation]]:
        """All slots, and one request more."""
        held = [Held(folder, str(number)) for number in range(SLOTS)]
        running = [executor.submit(one.request) for one in held]
        for one in held:
            one.wait_until_started()
        return held, running, executor.submit(scripted_request(ECHO))
