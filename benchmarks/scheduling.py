"""How busy the device queue is while agents take their time.

Agents answer after a fixed latency, at most ``--slots`` at a time; the device evaluates one candidate
at a time.  Times are real sleeps, shortened by ``--scale``.  Prints one line of JSON last::

    python benchmarks/scheduling.py --latency 5 --slots 8 --device 2 --scale 0.1
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from random import Random

from cupilot.contracts import Brief
from cupilot.evolution.loop import Evolution
from cupilot.evolution.store import create_store
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Evaluation, EvaluationRequest, Failure, Guidance, Kernel, Move, Strategy, Task, Timing
from cupilot.testing.samples import INFO, SPEC, TASK
from cupilot.threads import DaemonThreads


class SlowAgents:
    """Every role takes the same time and says something new each time."""

    name = "slow"

    def __init__(self, latency_s: float, slots: int) -> None:
        self._latency_s = latency_s
        self._slots = threading.BoundedSemaphore(slots)

    def _wait(self) -> None:
        with self._slots:
            time.sleep(self._latency_s)

    def generate(self, brief: Brief) -> Kernel:
        self._wait()
        return Kernel("// plain")

    def foresee(self, task: Task, evaluation: Evaluation, spec: GpuSpec, kernel: Kernel | None = None) -> Guidance:
        self._wait()
        return Guidance("memory-bound", "dram", 2.0, "slowly")

    def initialize(self, brief: Brief, count: int, rng: Random) -> tuple[Strategy, ...]:
        self._wait()
        return tuple(Strategy((Move.of("first", number=n),)) for n in range(count))

    def read(self, brief: Brief, kernel: Kernel, evaluation: Evaluation) -> Strategy:
        self._wait()
        return Strategy()

    def cross(self, brief: Brief, rng: Random) -> Strategy:
        self._wait()
        return Strategy((Move.of("child", number=brief.sample),))

    def translate(self, brief: Brief, strategy: Strategy) -> Kernel | Failure:
        self._wait()
        return Kernel(f"// {strategy}")

    def align(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Strategy:
        self._wait()
        return strategy

    def revise(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Failure:
        return Failure("revise", "given-up", "nothing to repair")


class OneDevice:
    """Evaluates one candidate at a time and keeps the time it was busy."""

    def __init__(self, device_s: float) -> None:
        self._device_s = device_s
        self._lock = threading.Lock()
        self.busy_s = 0.0
        self.first_s = self.last_s = 0.0
        self.count = 0

    def __call__(self, request: EvaluationRequest) -> Evaluation:
        with self._lock:
            began_s = time.monotonic()
            time.sleep(self._device_s)
            self.last_s = time.monotonic()
            self.busy_s += self.last_s - began_s
            self.count += 1
            # the plain kernel comes alone by nature; the queue counts from the first population on
            if self.count == 2:
                self.first_s, self.busy_s = began_s, self.last_s - began_s
            timing = Timing(1.0 / (1 + self.count), "modelled", "bench")
        return Evaluation(request.kernel.digest, request.task.name, "bench", timing=timing)


class DeviceExecutor:
    """Evaluates in threads, as many as there are requests: the device itself takes one at a time."""

    slots = 1
    busy = False

    def __init__(self, device: OneDevice) -> None:
        self._device = device
        self._threads = DaemonThreads(64)

    def submit(self, request: EvaluationRequest) -> Future[Evaluation]:
        return self._threads.submit(self._device, request)

    def close(self, *, cancel: bool = False) -> None:
        self._threads.close(cancel=cancel)

    def abandon(self) -> bool:
        return self._threads.abandon()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=5.0, help="seconds per agent call")
    parser.add_argument("--slots", type=int, default=8, help="agent calls at a time")
    parser.add_argument("--device", type=float, default=2.0, help="seconds per evaluation")
    parser.add_argument("--in-flight", type=int, default=12, help="candidates under way")
    parser.add_argument("--scale", type=float, default=0.1, help="shortens all times")
    options = parser.parse_args()
    agents = SlowAgents(options.latency * options.scale, options.slots)
    device = OneDevice(options.device * options.scale)
    info = replace(INFO, population=16, generations=5, in_flight=options.in_flight, patience=99)
    executor, threads = DeviceExecutor(device), DaemonThreads(options.in_flight)
    with tempfile.TemporaryDirectory() as folder:
        store = create_store(Path(folder) / "run")
        Evolution(task=TASK, info=info, agents=agents, executor=executor, threads=threads, store=store, spec=SPEC).run()
        store.close()
    threads.close()
    executor.close()
    busy = device.busy_s / (device.last_s - device.first_s)
    print(f"{device.count} evaluations, the device queue was busy {busy:.0%} of the time")
    print(json.dumps({"evaluations": device.count, "device_busy": round(busy, 3), "in_flight": options.in_flight}))


if __name__ == "__main__":
    main()
