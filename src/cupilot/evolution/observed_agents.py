"""Agents that report which role is writing; the work is the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from random import Random

from cupilot.contracts import DONE, Agents, Brief, Revision, Step, Watch
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Evaluation, Failure, Guidance, Kernel, Strategy, Task


class ObservedAgents:
    """Passes every call on; safe to call from several threads, as the agents themselves are."""

    def __init__(self, agents: Agents, watch: Watch) -> None:
        self._agents, self._watch = agents, watch
        self._calls = count(1)

    @property
    def name(self) -> str:
        return self._agents.name

    def generate(self, brief: Brief) -> Kernel:
        with self._writing("generator"):
            return self._agents.generate(brief)

    def foresee(self, task: Task, evaluation: Evaluation, spec: GpuSpec, kernel: Kernel | None = None) -> Guidance:
        with self._writing("prophet"):
            return self._agents.foresee(task, evaluation, spec, kernel)

    def initialize(self, brief: Brief, count: int, rng: Random) -> tuple[Strategy, ...]:
        with self._writing("manager"):
            return self._agents.initialize(brief, count, rng)

    def read(self, brief: Brief, kernel: Kernel, evaluation: Evaluation) -> Strategy:
        with self._writing("translator"):
            return self._agents.read(brief, kernel, evaluation)

    def cross(self, brief: Brief, rng: Random) -> Strategy:
        with self._writing("manager"):
            return self._agents.cross(brief, rng)

    def translate(self, brief: Brief, strategy: Strategy) -> Kernel | Failure:
        with self._writing("translator"):
            return self._agents.translate(brief, strategy)

    def align(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Strategy:
        with self._writing("translator"):
            return self._agents.align(brief, kernel, strategy, evaluation)

    def revise(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Revision | Failure:
        with self._writing("revisor"):
            return self._agents.revise(brief, kernel, strategy, evaluation)

    @contextmanager
    def _writing(self, role: str) -> Iterator[None]:
        who = f"{role} {next(self._calls)}"
        self._watch(Step("writing", who, role))
        try:
            yield
        finally:
            self._watch(Step(DONE, who))
