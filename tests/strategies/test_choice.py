"""Which cards are chosen: by operators, limit, zone, device, precision and what paid on similar tasks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pool_samples import record

from cupilot.gpu import load_spec
from cupilot.records import Card, Guidance, Move, Op, Strategy, Task, TensorSpec, Timing
from cupilot.strategies import load_deck
from cupilot.strategies.choice import CardQuery, card_query, promise, rank_cards, relevance
from cupilot.strategies.renamed import current_strategy
from cupilot.testing.samples import TASK

DECK = load_deck()
A100, V100 = load_spec("a100-80gb"), load_spec("v100")
SHOWN = 10


def top(*families: str, limit: str = "dram", zone: str = "memory-bound", precision: str = "fp32") -> set[str]:
    query = CardQuery(A100.capability, precision, frozenset(families), limit, zone)
    return {card.name for card in rank_cards(DECK, query)[:SHOWN]}


def test_operators_decide() -> None:
    convolution = top("convolution", "statistics", "row", limit="fp32", zone="compute-bound")
    norm, product = top("row", "pointwise"), top("product", limit="shared", zone="compute-bound")
    assert {"winograd", "tensor-cores"} <= convolution
    assert {"welford", "register-cache", "block-per-row"} <= norm
    assert {"xor-swizzle", "ldmatrix", "register-block"} <= product
    assert "flash-attention" not in convolution | norm | product
    assert not norm & product


def test_cards_of_other_operators_come_last() -> None:
    ranked = rank_cards(DECK, CardQuery(A100.capability, "fp32", frozenset({"row"}), "dram", "memory-bound"))
    fitting = [not card.families or "row" in card.families for card in ranked]
    assert fitting == sorted(fitting, reverse=True)


def test_all_usable_cards_are_ranked_and_no_others() -> None:
    for spec, precision in ((A100, "bf16"), (V100, "fp32")):
        ranked = rank_cards(DECK, CardQuery(spec.capability, precision))
        assert set(ranked) == set(DECK.usable(capability=spec.capability, precision=precision))


def test_the_limit_and_the_parts_of_the_time_decide() -> None:
    assert relevance(DECK["warp-shuffle"], "shared", "memory-bound") == 1.5
    assert relevance(DECK["warp-shuffle"], "dram", "compute-bound") == 0.0
    half = CardQuery(8.0, "fp32", limit="latency", parts=(("latency", 0.6), ("shared", 0.4)))
    assert promise(DECK["shared-padding"], half) > promise(DECK["shared-padding"], replace(half, parts=()))


def test_what_paid_on_similar_tasks_rises() -> None:
    paid = record("rows", speedup=2.0, strategy=Strategy((Move.of("constant-memory"), Move.of("cache-hint"))))
    bare = CardQuery(8.0, "fp32", frozenset({"row"}), "latency", "latency-bound")
    first, later = replace(bare, similar=(paid,)), replace(bare, similar=(record("a", speedup=1.0), paid))
    card = DECK["cache-hint"]
    assert promise(card, first) > promise(card, later) > promise(card, bare)
    lost = replace(bare, similar=(replace(paid, speedup=0.7),))
    assert promise(card, lost) == promise(card, bare)


def test_without_guidance_only_operators_and_gains_count() -> None:
    task = Task(
        "softmax", "", TASK.arguments, TASK.outputs, (Op("s", "aten.softmax.int", ("x",), (), TensorSpec((8,))),)
    )
    query = card_query(task, A100, None, Timing(1e-3, "modelled", "d", "dram", (("dram", 1e-3),)))
    assert (query.limit, query.zone, query.parts, query.families) == ("", "", (), {"row"})
    told = card_query(
        task, A100, Guidance("memory-bound", "dram", 2.0, ""), Timing(1.0, "modelled", "d", "", (("l2", 0.5),))
    )
    assert (told.limit, told.zone, told.parts) == ("dram", "memory-bound", (("l2", 0.5),))


@pytest.mark.parametrize("card", DECK.values(), ids=DECK)
def test_every_card_is_among_the_first_for_some_task(card: Card) -> None:
    """Else nobody would ever read it."""
    families = card.families or ("row", "pointwise", "product", "convolution")
    found = set()
    for family in families:
        for limit in card.relieves:
            for zone in card.zones:
                for precision in card.precisions or ("fp32", "bf16"):
                    found |= top(family, limit=limit, zone=zone, precision=precision)
    assert card.name in found


def test_records_of_the_past_are_read_in_today_s_units() -> None:
    old = Strategy((Move.of("vector-load", "wide", width=4), Move.of("unroll", factor=2)), "text")
    assert current_strategy(old) == Strategy(
        (Move.of("vector-load", "wide", bytes=16), Move.of("unroll", factor=2)), "text"
    )
