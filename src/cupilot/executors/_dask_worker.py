"""The worker's side of Dask: processes that evaluate requests.

Each process takes one evaluation at a time and is watched by a nanny, which starts it again when it dies.  Whatever it
starts or writes belongs to its folder: both are cleared away with it, also after kill -9.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dask
from distributed import Nanny, Security, Worker, WorkerPlugin, get_worker
from distributed.core import rpc

from cupilot.errors import MachineError
from cupilot.executors._offer import Offer, difference, summary
from cupilot.executors._worker import WorkerEvaluator
from cupilot.sandbox.process import kill_marked

PLUGIN = "cupilot"
FOLDER, SETTLED_S = "cupilot-dask-", 60.0
SILENT = logging.CRITICAL + 1
# without the profiler, which looks at the evaluation a hundred times per second, and the pages about the worker
LEAN = {"distributed.worker.profile.enabled": False, "distributed.worker.http.routes": []}
RETRY_S, ANSWER_S, START_S, CLOSE_S = 2.0, 5.0, 10.0, 1.0


def announcements(identity: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """What our workers announce, by address, from the scheduler's description of the cluster."""
    return {address: worker[PLUGIN] for address, worker in identity["workers"].items() if PLUGIN in worker}


def refusal_keys(address: str) -> list[str]:
    """Where a client leaves word on the scheduler why it has sent a worker away."""
    return [PLUGIN, "refused", address]


class Evaluating(WorkerPlugin):  # type: ignore[misc]
    """Holds the evaluator of a worker."""

    name = PLUGIN

    def __init__(self, offer: Offer) -> None:
        self.evaluator = WorkerEvaluator(offer)


def evaluate(text: str, limit_s: float) -> str:
    """Evaluate a request on the worker that is asked; see `WorkerEvaluator`."""
    return str(get_worker().plugins[PLUGIN].evaluator(text, limit_s))


# --- processes ------------------------------------------------------------------------------------


class EvaluationNanny(Nanny):  # type: ignore[misc]
    """Starts a worker process, and clears away what the one before left: its processes and its files."""

    def __init__(self, scheduler: str, offer: Offer, *, name: str | None = None, security: Security) -> None:
        self._folder = WorkerFolder()
        self._starting: Any = None
        config = deepcopy(dask.config.config)
        dask.config.set(LEAN, config=config)
        super().__init__(
            scheduler,
            name=name,
            nthreads=1,
            memory_limit=0,  # references take gigabytes, as they do without Dask
            resources=offer.resources,
            local_directory=str(self._folder.path),
            security=security,
            silence_logs=SILENT,
            plugins=[Evaluating(offer)],
            startup_information={PLUGIN: _Announced(offer.announcement)},
            config=config,
        )
        # Dask's own settings would give PyTorch one thread
        self.pre_spawn_env: dict[str, str] = {}
        self.env = {"TMPDIR": str(self._folder.path)}
        if offer.visible:
            self.env["CUDA_VISIBLE_DEVICES"] = offer.visible

    async def start(self) -> EvaluationNanny:
        self._starting = asyncio.ensure_future(super().start())
        # nobody asks for the error when it is closed meanwhile
        self._starting.add_done_callback(lambda starting: starting.cancelled() or starting.exception())
        await asyncio.shield(self._starting)
        return self

    async def instantiate(self) -> Any:
        self._folder.clear()
        return await super().instantiate()

    async def close(self, *arguments: Any, **options: Any) -> Any:
        # Dask cannot close a nanny while it starts
        starting, end_s = self._starting, asyncio.get_running_loop().time() + START_S
        while starting not in (None, asyncio.current_task()) and not starting.done():
            self.close_gracefully()
            if asyncio.get_running_loop().time() > end_s:
                break
            await asyncio.wait([starting], timeout=0.1)
        try:
            return await super().close(*arguments, **options)
        finally:
            self._folder.remove()

    def close_gracefully(self, reason: str = "") -> None:
        """End the worker process at once, for good.

        A worker that leaves would wait for its evaluation, though nobody can take the result.
        """
        super().close_gracefully(reason)
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class WorkerFolder:
    """The temporary folder of a worker process; compilers and candidates have its name in their environment.

    It is locked while the nanny lives.  A new one removes those that nobody holds: a nanny was killed.
    """

    def __init__(self) -> None:
        for left in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
            with suppress(OSError), _locked(left):
                # one that was just made is about to be locked
                if time.time() - left.stat().st_mtime > SETTLED_S:
                    shutil.rmtree(left, ignore_errors=True)
        self.path = Path(tempfile.mkdtemp(prefix=FOLDER))
        self._lock = ExitStack()
        self._lock.enter_context(_locked(self.path))

    def clear(self) -> None:
        """End the processes and remove the files that a worker has left."""
        kill_marked(str(self.path), os.getpid())
        for entry in self.path.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)

    def remove(self) -> None:
        kill_marked(str(self.path), os.getpid())
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises `OSError` where another process holds the folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class _Announced:
    """Dask asks a function of the worker."""

    announcement: dict[str, Any]

    def __call__(self, worker: Worker) -> dict[str, Any]:
        return self.announcement


