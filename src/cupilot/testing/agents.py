"""The contract of the agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from cupilot.contracts import Agents, Brief
from cupilot.gpu.spec import GpuSpec
from cupilot.languages import language_of
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
    def start(self, task: Task, spec: GpuSpec, guidance: Guidance) -> Brief:
        """What is known when there is only guidance."""
        return Brief(task, spec, guidance)

    @pytest.fixture
    def strategies(self, agents: Agents, start: Brief) -> tuple[Strategy, ...]:
        return agents.initialize(start, 8, Random(1))

    @pytest.fixture
    def brief(self, agents: Agents, start: Brief, strategies: Sequence[Strategy], evaluation: Evaluation) -> Brief:
        """What is known when there are two parents."""
        kernel = agents.generate(Brief(start.task, start.spec))
        made = [
            Individual(number, 0, "initial", strategy, kernel, evaluation)
            for number, strategy in enumerate((*strategies, Strategy()))
        ]
        return replace(start, parents=(made[0], made[1]))

    def test_have_a_name(self, agents: Agents) -> None:
        assert agents.name

    def test_generate_a_kernel_with_its_entry(self, agents: Agents, task: Task, spec: GpuSpec) -> None:
        kernel = agents.generate(Brief(task, spec))
        assert isinstance(kernel, Kernel)
        assert language_of(kernel).fault(kernel) is None
        assert language_of(kernel).kernels_in(kernel.source)

    def test_foresee_says_where_the_kernel_stands(self, guidance: Guidance) -> None:
        assert guidance.zone
        assert guidance.limit
        assert guidance.sentence

    def test_initialize_gives_no_two_alike(self, strategies: Sequence[Strategy]) -> None:
        assert 1 <= len(strategies) <= 8
        for one, other in combinations(strategies, 2):
            assert _moves(one) != _moves(other)

    def test_initialize_keeps_to_the_count(self, agents: Agents, start: Brief) -> None:
        assert len(agents.initialize(start, 1, Random(3))) == 1

    def test_initialize_depends_on_the_generator_only(self, agents: Agents, start: Brief) -> None:
        first = agents.initialize(start, 6, Random(5))
        assert agents.initialize(start, 6, Random(5)) == first

    def test_initialize_works_without_guidance(self, agents: Agents, start: Brief) -> None:
        assert agents.initialize(replace(start, guidance=None), 4, Random(5))

    def test_read_gives_a_strategy_and_always_the_same(
        self, agents: Agents, brief: Brief, evaluation: Evaluation
    ) -> None:
        kernel = brief.parents[0].kernel
        read = agents.read(replace(brief, parents=()), kernel, evaluation)
        assert isinstance(read, Strategy)
        assert agents.read(replace(brief, parents=()), kernel, evaluation) == read

    @pytest.mark.parametrize("count", [1, 2], ids=["mutate", "cross"])
    @pytest.mark.parametrize("guided", [True, False], ids=["guided", "unguided"])
    def test_cross_depends_on_the_generator_only(self, agents: Agents, brief: Brief, count: int, guided: bool) -> None:
        given = replace(brief, parents=brief.parents[:count], guidance=brief.guidance if guided else None)
        for seed in SEEDS:
            child = agents.cross(given, Random(seed))
            assert agents.cross(given, Random(seed)) == child

    def test_mutation_leads_somewhere_else(self, agents: Agents, brief: Brief) -> None:
        given = replace(brief, parents=brief.parents[:1])
        children = [agents.cross(replace(given, sample=seed), Random(seed)) for seed in SEEDS]
        assert any(_moves(child) != _moves(brief.parents[0].strategy) for child in children)

    def test_translate_gives_a_kernel_or_says_why_not(
        self, agents: Agents, brief: Brief, strategies: Sequence[Strategy]
    ) -> None:
        translated = [agents.translate(replace(brief, sample=n), one) for n, one in enumerate(strategies)]
        assert any(isinstance(result, Kernel) for result in translated)
        for result in translated:
            if isinstance(result, Failure):
                assert result.message
            else:
                assert f"{result.entry}(" in result.source

    def test_align_is_idempotent(
        self, agents: Agents, brief: Brief, strategies: Sequence[Strategy], evaluation: Evaluation
    ) -> None:
        for number, strategy in enumerate(strategies):
            given = replace(brief, sample=number)
            kernel = agents.translate(given, strategy)
            if isinstance(kernel, Kernel):
                aligned = agents.align(given, kernel, strategy, evaluation)
                assert agents.align(given, kernel, aligned, evaluation) == aligned

    def test_revise_repairs_or_gives_up_with_a_reason(
        self, agents: Agents, brief: Brief, strategies: Sequence[Strategy]
    ) -> None:
        plain = brief.parents[0].kernel
        failed = Evaluation(plain.digest, brief.task.name, brief.spec.name, FAILURE)
        repaired = agents.revise(brief, plain, strategies[0], failed)
        if isinstance(repaired, Failure):
            assert repaired.message
        else:
            assert f"{repaired.kernel.entry}(" in repaired.kernel.source
            assert isinstance(repaired.strategy, Strategy)


def _moves(strategy: Strategy) -> frozenset[tuple[str, object]]:
    return frozenset((move.card, move.parameters) for move in strategy.moves)
