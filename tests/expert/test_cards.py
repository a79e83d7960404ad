"""Every card does what it says: its kernel is right, and what it is about moves the right way."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from card_case import CardCase

from cupilot.contracts import Brief, Device
from cupilot.expert import Expert
from cupilot.expert.recipe import load_recipes
from cupilot.records import Evaluation, Kernel
from cupilot.strategies import load_deck, parse
from cupilot.tasks.load import task_from_source
from evaluating import Evaluate, evaluator_on

FOLDER = Path(__file__).with_name("card_cases")
CASES: list[CardCase] = [
    case for file in sorted(FOLDER.glob("[a-z]*.py")) for case in import_module(f"card_cases.{file.stem}").CASES
]
DECK = load_deck()


def test_every_card_is_realised_by_a_recipe() -> None:
    realised = {move.card for recipe in load_recipes() for move in recipe.moves}
    assert sorted(set(DECK) - realised) == []


def test_every_card_has_a_case() -> None:
    assert sorted(set(DECK) - {case.card for case in CASES}) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.card)
def test_a_card_does_what_it_says(device: Device, case: CardCase) -> None:
    assert case.card in parse(case.with_card, DECK).cards
    assert case.card not in parse(case.without, DECK).cards
    evaluator = evaluator_on(device, seed=3, timeout_s=300.0)
    without, with_card = (evaluated(device, evaluator, case, moves) for moves in (case.without, case.with_card))
    before, after = case.value(without), case.value(with_card)
    assert before > 0
    assert case.holds(after / before), f"{before:.6g} without, {after:.6g} with: {after / before:.3f}"


def evaluated(device: Device, evaluator: Evaluate, case: CardCase, moves: str) -> Evaluation:
    task = task_from_source(case.task, f"{case.card}-task", case.precision, where=case.card)
    kernel = Expert().translate(Brief(task, device.spec), parse(moves, DECK))
    assert isinstance(kernel, Kernel), kernel
    evaluation = evaluator(task, kernel)
    assert evaluation.failure is None, evaluation.failure
    assert evaluation.checks
    return evaluation