# --- joining a cluster ----------------------------------------------------------------------------


async def serve(scheduler: str, offers: Sequence[Offer], *, name: str = "", tell: Callable[[str], None]) -> None:
    """Offer workers to a cluster until cancelled; raises `MachineError` when the cluster refuses them.

    When the scheduler or the network is gone, they wait for it and join again.  ``tell`` gets a sentence about each.
    """
    security, last = Security(), ""

    def tell_once(sentence: str) -> None:
        nonlocal last
        if sentence != last:  # every worker says it
            last = sentence
            tell(sentence)

    joined: set[int] = set()

    def count(number: int, *, connected: bool) -> None:
        (joined.add if connected else joined.discard)(number)
        if len(joined) == len(offers):
            tell_once(f"connected to {scheduler}: {summary(offers)}")
        elif not connected:
            tell_once(f"the scheduler {scheduler} does not answer; waiting")

    serving = []
    for number, offer in enumerate(offers):
        label = f"{name}-{number}" if name else None
        work = _serve_one(scheduler, offer, label, security, partial(count, number))
        serving.append(asyncio.ensure_future(work))
    try:
        await asyncio.gather(*serving)
    finally:
        for one in serving:
            if not one.cancelling():  # a second time would interrupt its closing
                one.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _serve_one(
    scheduler: str, offer: Offer, name: str | None, security: Security, tell: Callable[..., None]
) -> None:
    address = ""
    while True:
        try:
            await _check_welcome(scheduler, offer, address, security)
            nanny = EvaluationNanny(scheduler, offer, name=name, security=security)
            try:
                await nanny
                address = nanny.worker_address or ""
                tell(connected=True)
                await nanny.finished()
            finally:
                await nanny.close(timeout=CLOSE_S)
        except (OSError, TimeoutError):
            tell(connected=False)
            await asyncio.sleep(RETRY_S)
        except (RuntimeError, TypeError, ValueError) as error:
            raise MachineError(f"the worker did not start: {error}") from error


async def _check_welcome(scheduler: str, offer: Offer, address: str, security: Security) -> None:
    """Raise `MachineError` where the cluster's workers differ, or where a client has refused this one before."""
    connection = security.get_connection_args("worker")
    async with rpc(scheduler, timeout=ANSWER_S, connection_args=connection) as remote:
        identity = await asyncio.wait_for(remote.identity(), ANSWER_S)
        problems = [await asyncio.wait_for(remote.get_metadata(keys=refusal_keys(address), default=""), ANSWER_S)]
    problems += [difference(offer.announcement, theirs) for theirs in announcements(identity).values()]
    if problem := next(filter(None, problems), ""):
        raise MachineError(f"the cluster at {scheduler} refuses this worker: it has {problem}")
