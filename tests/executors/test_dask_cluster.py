"""A scheduler and workers that are started on their own, as for many machines."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import distributed
import pytest
from dask_processes import line_with, other_version, running, scheduler, worker
from odd_evaluators import SEEING

from cupilot.contracts import ExecutorOptions
from cupilot.errors import MachineError
from cupilot.executors import _dask_worker as worker_side
from cupilot.executors import dask
from cupilot.executors._cluster import ClusterExecutor
from cupilot.executors._offer import Offer
from cupilot.testing.executor import ECHO, TIMEOUT_S, Held, answer, scripted_request

SECRET = "sk-a-key-that-must-stay-here"


@contextmanager
def executor_of(address: str, folder: Path) -> Iterator[tuple[ClusterExecutor, SimpleQueue[str]]]:
    """A client of a scheduler, and the sentences that its user gets."""
    said: SimpleQueue[str] = SimpleQueue()
    executor = dask.open_executor(ExecutorOptions(slots=1, cache=folder, scheduler=address, notify=said.put))
    try:
        yield executor, said
    finally:
        executor.abandon()


def test_without_a_worker_a_run_waits_with_a_message_and_goes_on_when_one_joins(tmp_path: Path) -> None:
    with scheduler() as address, executor_of(address, tmp_path) as (executor, said):
        assert executor.slots == 0
        requests = [scripted_request(ECHO, text) for text in "abc"]
        futures = [executor.submit(request) for request in requests]
        assert said.get(timeout=TIMEOUT_S) == f"no virtual worker is connected to {address}; waiting"
        with worker(address, tmp_path):
            assert said.get(timeout=TIMEOUT_S) == f"a virtual worker is connected to {address}; continuing"
            assert [future.result(TIMEOUT_S) for future in futures] == [answer(request) for request in requests]
            assert executor.slots == 1
        assert said.empty(), "each is said once"


def test_without_a_worker_a_run_can_be_abandoned_at_once(tmp_path: Path) -> None:
    with scheduler() as address, executor_of(address, tmp_path) as (executor, _):
        future = executor.submit(scripted_request(ECHO))
        assert executor.abandon() is False
        assert future.cancelled()


def test_a_worker_that_leaves_in_the_middle_is_replaced_by_another(tmp_path: Path) -> None:
    held = Held(tmp_path, "held")
    with scheduler() as address, executor_of(address, tmp_path) as (executor, said):
        with worker(address, tmp_path) as leaving:
            line_with(leaving, "connected")
            future = executor.submit(held.request)
            first = held.wait_until_started()
        assert "no virtual worker" in said.get(timeout=TIMEOUT_S)
        with worker(address, tmp_path):
            assert held.wait_until_started() != first
            held.release()
            assert future.result(TIMEOUT_S) == answer(held.request)


@pytest.mark.slow
def test_a_scheduler_that_is_started_again_is_joined_again_by_all(tmp_path: Path) -> None:
    held, stack = Held(tmp_path, "held"), ExitStack()
    with stack, ExitStack() as later:
        address = stack.enter_context(scheduler())
        joined = later.enter_context(worker(address, tmp_path))
        assert line_with(joined, "connected") == f"connected to {address}: 1 virtual slot"
        executor, said = later.enter_context(executor_of(address, tmp_path))
        future = executor.submit(held.request)
        held.wait_until_started()
        stack.close()
        assert "no virtual worker" in said.get(timeout=TIMEOUT_S)
        assert line_with(joined, "does not answer") == f"the scheduler {address} does not answer; waiting"
        later.enter_context(scheduler(port=int(address.rpartition(":")[2])))
        held.wait_until_started()
        held.release()
        assert future.result(TIMEOUT_S) == answer(held.request)
        assert "continuing" in said.get(timeout=TIMEOUT_S)


def test_a_scheduler_that_is_not_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "CONNECT_S", 0.5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(MachineError, match=f"^the scheduler {address} does not answer"):
            dask.open_executor(ExecutorOptions(slots=1, cache=tmp_path, scheduler=address))


# --- who is let in ---------------------------------------------------------------------------------


def test_a_worker_of_another_version_than_the_others_is_refused(tmp_path: Path) -> None:
    other = other_version(tmp_path / "other", "nvidia-cuda-nvcc", "99.1")
    with scheduler() as address, worker(address, tmp_path) as first:
        line_with(first, "connected")
        with worker(address, tmp_path, environment=other) as second:
            sentence = line_with(second, "error")
            assert f"the cluster at {address} refuses this worker: it has nvidia-cuda-nvcc 99.1 instead of" in sentence
            assert second.wait(TIMEOUT_S) == 1


def test_a_worker_of_another_version_than_the_client_is_sent_away_and_gets_no_work(tmp_path: Path) -> None:
    other = other_version(tmp_path / "other", "cupilot", "99.1")
    with scheduler() as address, executor_of(address, tmp_path) as (executor, said):
        future = executor.submit(scripted_request(ECHO))
        said.get(timeout=TIMEOUT_S)
        with worker(address, tmp_path, environment=other) as strange:
            sentence = said.get(timeout=TIMEOUT_S)
            assert sentence.endswith("was refused: it has cupilot 99.1 instead of 0.1.0")
            assert "it has cupilot 99.1 instead of 0.1.0" in line_with(strange, "error")
            assert strange.wait(TIMEOUT_S) == 1
        assert not future.done()
        with worker(address, tmp_path):
            assert future.result(TIMEOUT_S) == answer(scripted_request(ECHO))


def test_a_client_of_another_version_than_all_workers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scheduler() as address, worker(address, tmp_path) as joined:
        line_with(joined, "connected")
        monkeypatch.setattr(dask, "versions", lambda: {"cupilot": "99.1"})
        with pytest.raises(MachineError, match=r"cannot be used here: they have cupilot 0\.1\.0 instead"):
            dask.open_executor(ExecutorOptions(slots=1, cache=tmp_path, scheduler=address))


def test_a_plain_dask_worker_gets_no_work(tmp_path: Path) -> None:
    plain = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-dashboard", "--nthreads", "1"]
    plain += ["--local-directory", str(tmp_path), "--resources", "virtual=1"]
    with scheduler() as address, running([*plain, address]) as process:
        line_with(process, "Registered to")
        with executor_of(address, tmp_path) as (executor, said):
            future = executor.submit(scripted_request(ECHO))
            assert "no virtual worker" in said.get(timeout=TIMEOUT_S)
            with worker(address, tmp_path):
                assert future.result(TIMEOUT_S) == answer(scripted_request(ECHO))


# --- what travels ----------------------------------------------------------------------------------


@contextmanager
def recorded(address: str) -> Iterator[tuple[str, bytearray]]:
    """Another address of a scheduler, and all bytes that clients send to it."""
    host, _, port = address.removeprefix("tcp://").partition(":")
    sent, sockets = bytearray(), []

    def carry(source: socket.socket, target: socket.socket, record: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if record:
                    sent.extend(data)
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                near, far = listener.accept()[0], socket.create_connection((host, int(port)))
                sockets.extend((near, far))
                for arguments in ((near, far, True), (far, near, False)):
                    threading.Thread(target=carry, args=arguments, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}", sent
        listener.shutdown(socket.SHUT_RDWR)
    for one in sockets:
        one.close()


def test_requests_travel_and_secrets_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("A_TOKEN", SECRET)
    request = scripted_request(ECHO, "a source that travels")
    with scheduler() as address, worker(address, tmp_path), recorded(address) as (recording, sent):
        with executor_of(recording, tmp_path) as (executor, _):
            assert executor.submit(request).result(TIMEOUT_S) == answer(request)
        assert b"a source that travels" in sent
        assert SECRET.encode() not in sent
        assert b"OPENAI_API_KEY" not in sent


def test_certificates_are_those_of_dasks_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = distributed.Security.temporary()
    files = {"ca": made.tls_ca_file, "cert": made.tls_client_cert, "key": made.tls_client_key}
    for name, text in files.items():
        (tmp_path / f"{name}.pem").write_text(text)
    ca, cert, key = (str(tmp_path / f"{name}.pem") for name in files)
    settings = {"ca-file": ca, "client.cert": cert, "client.key": key}
    variables = {"CA_FILE": ca, "WORKER__CERT": cert, "WORKER__KEY": key}
    environment = {f"DASK_DISTRIBUTED__COMM__TLS__{name}": value for name, value in variables.items()}
    options = ("--protocol", "tls", "--tls-ca-file", ca, "--tls-cert", cert, "--tls-key", key)
    with scheduler(*options) as address, worker(address, tmp_path, environment=environment):
        assert address.startswith("tls://")
        with pytest.raises(MachineError, match=f"^the scheduler {address} does not answer"):
            dask.open_executor(ExecutorOptions(slots=1, cache=tmp_path, scheduler=address))
        tls = dask.dask.config.set({f"distributed.comm.tls.{name}": value for name, value in settings.items()})
        with tls, executor_of(address, tmp_path) as (executor, _):
            assert executor.submit(scripted_request(ECHO)).result(TIMEOUT_S) == answer(scripted_request(ECHO))


# --- GPUs -----------------------------------------------------------------------------------------


def test_a_gpu_worker_sees_its_gpu_alone_and_the_result_names_the_device_that_was_asked_for(tmp_path: Path) -> None:
    offer = Offer(
        evaluator=SEEING, cache=tmp_path, sandbox="auto", device="cuda:1", gpu="toy", model="Toy", visible="GPU-7"
    )
    asked = replace(scripted_request(ECHO), device="cuda:3", gpu="toy")

    async def evaluate_there(address: str) -> str:
        async with worker_side.EvaluationNanny(address, offer, security=distributed.Security()):
            future = executor.submit(asked)
            evaluation = await asyncio.wait_for(asyncio.wrap_future(future), TIMEOUT_S)
            assert evaluation.device == "cuda:3"
            assert executor.slots == 1
            return evaluation.failure.message

    with scheduler() as address, executor_of(address, tmp_path) as (executor, said):
        virtual = executor.submit(scripted_request(ECHO))
        other = executor.submit(replace(asked, gpu="other"))
        assert asyncio.run(evaluate_there(address)) == "cuda:0 of GPU-7"
        assert not virtual.done()
        assert not other.done()
        assert "no virtual worker" in said.get(timeout=TIMEOUT_S)
        assert "no cuda other worker" in said.get(timeout=TIMEOUT_S)
