"""The expert in its five roles."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from expert_tasks import FAMILIES, brief, elementwise_task, matmul_task, softmax_task

from cupilot.contracts import Agents, Revision
from cupilot.errors import UnmatchedTask
from cupilot.expert import Expert
from cupilot.expert.prophet import WORDS
from cupilot.gpu import load_spec
from cupilot.records import Evaluation, Failure, Guidance, Individual, Kernel, Move, Strategy, Task, Timing
from cupilot.runs.pool import shipped_records
from cupilot.strategies import LIMITS, distance, load_deck, parse, same
from cupilot.testing.agents import AgentsContract
from cupilot.testing.samples import EVALUATION, SPEC

DECK = load_deck()
EXPERT = Expert()


class TestContract(AgentsContract):
    @pytest.fixture
    def agents(self) -> Agents:
        return Expert()

    @pytest.fixture(params=sorted(FAMILIES))
    def task(self, request: pytest.FixtureRequest) -> Task:
        return FAMILIES[request.param]()


def individual(strategy: Strategy, time_s: float) -> Individual:
    evaluation = replace(EVALUATION, timing=Timing(time_s, "modelled", "sample", "dram"))
    return Individual(0, 0, "initial", strategy, Kernel(""), evaluation)


# --- prophet ---------------------------------------------------------------------------------


def test_guidance_takes_the_limit_of_the_timing_and_counts_headroom() -> None:
    task = matmul_task(4096, 4096, 4096)
    timing = Timing(0.1, "modelled", "sample", "shared")
    told = EXPERT.foresee(task, replace(EVALUATION, timing=timing), SPEC)
    assert told.limit == "shared"
    assert told.headroom == pytest.approx(0.1 / (2 * 4096**3 / (SPEC.tf32_tensor_flop_per_s / 3)))
    assert "shared memory" in told.sentence
    assert "relieve shared" in told.sentence


def test_a_kernel_near_no_ceiling_is_latency_bound() -> None:
    slow = replace(EVALUATION, timing=Timing(1.0, "modelled", "sample", ""))
    told = EXPERT.foresee(elementwise_task(), slow, SPEC)
    assert (told.zone, told.limit) == ("latency-bound", "latency")


def test_guidance_without_a_time_goes_by_the_task() -> None:
    failed = Evaluation("k", "t", "sample", Failure("build", "compile-error", "no"))
    told = EXPERT.foresee(elementwise_task(), failed, SPEC)
    assert (told.zone, told.limit) == ("memory-bound", "dram")


# --- manager ---------------------------------------------------------------------------------


def test_first_strategies_are_distinct_legal_and_filled_up(task: Task, guidance: Guidance) -> None:
    first = EXPERT.initialize(brief(task, guidance), 12, Random(4))
    assert len(first) == 12
    space = EXPERT.space(task)
    for index, one in enumerate(first):
        assert one.moves, "the plain kernel is there already"
        assert space.faults(one) == ()
        assert all(distance(one, other) > 0 for other in first[:index])
    assert first != EXPERT.initialize(brief(task, guidance), 12, Random(5))


def test_starting_points_come_in_the_recipes_order(guidance: Guidance) -> None:
    task = matmul_task(4096, 4096, 4096)
    starts = EXPERT.space(task).starts(guidance.limit)
    first = EXPERT.initialize(brief(task, guidance=guidance), 8, Random(2))
    assert first[:4] == starts[:4]


@pytest.mark.parametrize("gpu", ["t4", "v100"])
def test_an_older_gpu_gets_strategies_that_it_is_capable_of(gpu: str, guidance: Guidance) -> None:
    """Neither what tensor cores and asynchronous copies did elsewhere, nor starting points with them."""
    task, spec = matmul_task(4096, 4096, 4096), load_spec(gpu)
    paid = [record for record in shipped_records(task, EVALUATION) if "tensor-cores" in record.strategy.cards]
    assert paid
    asked = replace(brief(task, guidance=guidance), spec=spec, similar=tuple(paid))
    first = EXPERT.initialize(asked, 8, Random(2))
    assert len(first) == 8
    for strategy in first:
        assert all(DECK[card].min_capability <= spec.capability for card in strategy.cards)
        assert isinstance(EXPERT.translate(asked, strategy), Kernel)
    refused = EXPERT.translate(asked, paid[0].strategy)
    assert isinstance(refused, Failure)
    assert "needs compute capability 8.0" in refused.log


def test_what_is_left_of_other_families_strategies_is_not_taken(guidance: Guidance) -> None:
    task = matmul_task(4096, 4096, 4096)
    (record,) = shipped_records(task, EVALUATION)[:1]
    moves = "block-size(threads=128)\nblock-per-row\nwarp-shuffle\nonline-softmax"
    foreign = replace(record, strategy=parse(moves, DECK))
    asked = replace(brief(task, guidance=guidance), similar=(foreign, record))
    first = EXPERT.initialize(asked, 8, Random(2))[0]
    assert same(first, EXPERT.space(task).effective(record.strategy))


def test_what_paid_for_other_operators_comes_behind_the_starting_points(guidance: Guidance) -> None:
    task = matmul_task(4096, 4096, 4096)
    (record,) = shipped_records(task, EVALUATION)[:1]
    own = replace(record, speedup=1.25)
    other = replace(own, operators=("softmax",), gain=117.0, speedup=None)
    start = EXPERT.space(task).starts(guidance.limit)[0]
    (first,) = EXPERT.initialize(replace(brief(task, guidance=guidance), similar=(other,)), 1, Random(2))
    assert same(first, start)
    first = EXPERT.initialize(replace(brief(task, guidance=guidance), similar=(other, own)), 8, Random(2))[0]
    assert same(first, EXPERT.space(task).effective(own.strategy))
    assert first.moves[0].reason == f"gained 1.25x over PyTorch on {own.task}"


def test_children_are_legal_and_new(task: Task, guidance: Guidance) -> None:
    space = EXPERT.space(task)
    first = EXPERT.initialize(brief(task, guidance), 8, Random(1))
    rng = Random(2)
    for one, other in pairwise(first):
        for parents in ([one], [one, other]):
            child = EXPERT.cross(brief(task, guidance, [individual(p, 1e-3) for p in parents]), rng)
            assert space.faults(child) == ()
            assert not any(same(child, parent) for parent in parents)


def test_the_faster_parent_and_the_limit_weigh_more() -> None:
    task = softmax_task(512, 4096)
    block = parse("block-per-row\nwarp-shuffle", DECK)
    warp = parse("warp-per-row\nwarp-shuffle", DECK)
    guidance = Guidance("memory-bound", "issue", 2.0, "")  # of the two, only a warp per row relieves the issue slots
    rng = Random(0)
    kept = {"block-per-row": 0, "warp-per-row": 0}
    for _ in range(60):
        child = EXPERT.cross(brief(task, guidance, [individual(block, 1e-3), individual(warp, 2e-3)]), rng)
        for card in kept:
            kept[card] += card in child.cards
    assert kept["warp-per-row"] > kept["block-per-row"]


def test_moves_from_elsewhere_do_not_stop_a_cross(guidance: Guidance) -> None:
    strange = Strategy((Move.of("my-own-trick"), Move.of("shared-tile", block_m=7)))
    task = elementwise_task()
    for parents in ([strange], [strange, strange]):
        child = EXPERT.cross(brief(task, guidance, [individual(p, 1e-3) for p in parents]), Random(0))
        assert EXPERT.space(task).faults(child) == ()


# --- translator and revisor ------------------------------------------------------------------


def test_an_illegal_strategy_is_a_failure_with_its_reasons() -> None:
    failure = EXPERT.translate(brief(matmul_task()), parse("register-block(thread_m=8, thread_n=8)", DECK))
    assert isinstance(failure, Failure)
    assert (failure.stage, failure.kind) == ("translate", "illegal-strategy")
    assert "needs shared-tile" in failure.message


def test_align_strikes_what_the_kernel_does_not_do() -> None:
    task = softmax_task(64, 1001)
    claimed = Strategy((Move.of("block-per-row", "long rows"), Move.of("vector-load", "wide", bytes=16)), "words")
    kernel = EXPERT.translate(brief(task), claimed)
    assert isinstance(kernel, Kernel)
    aligned = EXPERT.align(brief(task), kernel, claimed, EVALUATION)
    assert aligned == Strategy((Move.of("block-per-row", "long rows"),), "words")


def test_a_strategy_in_a_comment_is_not_read() -> None:
    strategy = parse("coalesce", DECK)
    for source in ("// Strategy:\n//   unroll(factor=2)\n", "int x;"):
        assert EXPERT.align(brief(matmul_task()), Kernel(source), strategy, EVALUATION) == strategy


def test_a_kernel_too_large_for_the_device_is_made_smaller_and_aligned() -> None:
    task = matmul_task()
    strategy = parse(
        "coalesce\nshared-tile(block_k=16, block_m=64, block_n=64)\nregister-block(thread_m=4, thread_n=4)\n"
        "double-buffer(buffers=2)",
        DECK,
    )
    kernel = EXPERT.translate(brief(task), strategy)
    assert isinstance(kernel, Kernel)
    failure = Failure("build", "resources", "uses too much shared data (0x8000 bytes, 0x4000 max)")
    repaired = EXPERT.revise(brief(task), kernel, strategy, replace(EVALUATION, failure=failure))
    assert isinstance(repaired, Revision)
    assert repaired.kernel == EXPERT.translate(brief(task), repaired.strategy)
    assert repaired.kernel != kernel
    assert repaired.strategy.cards == strategy.cards - {"double-buffer"}
    wrong = Failure("verify", "wrong-result", "element 3 of the registers differs")
    assert isinstance(EXPERT.revise(brief(task), kernel, strategy, replace(EVALUATION, failure=wrong)), Failure)
    assert isinstance(
        EXPERT.revise(brief(task), EXPERT.generate(brief(task)), Strategy(), replace(EVALUATION, failure=failure)),
        Failure,
    )


def test_an_unknown_task_is_refused_by_every_role(guidance: Guidance) -> None:
    task = replace(elementwise_task(), graph=(replace(elementwise_task().graph[0], target="aten.cdist.default"),))
    with pytest.raises(UnmatchedTask, match=r"aten\.cdist\.default"):
        EXPERT.generate(brief(task))
    with pytest.raises(UnmatchedTask):
        EXPERT.initialize(brief(task, guidance), 4, Random(0))


def test_every_limit_that_cards_relieve_has_words():
    assert set(WORDS) == set(LIMITS)
