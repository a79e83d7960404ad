from dataclasses import replace
from pathlib import Path

import pytest

from cupilot.errors import DataError
from cupilot.records import Card, Evidence, Parameter
from cupilot.strategies import LIMITS, ZONES, Deck, load_deck

CARD = Card("alpha", "Alpha", "Text.", zones=("between",), relieves=("l2",))

FILE = """
name = "alpha"
title = "Alpha"
text = "Text."
zones = ["between"]
relieves = ["l2"]
"""


def test_the_shipped_deck_speaks_of_every_zone_and_of_the_limits_the_recipes_meet() -> None:
    deck = load_deck()
    assert len(deck) >= 14
    assert {zone for card in deck.values() for zone in card.zones} == set(ZONES)
    assert {limit for card in deck.values() for limit in card.relieves} <= set(LIMITS)
    for card in deck.values():
        assert len(card.text.split()) >= 30, f"{card.name}: a paragraph is more than {card.text!r}"
        assert "\n" not in card.text


def test_cards_are_in_alphabetical_order() -> None:
    assert list(load_deck()) == sorted(load_deck())


def test_an_unknown_card_is_answered_with_near_ones() -> None:
    with pytest.raises(DataError, match="shared-tile"):
        load_deck().card("shared-tiles")
    with pytest.raises(DataError, match="known cards are alpha"):
        Deck([CARD]).card("zzz")


@pytest.mark.parametrize(
    ("card", "message"),
    [
        (replace(CARD, needs=("beta",)), "no other card 'beta'"),
        (replace(CARD, excludes=("alpha",)), "no other card 'alpha'"),
        (replace(CARD, zones=("fast",)), "'fast' is none of"),
        (replace(CARD, zones=()), "at least one zone"),
        (replace(CARD, relieves=("tensors",)), "'tensors' is none of"),
        (replace(CARD, precisions=("fp8",)), "'fp8' is none of"),
        (replace(CARD, name="Alpha Beta"), "lower-case words"),
        (replace(CARD, parameters=(Parameter("n", ()),)), "choices must be"),
        (replace(CARD, parameters=(Parameter("n", (1, "two")),)), "choices must be"),
        (replace(CARD, parameters=(Parameter("N!", (1,)),)), "a parameter is lower-case"),
        (replace(CARD, parameters=(Parameter("n", (1,)), Parameter("n", (2,)))), "named twice"),
        (replace(CARD, evidence=Evidence()), "at least one source pattern or counter"),
        (replace(CARD, evidence=Evidence(("(",))), "not a regular expression"),
        (replace(CARD, evidence=Evidence(("float{width}",))), "no parameter 'width'"),
        (replace(CARD, evidence=Evidence(("<<<",), block_size="threads")), "no parameter 'threads'"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(card: Card, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Deck([card])


def test_usable_cards_are_those_that_device_and_precision_allow() -> None:
    cards = [CARD, replace(CARD, name="beta", min_capability=8.0), replace(CARD, name="gamma", precisions=("fp16",))]
    found = {(c, p): [card.name for card in Deck(cards).usable(capability=c, precision=p)]
             for c in (7.5, 8.0) for p in ("fp32", "fp16")}  # fmt: skip
    assert found == {
        (7.5, "fp32"): ["alpha"],
        (7.5, "fp16"): ["alpha", "gamma"],
        (8.0, "fp32"): ["alpha", "beta"],
        (8.0, "fp16"): ["alpha", "beta", "gamma"],
    }


def test_a_card_cannot_need_what_it_excludes() -> None:
    beta = replace(CARD, name="beta", needs=("alpha",), excludes=("alpha",))
    with pytest.raises(DataError, match="both needed and excluded"):
        Deck([CARD, beta])


def test_two_cards_of_one_name_are_refused() -> None:
    with pytest.raises(DataError, match="two cards of this name"):
        Deck([CARD, CARD])


def test_exclusion_is_mutual_even_if_one_card_says_it() -> None:
    deck = Deck([CARD, replace(CARD, name="beta", excludes=("alpha",))])
    assert deck.excluded("alpha", "beta")
    assert deck.excluded("beta", "alpha")
    assert not deck.excluded("alpha", "invented")


def test_a_folder_is_read_strictly(tmp_path: Path) -> None:
    (tmp_path / "alpha.toml").write_text(FILE)
    assert list(load_deck(tmp_path)) == ["alpha"]
    (tmp_path / "alpha.toml").write_text(FILE + "colour = 1\n")
    with pytest.raises(DataError, match="unknown key 'colour'"):
        load_deck(tmp_path)
    (tmp_path / "alpha.toml").rename(tmp_path / "beta.toml")
    (tmp_path / "beta.toml").write_text(FILE)
    with pytest.raises(DataError, match="same name"):
        load_deck(tmp_path)
    (tmp_path / "beta.toml").write_text("name = ")
    with pytest.raises(DataError, match=r"beta\.toml"):
        load_deck(tmp_path)


def test_an_empty_folder_is_no_deck(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no cards"):
        load_deck(tmp_path)
