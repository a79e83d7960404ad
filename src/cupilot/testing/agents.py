"""The contract of the agents."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from random import Random

import pytest

from cupilot.contracts import Agents
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Evaluation, Failure, Guidance, Individual, Kernel, Strategy, Task
from cupilot.testing.samples import EVALUATION, FAILURE, SPEC, TASK

SEEDS = range(8)


class AgentsContract:
    """Offer a fixture ``agents``; ``task``, ``spec`` and ``evaluation`` may be replaced.

    ``evaluation`` is what is known of the plain kernel; a role gets records only, never a device.
    """

    @pytest.fixture
    def task(self) -> Task:
        return TASK

    @pytest.fixture
    def spec(self) -> GpuSpec:
        return SPEC

    @pytest.fixture
    def evaluation(self) -> Evaluation:
        return EVALUATION

    @pytest.fixture
    def guidance(self, agents: Agents, task: Task, evaluation: Evaluation, spec: GpuSpec) -> Guidance:
        return agents.foresee(task, evaluation, spec)

    @pytest.fixture
    def strategies(self, agents: Agents, task: Task, guidance: Guidance) -> tuple[Strategy, ...]:
        return agents.initialize(task, guidance, 8, Random(1))

    @pytest.fixture
    def parents(
        self, agents: Agents, task: Task, strategies: Sequence[Strategy], evaluation: Evaluation
    ) -> tuple[Individual, Individual]:
        kernel = agents.generate(task)
        made = [
            Individual(number, 0, "initial", strategy, kernel, evaluation)
            for number, strategy in enumerate((*strategies, Strategy()))
        ]
        return made[0], made[1]

    def test_have_a_name(self, agents: Agents) -> None:
        assert agents.name

    def test_generate_a_kernel_with_its_entry(self, agents: Agents, task: Task) -> None:
        kernel = agents.generate(task)
        assert isinstance(kernel, Kernel)
        assert "__global__" in kernel.source
        assert f"{kernel.entry}(" in kernel.source

    def test_foresee_says_where_the_kernel_stands(self, guidance: Guidance) -> None:
        assert guidance.zone
        assert guidance.limit
        assert guidance.sentence

    def test_initialize_gives_no_two_alike(self, strategies: Sequence[Strategy]) -> None:
        assert 1 <= len(strategies) <= 8
        for one, other in combinations(strategies, 2):
            assert _moves(one) != _moves(other)

    def test_initialize_keeps_to_the_count(self, agents: Agents, task: Task, guidance: Guidance) -> None:
        assert len(agents.initialize(task, guidance, 1, Random(3))) == 1

    def test_initialize_depends_on_the_generator_only(self, agents: Agents, task: Task, guidance: Guidance) -> None:
        first = agents.initialize(task, guidance, 6, Random(5))
        assert agents.initialize(task, guidance, 6, Random(5)) == first

    @pytest.mark.parametrize("count", [1, 2], ids=["mutate", "cross"])
    def test_cross_depends_on_the_generator_only(
        self, agents: Agents, task: Task, parents: Sequence[Individual], guidance: Guidance, count: int
    ) -> None:
        for seed in SEEDS:
            child = agents.cross(task, parents[:count], guidance, Random(seed))
            assert agents.cross(task, parents[:count], guidance, Random(seed)) == child

    def test_mutation_leads_somewhere_else(
        self, agents: Agents, task: Task, parents: Sequence[Individual], guidance: Guidance
    ) -> None:
        children = [agents.cross(task, parents[:1], guidance, Random(seed)) for seed in SEEDS]
        assert any(_moves(child) != _moves(parents[0].strategy) for child in children)

    def test_translate_gives_a_kernel_or_says_why_not(
        self, agents: Agents, task: Task, strategies: Sequence[Strategy]
    ) -> None:
        plain = agents.generate(task)
        translated = [agents.translate(task, plain, strategy) for strategy in strategies]
        assert any(isinstance(result, Kernel) for result in translated)
        for result in translated:
            if isinstance(result, Failure):
                assert result.message
            else:
                assert f"{result.entry}(" in result.source

    def test_align_is_idempotent(self, agents: Agents, task: Task, strategies: Sequence[Strategy]) -> None:
        plain = agents.generate(task)
        for strategy in strategies:
            kernel = agents.translate(task, plain, strategy)
            if isinstance(kernel, Kernel):
                aligned = agents.align(task, kernel, strategy)
                assert agents.align(task, kernel, aligned) == aligned

    def test_revise_repairs_or_gives_up(
        self, agents: Agents, task: Task, strategies: Sequence[Strategy], evaluation: Evaluation
    ) -> None:
        plain = agents.generate(task)
        failed = Evaluation(plain.digest, task.name, evaluation.device, FAILURE)
        repaired = agents.revise(task, plain, strategies[0], failed)
        assert repaired is None or isinstance(repaired, Kernel)


def _moves(strategy: Strategy) -> frozenset[tuple[str, object]]:
    return frozenset((move.card, move.parameters) for move in strategy.moves)
