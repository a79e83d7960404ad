"""Ablations on paper: the arithmetic of the comparison, and crossing without strategies."""

from __future__ import annotations

from random import Random

import pytest

from cupilot.contracts import Brief
from cupilot.records import Individual, Kernel, Strategy
from cupilot.runs.ablation import VARIANTS, CodeLevel, Trace, agents_of, summarize
from cupilot.strategies import load_deck, parse
from cupilot.testing.samples import EVALUATION, SPEC, TASK

DECK = load_deck()


def trace(variant: str, *best_s: float, seed: int = 0) -> Trace:
    return Trace("task", variant, seed, best_s, first_epoch=2)


def test_variants_are_compared_with_the_full_system_of_the_same_seed() -> None:
    traces = [
        trace("full", 10.0, 4.0, 2.0, 1.0),
        trace("no roofline", 10.0, 8.0, 8.0, 2.0),
        trace("no pool", 10.0, 9.0, 1.04, 1.0),
        trace("code-level crossover", 10.0, 4.0, 1.0, 0.5),
        trace("no pool, no roofline", 10.0, 9.0, 9.0, 1.0),
        trace("no pool, code-level crossover", 10.0, 9.0, 9.0, 9.0),
        trace("from nothing", 10.0, 10.0, 5.0, 1.0),
        trace("from nothing, no roofline", 10.0, 10.0, 10.0, 2.0),
        trace("from nothing, code-level crossover", 10.0, 10.0, 10.0, 1.0),
    ]
    rows = {row.variant: row for row in summarize(traces)}
    assert (rows["full"].needed, rows["full"].needed_ratio, rows["full"].reached) == (3, 1.0, 1.0)
    # never reached: one more than there were
    assert (rows["no roofline"].needed, rows["no roofline"].reached) == (4, 0.0)
    assert rows["no roofline"].one_epoch_ratio == pytest.approx(2.0)
    assert rows["no roofline"].two_epochs_ratio == pytest.approx(2.0)
    # 1.04 is within 95 % of the gain
    assert rows["no pool"].needed == 2
    assert rows["no pool"].needed_ratio == pytest.approx(2 / 3)
    assert rows["code-level crossover"].two_epochs_ratio == pytest.approx(0.5)
    # against the variant without a pool, which needed two
    assert rows["no pool, no roofline"].against == "no pool"
    assert rows["no pool, no roofline"].needed_ratio == pytest.approx(3 / 2)
    assert rows["no pool, code-level crossover"].two_epochs_ratio == pytest.approx(9.0)
    assert rows["from nothing, no roofline"].two_epochs_ratio == pytest.approx(2.0)


def test_crossing_at_the_level_of_code_knows_nothing_of_needs() -> None:
    expert = CodeLevel()
    parents = tuple(
        Individual(number, 0, "initial", parse(text, DECK), Kernel(""), EVALUATION)
        for number, text in enumerate(("vector-load(bytes=16)\nunroll(factor=2)", "vector-load(bytes=8)\ngrid-stride"))
    )
    brief = Brief(TASK, SPEC, None, parents)
    children = [expert.cross(brief, Random(seed)) for seed in range(40)]
    assert children == [expert.cross(brief, Random(seed)) for seed in range(40)]
    widths = {child.moves and child.move("vector-load").get("bytes") for child in children}  # type: ignore[union-attr]
    assert widths == {8, 16}
    assert {len(child.moves) for child in children} == {1, 2, 3}
    assert isinstance(expert.cross(Brief(TASK, SPEC, None, parents[:1]), Random(0)), Strategy)


def test_from_nothing_no_starting_point_is_known() -> None:
    known, drawn = (agents_of(next(v for v in VARIANTS if v.name == name)) for name in ("no pool", "from nothing"))
    brief = Brief(TASK, SPEC, None, ())
    starts = known.space(TASK).starts("")
    assert starts
    assert drawn.space(TASK).starts("") == ()
    first = drawn.initialize(brief, 4, Random(1))
    assert len(first) == 4
    assert {move.reason for strategy in first for move in strategy.moves} == {"covers the space"}
