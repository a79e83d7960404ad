"""What a Dask cluster costs, and how well it keeps its workers busy.

``evaluations``: recorded kernels of level 1, each a little different so that it is compiled anew, in threads with two
slots and on two Dask workers with one slot each.  They take turns, so that other work on the machine slows both.
``overhead``: evaluations that take no time, for what Dask itself costs.
``simulated``: 64 workers whose evaluations are waits, as long as the recorded evaluations took.

    python benchmarks/distributed.py evaluations --record
    python benchmarks/distributed.py overhead
    python benchmarks/distributed.py simulated
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cupilot.cli.environment import cache_folder
from cupilot.contracts import DONE, Executor, ExecutorOptions, Step
from cupilot.executors import open_executor
from cupilot.records import Evaluation, EvaluationRequest, Kernel, TaskSource, from_plain
from cupilot.testing.executor import ECHO, SCRIPTED, scripted_request

# this file has the name of Dask's package
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

ROOT = Path(__file__).parents[1]
RECORDED = Path(__file__).with_suffix(".json")
TASKS = ("21_Sigmoid", "26_GELU_", "44_Average_Pooling_1D", "88_MinGPTNewGelu", "89_cumsum")
EVALUATIONS, SLOTS = 200, 2
WORKERS, ROUNDS, PROCESSES = 64, 25, 2
MOST_SLOWER, LEAST_BUSY = 1.10, 0.90


def request_of(task: str, variant: str) -> EvaluationRequest:
    """The recorded kernel of a task, as nobody has compiled it before."""
    claim = json.loads((ROOT / "kernels" / "level1" / "kernels" / f"{task}.json").read_text())
    source, kernel = claim["repeat"]["task"], from_plain(Kernel, claim["repeat"]["kernel"])
    return EvaluationRequest(
        task=TaskSource(name=source["name"], source=source["source"], precision=source["precision"]),
        kernel=replace(kernel, source=f"{kernel.source}\n// {variant}\n"),
        device=claim["device"],
        seed=claim["proof"]["seed"],
        timeout_s=claim["repeat"]["timeout_s"],
    )


def run_all(executor: Executor, requests: Sequence[EvaluationRequest]) -> tuple[float, list[Evaluation]]:
    """Seconds until all are evaluated, and what came out."""
    start_s = time.perf_counter()
    found = [future.result() for future in [executor.submit(request) for request in requests]]
    return time.perf_counter() - start_s, found


def evaluations(count: int) -> dict[str, Any]:
    seconds, clocks = {"local": 0.0, "dask": 0.0}, {"local": Clock(), "dask": Clock()}
    times: dict[str, list[float | None]] = {"local": [], "dask": []}
    with tempfile.TemporaryDirectory(prefix="cupilot-") as name:
        executors, opening = {}, {}
        for kind in seconds:
            # builds of one are not there for the other; the virtual GPU's runtime is
            cache = Path(name) / kind
            cache.mkdir()
            (cache / "runtime").symlink_to(cache_folder() / "runtime")
            start_s = time.perf_counter()
            executors[kind] = open_executor(kind, ExecutorOptions(slots=SLOTS, cache=cache, watch=clocks[kind]))
            run_all(executors[kind], [request_of(TASKS[0], f"first {slot}") for slot in range(SLOTS)])
            opening[kind] = time.perf_counter() - start_s
        each = count // len(TASKS)
        for number, task in enumerate(TASKS):
            requests = [request_of(task, f"{variant}") for variant in range(each)]
            for kind in sorted(seconds, reverse=bool(number % 2)):
                taken_s, found = run_all(executors[kind], requests)
                seconds[kind] += taken_s
                times[kind] += [one.timing and one.timing.time_s for one in found]
                print(f"{task:12} {kind:6} {taken_s / each:.3f} s per evaluation", flush=True)
        for executor in executors.values():
            executor.close()
    assert times["local"] == times["dask"], "the two do not agree"
    return {
        "evaluations": each * len(TASKS),
        "slots": SLOTS,
        "opening_s": opening,
        "seconds": seconds,
        "dask_over_local": seconds["dask"] / seconds["local"],
        "overhead_ms": 1e3 * SLOTS * (seconds["dask"] - seconds["local"]) / (each * len(TASKS)),
        "waits_s": [round(wait_s, 3) for wait_s in clocks["local"].waits_s],
    }


class Clock:
    """Watches evaluations and notes how long each took."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []
        self._begun: dict[str, float] = {}

    def __call__(self, step: Step) -> None:
        now_s = time.perf_counter()
        if step.stage == DONE:
            self.waits_s.append(now_s - self._begun.pop(step.who))
        elif step.who:
            self._begun.setdefault(step.who, now_s)


