"""What a search produces: individuals, and the run they belong to."""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.records.evaluation import Evaluation
from cupilot.records.kernel import Kernel
from cupilot.records.scope import SEARCH_REQUIREMENTS
from cupilot.records.strategy import Strategy
from cupilot.records.turn import NO_TOOLS, ONE_TURN, ToolBudget, ToolTotals, Turn

MODELLED_TIE = 0.02
"""The relative difference of two modelled times of one task below which they are a tie.  The model is off by more than
that, but by much the same for both.  What differs between two kernels of a task are terms that are known to a few
percent (overlap of units, waves of blocks), so that a smaller difference orders nothing."""


@dataclass(frozen=True)
class Individual:
    """A strategy, the kernel it became, what came of it, and where it came from.

    ``origin`` is how it was made (``plain``, ``initial``, ``cross``, ``mutate``, ``revise``);
    ``parents`` are ids; ``reason`` says why in one sentence.  ``superseded_by`` is the id of its repair, where that
    worked: such an individual is no failure of the search.  ``turns`` are the replies of a model that used tools.
    """

    id: int
    generation: int
    origin: str
    strategy: Strategy
    kernel: Kernel
    evaluation: Evaluation
    parents: tuple[int, ...] = ()
    reason: str = ""
    superseded_by: int | None = None
    turns: tuple[Turn, ...] = ()

    @property
    def time_s(self) -> float | None:
        timing = self.evaluation.timing
        return timing.time_s if self.evaluation.correct and timing is not None else None


@dataclass(frozen=True)
class Outline:
    """What is known of an individual without its record: enough to count, to rank and to draw.

    ``failure`` is its stage and kind; ``source`` and ``device`` are those of its time.
    """

    id: int
    generation: int
    origin: str
    time_s: float | None
    failure: str | None
    source: str | None
    device: str | None


@dataclass(frozen=True)
class Budget:
    """What a run may spend: caps, whichever is reached first; None: no cap."""

    evaluations: int | None = None
    wall_s: float | None = None
    device_s: float | None = None
    tokens: int | None = None
    usd: float | None = None


@dataclass(frozen=True)
class RunInfo:
    """What a run was asked to do; enough to repeat it.

    ``in_flight`` candidates are developed at a time: it decides what each of them knows of the others,
    so it belongs to the run and not to the machine.  ``guided`` and ``pooled`` are
    false for ablations; ``timeout_s`` is what one candidate may take,
    ``models`` are (role, name) pairs of LLM agents, ``kernel`` is a first kernel given by the user,
    ``precision`` what the task may compute in, ``gpu`` the name of the device's `GpuSpec`, which ``cuda:0`` does not
    tell; empty in runs of old.  ``require`` names what kernels must hold for (`records.scope`).

    A correct kernel is repaired when it is more than ``repair_slower`` times slower than its parent; never with None.
    ``islands`` are populations of their own that exchange their best at each epoch.  ``tie`` is the relative difference
    of modelled times that counts as none.  ``steady`` breeds a child whenever a result is in; without it, generations
    are waited for.  ``dialogue`` is what a model may take for one kernel; with one turn it has no tools.
    """

    task: str
    task_source: str
    device: str
    agents: str
    seed: int
    population: int
    generations: int
    version: str
    epochs: int = 1
    in_flight: int = 4
    guided: bool = True
    pooled: bool = True
    patience: int = 3
    timeout_s: float = 60.0
    budget: Budget = Budget()
    models: tuple[tuple[str, str], ...] = ()
    kernel: Kernel | None = None
    precision: str = "fp32"
    gpu: str = ""
    require: tuple[str, ...] = SEARCH_REQUIREMENTS
    repair_slower: float | None = 1.0
    islands: int = 1
    tie: float = MODELLED_TIE
    steady: bool = True
    dialogue: ToolBudget = ONE_TURN


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run; ``stopped`` says why it ended, ``tools`` what models' tools came to."""

    info: RunInfo
    first: Individual
    best: Individual
    evaluations: int
    failures: int
    stopped: str
    folder: str = ""
    tools: ToolTotals = NO_TOOLS
