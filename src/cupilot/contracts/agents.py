"""The five roles of the method."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol

from cupilot.contracts.tools import Tools
from cupilot.gpu.spec import GpuSpec
from cupilot.records import (
    Evaluation,
    Failure,
    Guidance,
    Individual,
    Kernel,
    PoolRecord,
    Strategy,
    Task,
)

ROLES = ("generator", "prophet", "manager", "translator", "revisor")


@dataclass(frozen=True)
class Brief:
    """What a role is told about the work at hand.

    ``guidance`` is None when it is switched off (for ablations).  ``parents`` are the individuals to
    start from, the fastest first; before there are any, it is empty.  ``tried`` are attempts on this
    lineage that failed or did not pay, each with its evaluation, the newest last; what was repaired is not among them.
    ``similar`` is what worked on similar kernels.  ``sample`` tells apart several answers to one and the same question.
    ``tools`` may be used by who writes or repairs a kernel; without them, the first reply is the kernel.
    """

    task: Task
    spec: GpuSpec
    guidance: Guidance | None = None
    parents: tuple[Individual, ...] = ()
    tried: tuple[Individual, ...] = ()
    similar: tuple[PoolRecord, ...] = ()
    sample: int = 0
    tools: Tools | None = None


@dataclass(frozen=True)
class Revision:
    """A repaired kernel, and the strategy that it realises."""

    kernel: Kernel
    strategy: Strategy


class Agents(Protocol):
    """The five roles of the method; the expert and the LLM agents both implement this.

    A role never sees a device, only records and the tools of its brief.  All randomness comes from the generator
    passed in.  Roles are called from several threads at a time.
    """

    @property
    def name(self) -> str: ...

    def generate(self, brief: Brief) -> Kernel:
        """Kernel Generator: a plain, correct first kernel."""

    def foresee(self, task: Task, evaluation: Evaluation, spec: GpuSpec, kernel: Kernel | None = None) -> Guidance:
        """Roofline Prophet: the zone a kernel is in, and what to aim for; ``evaluation`` is that of ``kernel``."""

    def initialize(self, brief: Brief, count: int, rng: Random) -> tuple[Strategy, ...]:
        """SCE Manager: up to ``count`` first strategies, no two alike."""

    def read(self, brief: Brief, kernel: Kernel, evaluation: Evaluation) -> Strategy:
        """Strategy Translator: the strategy that a kernel of unknown origin realises; empty where none is seen."""

    def cross(self, brief: Brief, rng: Random) -> Strategy:
        """SCE Manager: one strategy out of those of the parents (one parent: a mutation)."""

    def translate(self, brief: Brief, strategy: Strategy) -> Kernel | Failure:
        """Strategy Translator: the kernel that realises the strategy, from the first parent's."""

    def align(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Strategy:
        """Strategy Translator: the strategy re-worded to what the code does."""

    def revise(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Revision | Failure:
        """Kernel Revisor: a repaired kernel with its strategy, or a failure of kind ``given-up`` with the reason."""
