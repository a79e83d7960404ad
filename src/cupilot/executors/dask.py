"""Evaluations on the workers of a Dask cluster: that of ``--scheduler ADDRESS``, or processes of this machine.

Requests and evaluations travel as JSON.  Workers open devices and caches of their own and confine candidates by their
own settings.  When a worker dies or hangs, Dask sends its request to another one; after as many workers as
``distributed.scheduler.allowed-failures`` says it gives up, and the request fails with a `MachineError`.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any, TypeVar
from uuid import uuid4

from cupilot.contracts import ExecutorOptions
from cupilot.errors import MachineError, MissingExtra
from cupilot.executors import _cluster
from cupilot.executors._cluster import ClusterExecutor
from cupilot.executors._offer import Offer, difference, resource_of, stamp, versions
from cupilot.records import Evaluation, EvaluationRequest, from_plain, to_plain
from cupilot.threads import wait_for

try:
    import cryptography  # noqa: F401  (certificates of a cluster on this machine)
    import dask
    import distributed
    from distributed.client import FutureCancelledError
    from distributed.utils import silence_logging_cmgr

    from cupilot.executors import _dask_worker as worker_side
except ModuleNotFoundError as missing:
    raise MissingExtra(
        f"--executor dask needs the package {missing.name}: pip install 'cupilot[distributed]'"
    ) from missing

T = TypeVar("T")
CONNECT_S, LOOK_S, RETRY_S, CLOSE_S = 10.0, 5.0, 1.0, 1.0
SERVING = ("init", "running")
LOST = (OSError, TimeoutError, FutureCancelledError)


def open_executor(
    options: ExecutorOptions, limit_s: Callable[[EvaluationRequest], float] = _cluster.limit_s
) -> ClusterExecutor:
    """``limit_s`` says how long a worker may take for a request before it counts as hung."""
    return ClusterExecutor(DaskCluster(options, limit_s), options)


def serve_workers(scheduler: str, offers: Sequence[Offer], *, name: str, tell: Callable[[str], None]) -> None:
    """Offer workers to a cluster until SIGINT or SIGTERM; see `_dask_worker.serve`."""

    async def serve() -> None:
        serving = asyncio.ensure_future(worker_side.serve(scheduler, offers, name=name, tell=tell))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
        with suppress(asyncio.CancelledError):
            await serving

    with silence_logging_cmgr(worker_side.SILENT):
        asyncio.run(serve())


class DaskCluster:
    """A client of a scheduler; without an address, also the scheduler and its workers.

    All of it lives in the event loop of one thread.
    """

    def __init__(self, options: ExecutorOptions, limit_s: Callable[[EvaluationRequest], float]) -> None:
        self._options, self._limit_s = options, limit_s
        self._announcement: dict[str, Any] = {"versions": versions(), "resource": "", "model": ""}
        self._stamp = stamp(self._announcement["versions"])
        self._changed: Callable[[], None] = lambda: None
        self._slots: Counter[str] = Counter()
        self._address, self._security = options.scheduler, distributed.Security()
        self._scheduler: distributed.Scheduler | None = None
        self._nannies: list[worker_side.EvaluationNanny] = []
        self._client: Any = None
        self._looking: asyncio.Future[None] | None = None
        self._exit = ExitStack()
        self._exit.enter_context(silence_logging_cmgr(worker_side.SILENT))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cupilot-dask", daemon=True)
        self._thread.start()
        try:
            self._wait(self._open())
        except BaseException:
            self.kill()
            raise

    @property
    def address(self) -> str:
        return self._address

    def slots(self, resource: str = "") -> int:
        return self._slots[resource]

    def observe(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def start(self, request: EvaluationRequest) -> Future[Evaluation]:
        return self._call(self._evaluate(request))

    def close(self) -> None:
        if self._thread.is_alive():
            self._wait(self._leave())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._exit.close()

    def kill(self) -> None:
        for nanny in self._nannies:
            nanny.close_gracefully()
        self.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = self._call(work)
        wait_for(future)
        return future.result()

    # --- from here on in the event loop ------------------------------------------------------

    async def _open(self) -> None:
        self._online, self._look_now = asyncio.Event(), asyncio.Event()
        if not self._address:
            await self._open_here()
        try:
            self._client = await self._connect()
            found = await self._look()
        except (*LOST, TypeError, ValueError) as error:
            raise MachineError(f"the scheduler {self._address} does not answer: {error}") from error
        problems = {difference(theirs, self._announcement) for theirs in found.values()}
        if problems and "" not in problems:
            raise MachineError(f"the workers of {self._address} cannot be used here: they have {min(problems)}")
        self._online.set()
        self._look_now.set()
        self._looking = asyncio.ensure_future(self._keep_looking())

    async def _open_here(self) -> None:
        """A scheduler and workers; only those who have their certificate, which is in memory, can talk to them."""
        options, self._security = self._options, distributed.Security.temporary()
        with dask.config.set({"distributed.scheduler.http.routes": []}):
            self._scheduler = await distributed.Scheduler(
                host="127.0.0.1", port=0, protocol="tls", dashboard_address="127.0.0.1:0", security=self._security
            )
        self._address = self._scheduler.address
        offer = Offer(evaluator=options.evaluator, cache=options.cache, sandbox=options.sandbox)
        self._nannies = [
            worker_side.EvaluationNanny(self._address, offer, security=self._security) for _ in range(options.slots)
        ]
        try:
            await asyncio.gather(*self._nannies)
        except Exception as error:
            raise MachineError(f"a worker process did not start: {error}") from error

    async def _connect(self) -> Any:
        client = distributed.Client(
            self._address, asynchronous=True, set_as_default=False, security=self._security, timeout=CONNECT_S
        )
        try:
            await client
        except BaseException:
            await _close_client(client)
            raise
        # told of everything that concerns the whole cluster
        client.subscribe_topic("all", self._take_event)
        return client

    def _take_event(self, event: tuple[float, Mapping[str, Any]]) -> None:
        if event[1].get("action") in ("add-worker", "remove-worker"):
            self._look_now.set()

    async def _evaluate(self, request: EvaluationRequest) -> Evaluation:
        text = json.dumps(to_plain(request))
        resources = {resource_of(request.device, request.gpu): 1, self._stamp: 1}
        while True:
            await self._online.wait()
            task = self._client.submit(
                worker_side.evaluate, text, self._limit_s(request), key=f"evaluate-{uuid4().hex}", pure=False,
                resources=resources, fifo_timeout=0,
            )  # fmt: skip
            try:
                return from_plain(Evaluation, json.loads(await task))
            except distributed.KilledWorker as error:
                tried = f"evaluating kernel {request.kernel.digest} was tried {error.allowed_failures + 1} times"
                raise MachineError(f"{tried}, and each time the worker died or hung") from error
            except LOST:
                if task.status == "error":
                    raise
                # the scheduler knows of the request no more: it is sent again when there is a connection
                self._online.clear()
                self._look_now.set()

    async def _keep_looking(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._look_now.wait(), LOOK_S)
            self._look_now.clear()
            try:
                found = await asyncio.wait_for(self._look(), CONNECT_S)
                await asyncio.wait_for(self._refuse_others(found), CONNECT_S)
            except LOST:
                self._online.clear()
                self._slots = Counter()
                self._changed()
                await self._reconnect()
            self._online.set()

    async def _look(self) -> dict[str, Mapping[str, Any]]:
        """Count the slots; returns what our workers announce."""
        if self._client.status != "running":
            raise OSError("the connection is lost")
        identity = await self._client.scheduler.identity()
        found, slots = worker_side.announcements(identity), Counter[str]()
        for address in found:
            worker = identity["workers"][address]
            if worker["status"] in SERVING and self._stamp in worker["resources"]:
                slots.update(("", *worker["resources"]))
        self._slots = slots
        self._changed()
        return found

    async def _refuse_others(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Send away those of another version that joined meanwhile, and leave word why."""
        for address, theirs in found.items():
            if problem := difference(theirs, self._announcement):
                self._options.notify(f"the worker {address} was refused: it has {problem}")
                await self._client.set_metadata(worker_side.refusal_keys(address), problem)
                await self._client.retire_workers([address], close_workers=True)

    async def _reconnect(self) -> None:
        while True:
            await _close_client(self._client)
            try:
                self._client = await self._connect()
                self._look_now.set()
                return
            except (*LOST, ValueError):
                await asyncio.sleep(RETRY_S)

    async def _leave(self) -> None:
        """Close whatever is open; what was sent is forgotten."""
        if self._looking is not None:
            self._looking.cancel()
        if self._client is not None:
            await _close_client(self._client)
        await asyncio.gather(*(nanny.close(timeout=CLOSE_S) for nanny in self._nannies), return_exceptions=True)
        if self._scheduler is not None:
            await self._scheduler.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


async def _close_client(client: Any) -> None:
    with suppress(*LOST):
        if client.status == "running":
            client.unsubscribe_topic("all")
        await client.close(timeout=CLOSE_S)
    client.status = "closed"  # otherwise it tries again when it is collected
