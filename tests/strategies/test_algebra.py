from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cupilot.errors import DataError
from cupilot.records import Card, Move, Parameter, Strategy
from cupilot.strategies import Deck, canonical, compatible, diff, distance, load_deck, merge, order, parse, same

DECK = load_deck()
WHERE = {"capability": 8.0, "precision": "fp32"}


def tile(m: int = 64, reason: str = "") -> Move:
    return Move.of("shared-tile", reason, block_m=m, block_n=64, block_k=16)


BLOCKED = Move.of("register-block", thread_m=4, thread_n=4)


@some.composite
def moves(draw: some.DrawFn, deck: Deck = DECK) -> Move:
    card = deck[draw(some.sampled_from(list(deck)))]
    reason = " ".join(draw(some.text("abc #(),=\"'→", max_size=12)).split())
    return Move.of(card.name, reason, **{p.name: draw(some.sampled_from(p.choices)) for p in card.parameters})


texts = some.lists(some.text("abc #", max_size=8).map(lambda s: " ".join(s.split())), max_size=3).map("\n".join)


@some.composite
def strategies(draw: some.DrawFn) -> Strategy:
    return Strategy(tuple(draw(some.lists(moves(), max_size=6, unique_by=lambda move: move.card))))


# --- rules -----------------------------------------------------------------------------------


def test_the_empty_strategy_is_always_compatible() -> None:
    assert compatible(Strategy(), DECK, **WHERE) == ()


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        (Strategy((BLOCKED,)), "register-block needs shared-tile"),
        (Strategy((Move.of("block-per-row"), Move.of("warp-per-row"), Move.of("warp-shuffle"))), "excludes"),
        (Strategy((Move.of("fast-math-exp"),)), "not for fp32"),
        (Strategy((Move.of("unroll"),)), "needs a value for factor"),
        (Strategy((Move.of("unroll", factor=3),)), "factor=3 is none of"),
        (Strategy((Move.of("unroll", factor=True),)), "factor=True is none of"),
        (Strategy((Move.of("unroll", factor=2, depth=1),)), "no parameter depth"),
    ],
)
def test_each_rule_of_the_cards_is_named(strategy: Strategy, reason: str) -> None:
    reasons = compatible(strategy, DECK, **WHERE)
    assert len(reasons) == 1
    assert reason in reasons[0]


def test_capability_and_precision_are_asked_for() -> None:
    deck = Deck([Card("new", "New", "Text.", ("between",), ("l2",), min_capability=9.0)])
    assert compatible(Strategy((Move.of("new"),)), deck, capability=8.0, precision="fp32")
    assert not compatible(Strategy((Move.of("new"),)), deck, capability=9.0, precision="fp32")
    assert not compatible(Strategy((Move.of("fast-math-exp"),)), DECK, capability=8.0, precision="fp16")


def test_a_move_without_a_card_has_no_rules() -> None:
    assert compatible(Strategy((Move.of("my-own-trick", depth=7),)), DECK, **WHERE) == ()


# --- merging ---------------------------------------------------------------------------------


@given(strategies(), strategies(), some.integers(0, 99))
def test_a_merge_obeys_needs_and_excludes(a: Strategy, b: Strategy, seed: int) -> None:
    rng = Random(seed)
    merged = merge(a, b, DECK, lambda move: rng.random())
    reasons = compatible(merged, DECK, capability=8.0, precision="fp16")
    assert all("not for fp16" in reason for reason in reasons)  # which cards a precision allows is not merge's business
    for move in merged.moves:
        from_parents = [m for m in (a.move(move.card), b.move(move.card)) if m is not None]
        assert move in from_parents or move.reason.startswith("needed by")


@given(strategies(), some.integers(0, 99))
def test_merging_a_legal_strategy_with_itself_changes_nothing(a: Strategy, seed: int) -> None:
    rng = Random(seed)
    legal = merge(a, Strategy(), DECK, lambda move: rng.random())
    assert merge(legal, legal, DECK, lambda move: rng.random()) == legal


def test_the_preferred_of_two_excluding_moves_stays() -> None:
    shuffle = Move.of("warp-shuffle")
    a, b = (Strategy((Move.of(card), shuffle)) for card in ("block-per-row", "warp-per-row"))
    for winner in ("block-per-row", "warp-per-row"):
        merged = merge(a, b, DECK, lambda move, winner=winner: float(move.card == winner))
        assert merged.cards == {winner, "warp-shuffle"}


