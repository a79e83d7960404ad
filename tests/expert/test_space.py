"""What is legal for a recipe; repair and sampling stay inside it."""

from __future__ import annotations

from random import Random

import pytest
from expert_tasks import FAMILIES, elementwise_task, matmul_task, softmax_task
from hypothesis import given, settings
from hypothesis import strategies as some

from cupilot.expert import Expert
from cupilot.expert.space import Space
from cupilot.records import Move, Strategy, Task
from cupilot.strategies import load_deck, parse, same

DECK = load_deck()
EXPERT = Expert()
SPACES = {name: EXPERT.space(make()) for name, make in FAMILIES.items()}


def strategy(text: str) -> Strategy:
    return parse(text.replace("; ", "\n"), DECK)


@some.composite
def any_strategies(draw: some.DrawFn) -> Strategy:
    """Cards and numbers without any regard to what is allowed, inventions included."""
    names = draw(some.lists(some.sampled_from([*DECK, "my-own-trick"]), unique=True, max_size=8))
    moves = []
    for name in names:
        parameters = DECK[name].parameters if name in DECK else ()
        values = {p.name: draw(some.sampled_from([*p.choices, 3, 1000, "odd"])) for p in parameters}
        moves.append(Move.of(name, "", **values))
    return Strategy(tuple(moves))


@pytest.mark.parametrize("name", sorted(SPACES))
@given(wild=any_strategies(), kept=some.sampled_from(list(DECK)))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_repair_makes_anything_legal_and_leaves_the_legal_alone(name: str, wild: Strategy, kept: str) -> None:
    space = SPACES[name]
    repaired = space.repair(wild, frozenset({kept}))
    assert space.faults(repaired) == ()
    assert same(space.repair(repaired), repaired)
    if not space.faults(wild):
        assert same(repaired, wild)


def test_the_empty_strategy_is_legal(task: Task) -> None:
    assert EXPERT.space(task).faults(Strategy()) == ()


def test_every_card_of_a_recipe_can_be_had_alone_or_with_its_needs(task: Task) -> None:
    space = EXPERT.space(task)
    for card in space.cards:
        repaired = space.repair(Strategy((space.default(card),)), frozenset({card}))
        assert card in repaired.cards


def test_starting_points_are_legal_distinct_and_led_by_the_limit(task: Task) -> None:
    space = EXPERT.space(task)
    starts = space.starts("dram")
    assert len(starts) >= 4
    assert all(not space.faults(start) for start in starts)
    assert starts[0] != space.starts("issue")[0]
    assert any(len(start.moves) == 1 for start in starts)


@pytest.mark.parametrize(
    ("family", "text", "reason"),
    [
        ("matmul", "coalesce; shared-tile(block_k=32, block_m=256, block_n=256)", "64 to 1024 threads"),
        ("matmul", "shared-tile(block_k=32, block_m=32, block_n=32)", "shared-tile needs coalesce"),
        ("matmul", "grid-stride(blocks_per_sm=8)", "does not realise grid-stride"),
        ("matmul", "block-size(threads=64)", "not what the recipe allows"),
        (
            "matmul",
            "coalesce; shared-tile(block_k=8, block_m=64, block_n=64); register-block(thread_m=2, thread_n=8); "
            "vector-load(bytes=16)",
            "whole vectors",
        ),
        ("softmax", "block-per-row; unroll(factor=2); register-cache", "unrolled already"),
        ("softmax", "register-cache", "register-cache needs block-per-row|warp-per-row"),
        ("softmax", "warp-per-row; warp-shuffle; register-cache", "does not fit in registers"),
        ("softmax", "fast-math-exp", "not for fp32"),
        ("elementwise", "vector-load(bytes=16); unroll(factor=8)", "in flight"),
    ],
)
def test_what_is_illegal_is_said_in_words(family: str, text: str, reason: str) -> None:
    assert any(reason in fault for fault in SPACES[family].faults(strategy(text)))


@pytest.mark.parametrize(
    ("task", "text", "left"),
    [
        (softmax_task(64, 1001), "block-per-row; vector-load(bytes=16)", {"block-per-row"}),
        (softmax_task(64, 1002), "block-per-row; vector-load(bytes=8)", {"block-per-row", "vector-load"}),
        (softmax_task(64, 200), "block-per-row; unroll(factor=2)", {"block-per-row"}),
        (elementwise_task(), "block-size(threads=256); streaming-store", {"streaming-store"}),
        (
            matmul_task(32, 512, 512),
            "coalesce; shared-tile(block_k=32, block_m=32, block_n=32); block-swizzle(rows=4)",
            {"coalesce", "shared-tile"},
        ),
    ],
)
def test_moves_that_change_nothing_are_struck(task: Task, text: str, left: set[str]) -> None:
    assert EXPERT.space(task).effective(strategy(text)).cards == left


@pytest.mark.parametrize("name", sorted(SPACES))
def test_draws_are_legal_and_spread(name: str) -> None:
    space: Space = SPACES[name]
    rng = Random(3)
    drawn = [space.draw(rng, lambda card: 0.5) for _ in range(40)]
    assert all(not space.faults(one) for one in drawn)
    # what changes nothing for this task is struck
    alone = {card: space.repair(Strategy((space.default(card),)), frozenset({card})) for card in space.cards}
    useful = {card for card, one in alone.items() if card in space.effective(one).cards}
    assert useful <= {card for one in drawn for card in one.cards} <= set(space.cards)


def test_smaller_gives_up_step_by_step_until_nothing_is_left_to_give() -> None:
    space = SPACES["matmul"]
    current: Strategy | None = strategy(
        "coalesce; shared-tile(block_k=16, block_m=128, block_n=128); register-block(thread_m=8, thread_n=8); "
        "double-buffer(buffers=2)"
    )
    shared: list[int] = []
    while current is not None:
        assert space.faults(current) == ()
        shared.append(space.values(current)["shared_bytes"])
        current = space.smaller(current)
        assert len(shared) < 20
    assert len(shared) > 2
    assert shared[-1] < shared[0]