def overhead(count: int) -> dict[str, Any]:
    """Milliseconds of a slot per evaluation that takes no time."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="cupilot-") as name:
        for kind in ("local", "dask"):
            executor = open_executor(kind, ExecutorOptions(slots=SLOTS, cache=Path(name), evaluator=SCRIPTED))
            request = replace(request_of(TASKS[0], ""), kernel=replace(request_of(TASKS[0], "").kernel, entry=ECHO))
            run_all(executor, [request] * SLOTS)
            found[kind] = 1e3 * SLOTS * run_all(executor, [request] * count)[0] / count
            executor.close()
    return {"evaluations": count, "slots": SLOTS, "overhead_ms": found}


# --- many workers --------------------------------------------------------------------------------


def open_waiting(**options: Any) -> Callable[[EvaluationRequest], Evaluation]:
    """An evaluator that waits as many seconds as the kernel's source says."""
    idle = threading.Event()

    def wait(request: EvaluationRequest) -> Evaluation:
        idle.wait(float(request.kernel.source))
        return Evaluation(request.kernel.digest, request.task.name, request.device)

    return wait


def host_scheduler(pipe: Connection) -> None:
    """Tells its address, and ends when the other end of the pipe is closed."""
    import distributed

    async def host() -> None:
        async with distributed.Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0") as scheduler:
            pipe.send(scheduler.address)
            await until_closed(pipe)

    with quiet():
        asyncio.run(host())


def host_workers(scheduler: str, count: int, pipe: Connection) -> None:
    """So many workers in one process."""
    import dask
    import distributed

    from cupilot.executors._dask_worker import LEAN, PLUGIN, Evaluating
    from cupilot.executors._offer import Offer

    offer = Offer(evaluator=f"{open_waiting.__module__}:open_waiting", cache=Path(), sandbox="auto")

    async def host() -> None:
        workers = [
            distributed.Worker(
                scheduler,
                nthreads=1,
                memory_limit=0,
                resources=offer.resources,
                plugins=[Evaluating(offer)],
                startup_information={PLUGIN: lambda worker: offer.announcement},
            )
            for _ in range(count)
        ]
        await asyncio.gather(*workers)
        pipe.send("ready")
        await until_closed(pipe)
        await asyncio.gather(*(worker.close(nanny=False) for worker in workers))

    with quiet(), dask.config.set(LEAN):
        asyncio.run(host())


async def until_closed(pipe: Connection) -> None:
    with suppress(EOFError):
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)


def quiet() -> AbstractContextManager[None]:
    from distributed.utils import silence_logging_cmgr

    found: AbstractContextManager[None] = silence_logging_cmgr("critical")
    return found


def simulated(workers: int, rounds: int, waits: Sequence[float]) -> dict[str, Any]:
    """How much of the slots' time is spent evaluating, while more evaluations than slots are left."""
    context, processes, pipes = multiprocessing.get_context("spawn"), [], []

    def start(function: Callable[..., None], *arguments: Any) -> Any:
        near, far = context.Pipe()
        process = context.Process(target=function, args=(*arguments, far))
        process.start()
        far.close()
        processes.append(process)
        pipes.append(near)
        return near

    address = start(host_scheduler).recv()
    for ready in [start(host_workers, address, workers // PROCESSES) for _ in range(PROCESSES)]:
        ready.recv()
    executor = open_executor("dask", ExecutorOptions(slots=0, cache=Path(), scheduler=address))
    requests = [scripted_request("wait", str(waits[number % len(waits)])) for number in range(workers * rounds)]
    start_s, ends = time.perf_counter(), list[float]()
    futures = [executor.submit(request) for request in requests]
    for future in futures:
        future.add_done_callback(lambda future: ends.append(time.perf_counter() - start_s))
    for future in futures:
        future.result()
    executor.close()
    for pipe in pipes:
        pipe.close()
    for process in processes:
        process.join()
    work_s = sum(float(request.kernel.source) for request in requests)
    return {
        "workers": workers,
        "evaluations": len(requests),
        "seconds": max(ends),
        "mean_wait_s": work_s / len(requests),
        "busy": work_s / (workers * max(ends)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("evaluations", "overhead", "simulated"))
    parser.add_argument("--count", type=int, default=EVALUATIONS, help=f"of evaluations and overhead ({EVALUATIONS})")
    parser.add_argument("--workers", type=int, default=WORKERS, help=f"that are simulated ({WORKERS})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"simulated evaluations per worker ({ROUNDS})")
    parser.add_argument("--record", action="store_true", help=f"keep the evaluations' times in {RECORDED.name}")
    options = parser.parse_args()
    if options.what == "evaluations":
        found = evaluations(options.count)
        waits = found.pop("waits_s")
        if options.record:
            RECORDED.write_text(json.dumps({"waits_s": waits}) + "\n")
        enough = found["dask_over_local"] <= MOST_SLOWER
    elif options.what == "overhead":
        found, enough = overhead(options.count), True
    else:
        found = simulated(options.workers, options.rounds, json.loads(RECORDED.read_text())["waits_s"])
        enough = found["busy"] >= LEAST_BUSY
    print(json.dumps(found, indent=1))
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
