"""A card is one file: a toy card is proposed, shown in prompts, and its evidence is checked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from cupilot.agents import LlmAgents
from cupilot.contracts import Brief
from cupilot.llm import Scripted
from cupilot.records import Counter, Guidance, Kernel, Move, Profile, Strategy
from cupilot.strategies import load_deck
from cupilot.testing.samples import EVALUATION, LAUNCH, SPEC, TASK

CARD = """
name = "zigzag-walk"
title = "Rows in a zigzag"
text = "Walk every other row backwards, so that its end is still in the cache."
zones = ["memory-bound"]
relieves = ["dram"]

[[parameters]]
name = "rows"
choices = [2, 4]
text = "rows per turn"

[evidence]
source = ['zigzag<{rows}>']
counters = ["zigzag_turns"]
"""
BRIEF = Brief(TASK, SPEC, Guidance("memory-bound", "dram", 2.0, "Aim at dram."))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "zigzag-walk.toml").write_text(CARD, encoding="utf-8")
    return tmp_path


def agents_with(folder: Path, *replies: object) -> tuple[LlmAgents, Scripted]:
    model = Scripted(json.dumps(reply) for reply in replies)
    return LlmAgents(model, deck=load_deck(folder)), model


def test_a_new_card_is_shown_and_proposed(folder: Path) -> None:
    agents, model = agents_with(folder, {"strategies": []})
    strategies = agents.initialize(BRIEF, 2, Random(1))
    assert {strategy.cards for strategy in strategies} == {frozenset({"zigzag-walk"})}
    assert {strategy.moves[0].get("rows") for strategy in strategies} == {2, 4}
    prompt = model.requests[0].messages[1].text
    assert "Walk every other row backwards" in prompt
    assert "rows per turn" in prompt


@pytest.mark.parametrize(
    ("source", "counter", "stays"),
    [
        ("zigzag<2>(x);", 0.0, True),
        ("zigzag<4>(x);", 0.0, False),  # another parameter than claimed
        ("// zigzag<2>(x);", 0.0, False),
        ("walk(x);", 3.0, True),
    ],
)
def test_the_evidence_of_a_new_card_is_checked(folder: Path, source: str, counter: float, stays: bool) -> None:
    claim = {"moves": [{"move": "zigzag-walk(rows=2)", "quote": source}], "text": ""}
    agents, _ = agents_with(folder, claim)
    launch = replace(LAUNCH, counters=(Counter("zigzag_turns", counter, "PTX"),))
    evaluation = replace(EVALUATION, profile=Profile("sample", (launch,)))
    strategy = Strategy((Move.of("zigzag-walk", rows=2),))
    aligned = agents.align(BRIEF, Kernel(f"__global__ void k() {{ {source}\n}}"), strategy, evaluation)
    assert aligned.cards == ({"zigzag-walk"} if stays else frozenset())