def test_conflicting_parameters_go_by_preference_and_then_to_the_first() -> None:
    a, b = Strategy((tile(64),)), Strategy((tile(128),))
    assert merge(a, b, DECK, lambda move: float(str(move.get("block_m")))).moves == (tile(128),)
    assert merge(a, b, DECK, lambda move: 0.0).moves == (tile(64),)


def test_missing_needs_are_pulled_in_from_the_other_parent_or_by_default() -> None:
    from_parent = merge(Strategy((BLOCKED,)), Strategy((tile(128),)), DECK, lambda move: 0.0)
    assert from_parent.moves == (BLOCKED, tile(128))
    by_default = merge(Strategy((BLOCKED,)), Strategy(), DECK, lambda move: 0.0)
    pulled = by_default.move("shared-tile")
    assert pulled is not None
    assert pulled.get("block_m") == DECK["shared-tile"].parameter("block_m").default


def test_a_move_is_dropped_when_what_it_needs_is_excluded() -> None:
    deck = Deck(
        [
            Card("base", "B", "Text.", ("between",), ("l2",)),
            Card("rival", "R", "Text.", ("between",), ("l2",), excludes=("base",)),
            Card("top", "T", "Text.", ("between",), ("l2",), needs=("base",), parameters=(Parameter("n", (1,)),)),
        ]
    )
    a, b = Strategy((Move.of("top", n=1),)), Strategy((Move.of("rival"),))
    assert merge(a, b, deck, lambda move: float(move.card == "rival")).cards == {"rival"}
    assert merge(a, b, deck, lambda move: float(move.card == "top")).cards == {"base", "top"}


# --- comparing -------------------------------------------------------------------------------


@given(strategies(), strategies())
def test_distance_is_symmetric_bounded_and_zero_only_for_the_same_moves(a: Strategy, b: Strategy) -> None:
    d = distance(a, b)
    assert 0.0 <= d <= 1.0
    assert d == distance(b, a)
    assert (d == 0.0) == same(a, b)
    assert distance(a, Strategy(tuple(reversed(a.moves)))) == 0.0


def test_parameters_count_partly() -> None:
    near = distance(Strategy((tile(64),)), Strategy((tile(128),)))
    far = distance(Strategy((tile(64),)), Strategy((BLOCKED,)))
    assert 0.0 < near < far == 1.0
    assert distance(Strategy(), Strategy()) == 0.0


@given(strategies(), strategies())
def test_diff_leads_from_one_to_the_other(a: Strategy, b: Strategy) -> None:
    difference = diff(a, b)
    table = {move.card: move for move in a.moves}
    for move in difference.dropped:
        del table[move.card]
    table.update({new.card: new for _, new in difference.changed})
    table.update({new.card: new for new in difference.added})
    assert same(Strategy(tuple(table.values())), b)
    assert bool(difference) == (not same(a, b))
    assert len(str(difference).splitlines()) == len(difference.added + difference.dropped + difference.changed)


# --- text ------------------------------------------------------------------------------------


def test_canonical_text_is_as_people_write_it() -> None:
    strategy = Strategy((tile(128, "fewer bytes"), Move.of("coalesce")), "tiles first")
    assert canonical(strategy) == (
        "# tiles first\ncoalesce\nshared-tile(block_k=16, block_m=128, block_n=64)  # fewer bytes"
    )


@given(strategies(), texts)
def test_parse_is_the_inverse_of_canonical(strategy: Strategy, text: str) -> None:
    whole = order(Strategy(strategy.moves, text))
    assert parse(canonical(whole), DECK) == whole


@given(
    some.dictionaries(
        some.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True),
        some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False) | some.text(max_size=8),
        max_size=3,
    )
)
def test_invented_moves_with_any_values_survive_the_round_trip(parameters: dict[str, bool | int | float | str]) -> None:
    strategy = Strategy((Move("my-own-trick", tuple(sorted(parameters.items())), "why"),))
    assert parse(canonical(strategy), DECK, invent=True) == strategy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("coalesce\nshared tile", "line 2: not of the form"),
        ("coalesce\n\nunrol(factor=2)", "line 3: there is no card 'unrol'; did you mean unroll"),
        ("unroll(factor)", "line 1: cannot read the parameters at 'factor'"),
        ("unroll(factor=two)", "line 1: 'two' is no number"),
        ("unroll(factor=null)", "line 1: 'null' is no number"),
        ("unroll(depth=2)", "line 1: unroll has no parameter 'depth'"),
        ("unroll(factor=2, factor=4)", "line 1: factor is given twice"),
        ("coalesce\ncoalesce", "line 2: coalesce is named twice"),
        ("unroll(factor=2) and more", "line 1: not of the form"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message.replace("(", r"\(")):
        parse(text, DECK)
