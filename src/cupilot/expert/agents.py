"""The expert: all five roles played with strategy cards and kernel recipes, without a language model.

Deterministic: the same task, records and random generator give the same results.  It handles only tasks that a recipe
matches (see `cupilot.expert.matching`); its kernels read and write floating tensors of 32 or 16 bits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from cupilot.contracts import Brief, Revision
from cupilot.expert import crossover
from cupilot.expert.matching import match
from cupilot.expert.prophet import foresee
from cupilot.expert.recipe import Recipe, load_recipes
from cupilot.expert.render import render
from cupilot.expert.space import Space
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Evaluation, Failure, Guidance, Kernel, Move, Strategy, Task
from cupilot.strategies import Deck, load_deck
from cupilot.strategies.reading import read_strategy

# messages of ptxas and of the runtime about a kernel that needs more than the device has
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

    def space(self, task: Task, spec: GpuSpec | None = None) -> Space:
        """The strategies that a recipe can realise for a task; `UnmatchedTask` when no recipe matches."""
        problem = match(task, self._recipes)
        return Space(problem, self._deck) if spec is None else Space(problem, self._deck, spec.capability)

    def generate(self, brief: Brief) -> Kernel:
        """Kernel Generator: one thread per independent result."""
        return render(self.space(brief.task, brief.spec), Strategy())

    def foresee(self, task: Task, evaluation: Evaluation, spec: GpuSpec, kernel: Kernel | None = None) -> Guidance:
        """Roofline Prophet: zone by intensity and time, limit as the timing names it."""
        return foresee(task, evaluation, spec)

    def initialize(self, brief: Brief, count: int, rng: Random) -> tuple[Strategy, ...]:
        """SCE Manager: what worked on similar tasks, the recipe's starting points, then coverage of the space."""
        return crossover.initialize(self.space(brief.task, brief.spec), brief, count, rng)

    def read(self, brief: Brief, kernel: Kernel, evaluation: Evaluation) -> Strategy:
        """Strategy Translator: the moves of the task's recipe that the code shows, made legal."""
        space = self.space(brief.task, brief.spec)
        seen = read_strategy(kernel, evaluation.profile, [space.deck.card(card) for card in space.cards])
        return space.effective(space.repair(seen))

    def cross(self, brief: Brief, rng: Random) -> Strategy:
        """SCE Manager: a legal strategy from those of the parents; the fastest parent has the most weight."""
        ranked = sorted(brief.parents, key=lambda parent: (parent.time_s is None, parent.time_s or 0.0))
        return crossover.cross(
            self.space(brief.task, brief.spec), [parent.strategy for parent in ranked], brief.guidance, rng
        )

    def translate(self, brief: Brief, strategy: Strategy) -> Kernel | Failure:
        """Strategy Translator: the recipe's template; the parents' kernels are not used."""
        space = self.space(brief.task, brief.spec)
        faults = space.faults(strategy)
        if faults:
            return Failure("translate", "illegal-strategy", faults[0], log="\n".join(faults))
        return render(space, space.effective(strategy))

    def align(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Strategy:
        """Strategy Translator: the strategy without the moves that change nothing for this task."""
        return self.space(brief.task, brief.spec).effective(strategy) if strategy.moves else strategy

    def revise(self, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Revision | Failure:
        """Kernel Revisor: a smaller kernel when resources ran out; nothing else can be repaired."""
        failure = evaluation.failure
        if failure is None or failure.stage not in _TOO_LARGE_STAGES:
            return Failure("revise", "given-up", "a recipe's kernel cannot be repaired")
        if not _TOO_LARGE.search(f"{failure.message}\n{failure.details}"):
            return Failure("revise", "given-up", f"a recipe's kernel cannot be repaired after a {failure.kind}")
        space = self.space(brief.task, brief.spec)
        smaller = space.smaller(space.repair(space.effective(strategy)))
        if smaller is None:
            return Failure("revise", "given-up", "the kernel is as small as the recipe can make it")
        moves = tuple(_revised(move, strategy) for move in space.effective(smaller).moves)
        revised = Strategy(moves, strategy.text)
        return Revision(render(space, revised), revised)


def _revised(move: Move, before: Strategy) -> Move:
    """The move; one with other parameters than before says why."""
    old = before.move(move.card)
    return move if old is None or old.same(move) else replace(move, reason="made smaller to fit the device")
