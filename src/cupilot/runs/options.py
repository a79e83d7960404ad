"""What a search is asked to do, and what the machine offers for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cupilot import __version__
from cupilot.records import Budget, Kernel, RunInfo, Task, ToolBudget
from cupilot.records.scope import REQUIREMENTS, SEARCH_REQUIREMENTS
from cupilot.records.turn import ONE_TURN
from cupilot.runs.agents import IN_FLIGHT, LLM_IN_FLIGHT, NO_LIMITS, Models, PromptLimits

MOST_JOBS = 4


def default_cache() -> Path:
    return Path.home() / ".cache" / "cupilot"


def default_jobs() -> int:
    """As many evaluations at a time as this process may use processors, at most 4."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_JOBS, usable)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a machine and its user bring to every search; nothing here changes a result.

    Builds and the user's pool are kept below ``cache``.  ``sandbox`` confines candidates: auto, bubblewrap or landlock.
    ``keys`` are the API keys of language models by the names of their environment variables.  ``executor`` says where
    evaluations run, ``scheduler`` is the address of its cluster, and ``jobs`` evaluations run at a time on this
    machine.
    """

    cache: Path = field(default_factory=default_cache)
    sandbox: str = "auto"
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    executor: str = "local"
    scheduler: str = ""
    jobs: int = field(default_factory=default_jobs)


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """A new search.

    ``device`` is a full name such as ``virtual:a100-80gb``.  ``folder`` is the run's; None is ``runs/<task>-<n>`` with
    the next free number.  ``models`` are (role, model) pairs; without any, the built-in expert plays the agents.
    ``kernel`` replaces the agents' plain kernel.  ``in_flight`` candidates are developed at a time; None chooses by the
    agents, and at most half the population, so that children are bred from what was evaluated.  ``islands`` are
    populations of their own within ``population``.  Correct kernels that are more than ``repair_slower`` times slower
    than their parent are repaired; None: never.  ``guided`` and ``pooled`` switch the roofline's guidance and the
    pool.  ``pool`` is the file of strategies
    to ask and to feed; None is the user's own.  ``replay`` is the folder of a run whose recorded calls answer instead
    of a model.  ``require`` names what kernels must hold for; None is the task and special values, and for the expert,
    whose kernels are general, any shape too.  ``dialogue`` is what a model may take for one kernel, with tools unless
    it has one turn.
    """

    task: Task
    device: str
    folder: Path | None = None
    models: Models = ()
    kernel: Kernel | None = None
    seed: int = 0
    population: int = 8
    generations: int = 4
    epochs: int = 1
    patience: int = 3
    in_flight: int | None = None
    islands: int = 1
    repair_slower: float | None = 1.0
    guided: bool = True
    pooled: bool = True
    timeout_s: float = 60.0
    require: tuple[str, ...] | None = None
    budget: Budget = field(default_factory=Budget)
    pool: Path | None = None
    prompt_limits: PromptLimits = NO_LIMITS
    replay: Path | None = None
    dialogue: ToolBudget = field(default_factory=ToolBudget)

    def info(self, gpu: str = "") -> RunInfo:
        """The part that is stored and decides the result; ``gpu`` is the name of the device's `GpuSpec`."""
        return RunInfo(
            task=self.task.name,
            task_source=self.task.source,
            device=self.device,
            agents="llm" if self.models else "expert",
            seed=self.seed,
            population=self.population,
            generations=self.generations,
            version=__version__,
            epochs=self.epochs,
            in_flight=self.in_flight or min(LLM_IN_FLIGHT if self.models else IN_FLIGHT, max(1, self.population // 2)),
            islands=self.islands,
            repair_slower=self.repair_slower,
            guided=self.guided,
            pooled=self.pooled,
            patience=self.patience,
            timeout_s=self.timeout_s,
            budget=self.budget,
            models=self.models,
            kernel=self.kernel,
            precision=self.task.precision,
            gpu=gpu,
            dialogue=self.dialogue if self.models else ONE_TURN,
            require=self.require or (SEARCH_REQUIREMENTS if self.models else REQUIREMENTS),
        )
