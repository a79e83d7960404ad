"""The expert: all five roles from strategy cards and kernel recipes, without a language model.

Deterministic: the same task, records and generator give the same answers.  It only knows tasks for
which a recipe matches (see `cupilot.expert.matching`) and writes only float32 kernels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from cupilot.expert import breeding
from cupilot.expert.matching import match
from cupilot.expert.prophet import foresee
from cupilot.expert.recipe import Recipe, load_recipes
from cupilot.expert.render import named_strategy, render
from cupilot.expert.space import Space
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Evaluation, Failure, Guidance, Individual, Kernel, Move, Strategy, Task
from cupilot.strategies import Deck, load_deck

# a kernel that asks for more than the device has, in the words of ptxas and of the runtime
_TOO_LARGE = re.compile(r"shared (data|memory)|too many resources|out of resources|registers", re.IGNORECASE)
_TOO_LARGE_STAGES = ("build", "load", "run")


class Expert:
    """Implements `cupilot.contracts.Agents`."""

    def __init__(self, deck: Deck | None = None, recipes: Sequence[Recipe] | None = None) -> None:
        self._deck = load_deck() if deck is None else deck
        self._recipes = load_recipes() if recipes is None else tuple(recipes)

    @property
    def name(self) -> str:
        return "expert"

    def space(self, task: Task) -> Space:
        """The strategies it can realise for a task; `UnmatchedTask` when there are none."""
        return Space(match(task, self._recipes), self._deck)

    def generate(self, task: Task) -> Kernel:
        """Kernel Generator: one thread per independent result, nothing else."""
        return render(self.space(task), Strategy())

    def foresee(self, task: Task, evaluation: Evaluation, spec: GpuSpec) -> Guidance:
        """Roofline Prophet: zone by intensity and time, limit as the timing names it."""
        return foresee(task, evaluation, spec)

    def initialize(self, task: Task, guidance: Guidance, count: int, rng: Random) -> tuple[Strategy, ...]:
        """SCE Manager: known starting points, then coverage of the space."""
        return breeding.initialize(self.space(task), guidance, count, rng)

    def cross(self, task: Task, parents: Sequence[Individual], guidance: Guidance, rng: Random) -> Strategy:
        """SCE Manager: a legal strategy out of the parents', the fastest parent counting most."""
        ranked = sorted(parents, key=lambda parent: (parent.time_s is None, parent.time_s or 0.0))
        return breeding.cross(self.space(task), [parent.strategy for parent in ranked], guidance, rng)

    def translate(self, task: Task, kernel: Kernel, strategy: Strategy) -> Kernel | Failure:
        """Strategy Translator: the recipe's template; the kernel passed in is not looked at."""
        space = self.space(task)
        faults = space.faults(strategy)
        if faults:
            return Failure("translate", "illegal-strategy", faults[0], log="\n".join(faults))
        return render(space, space.effective(strategy))

    def align(self, task: Task, kernel: Kernel, strategy: Strategy) -> Strategy:
        """Strategy Translator: the moves that the kernel's head names, with their reasons.

        Of a kernel that is not the expert's nothing is known, and the strategy stays as it is.
        """
        found = named_strategy(kernel, self._deck)
        if found is None:
            return strategy
        return Strategy(tuple(_reasoned(move, strategy) for move in found.moves), strategy.text)

    def revise(self, task: Task, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Kernel | None:
        """Kernel Revisor: a smaller kernel when resources ran out; nothing else can be repaired here."""
        failure = evaluation.failure
        if failure is None or failure.stage not in _TOO_LARGE_STAGES or failure.kind == "finding":
            return None
        if not _TOO_LARGE.search(f"{failure.message}\n{failure.log}"):
            return None
        space = self.space(task)
        smaller = space.smaller(space.repair(named_strategy(kernel, self._deck) or strategy))
        return render(space, space.effective(smaller)) if smaller is not None else None


def _reasoned(move: Move, strategy: Strategy) -> Move:
    claimed = strategy.move(move.card)
    if claimed is None:
        return Move(move.card, move.parameters, "not asked for, but in the kernel")
    return claimed if claimed.same(move) else Move(move.card, move.parameters, "as the kernel has it")
