from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from pool_samples import QUERY, SOFTMAX, fill, found, record, unroll

from cupilot.errors import DataError, StoreError, UserError
from cupilot.records import Card, Move, Strategy, from_plain, to_plain
from cupilot.records.pool import PoolRecord, Sizes
from cupilot.strategies import Deck, compatible, load_deck
from cupilot.strategies.pool import Pool, PoolQuery, open_pool
from cupilot.strategies.pool_cards import MOST_CARDS, proven_cards
from cupilot.strategies.pool_lines import line_of

# --- records ---------------------------------------------------------------------------------


def test_a_record_round_trips_through_json() -> None:
    assert from_plain(PoolRecord, json.loads(json.dumps(to_plain(SOFTMAX)))) == SOFTMAX
    product = replace(SOFTMAX, sizes=Sizes(9, None, (1, 2, 3)), speedup=None)
    assert from_plain(PoolRecord, json.loads(line_of(product))) == product


def test_the_id_is_that_of_problem_and_moves() -> None:
    reworded = replace(SOFTMAX.strategy, moves=SOFTMAX.strategy.moves[::-1], text="other words")
    assert replace(SOFTMAX, strategy=reworded, time_s=1.0, kernel="f" * 16).id == SOFTMAX.id
    for changes in ({"device": "cuda:0"}, {"source": "measured"}, {"precision": "fp16"}, {"strategy": Strategy()}):
        assert replace(SOFTMAX, **changes).id != SOFTMAX.id  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{"gain": 0.0}, {"gain": float("inf")}, {"time_s": -1.0}, {"source": "guessed"}])
def test_impossible_numbers_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"positive|none of"):
        replace(SOFTMAX, **changes)  # type: ignore[arg-type]


# --- ranking ---------------------------------------------------------------------------------

tag_sets = some.sampled_from(
    [("log_softmax",), ("relu",), ("softmax", "relu"), ("matmul",), ("sum", "softmax"), ("odd",)]
)
row_lengths = some.integers(2, 20).map(lambda exponent: 1 << exponent)


@given(tag_sets, row_lengths)
def test_the_same_operators_beat_all_others(operators: tuple[str, ...], row: int) -> None:
    with open_pool(None, seed=False) as pool:
        near = record("near", operators=operators, gain=99.0)
        far = record(
            "far", move=unroll(2), sizes=Sizes(1 << 30, row=row), zone="compute-bound", limit="fp32", gain=1.01
        )
        fill(pool, near, far)
        assert found(pool)[0] == "far"


@given(row_lengths, row_lengths)
def test_nearer_shapes_beat_farther_ones(one: int, other: int) -> None:
    with open_pool(None, seed=False) as pool:
        fill(pool, record("one", sizes=Sizes(1 << 22, row=one)))
        fill(pool, record("other", move=unroll(2), sizes=Sizes(1 << 22, row=other)))
        apart = {name: max(row, 4096) // min(row, 4096) for name, row in (("one", one), ("other", other))}
        if apart["one"] != apart["other"]:
            assert found(pool)[0] == min(apart, key=apart.__getitem__)


def test_nearer_products_beat_farther_ones(pool: Pool) -> None:
    for number, k in enumerate((64, 4096, 1024)):
        sizes = Sizes(1 << 20, product=(1024, 1024, k))
        fill(pool, record(f"k{k}", move=unroll(2 + number), operators=("matmul",), sizes=sizes))
    query = replace(QUERY, operators=("matmul",), sizes=Sizes(1 << 20, product=(1024, 1024, 2000)))
    assert found(pool, query) == ["k1024", "k4096", "k64"]


def test_zone_and_limit_decide_between_equal_shapes(pool: Pool) -> None:
    fill(pool, record("both", zone="latency-bound", limit="latency"), record("one", move=unroll(2), limit="l2"))
    fill(pool, record("none", move=unroll(4)))
    assert found(pool) == ["none", "one", "both"]


def test_words_decide_when_nothing_else_does(pool: Pool) -> None:
    fill(pool, record("first", gain=9.0), record("second", move=unroll(2), text="uses the zebra trick"))
    assert found(pool) == ["first", "second"]
    assert found(pool, replace(QUERY, text="a Zebra!")) == ["second", "first"]
    assert found(pool, PoolQuery(text="zebra")) == ["second"]


def test_the_best_of_a_task_comes_before_its_runner_up(pool: Pool) -> None:
    fill(pool, record(time_s=2e-5, gain=2.0), record(move=unroll(2), time_s=1e-5, gain=4.0))
    assert [match.record.gain for match in pool.similar(QUERY, 2)] == [4.0, 2.0]


def test_the_best_of_several_tasks_come_before_runner_ups(pool: Pool) -> None:
    for factor in (2, 4, 8):
        fill(pool, record("near", move=unroll(factor), time_s=1e-5 * factor))
    fill(pool, record("next", move=unroll(16), sizes=Sizes(1 << 22, row=6144)))
    assert found(pool) == ["near", "next", "near", "near"]


def test_rows_that_vectors_divide_are_near_each_other(pool: Pool) -> None:
    fill(pool, record("odd", sizes=Sizes(1 << 22, row=4097)))
    fill(pool, record("even", move=unroll(2), sizes=Sizes(1 << 22, row=5000)))
    assert found(pool) == ["even", "odd"]


def test_products_with_as_many_results_are_near(pool: Pool) -> None:
    flat = record("flat", move=unroll(2), operators=("matmul",), sizes=Sizes(1 << 24, product=(512, 512, 512)))
    cube = record("cube", move=unroll(4), operators=("matmul",), sizes=Sizes(1 << 24, product=(2048, 2048, 4096)))
    fill(pool, flat, cube)
    query = replace(QUERY, operators=("matmul",), sizes=Sizes(1 << 24, product=(64, 4096, 4096)))
    assert found(pool, query) == ["flat", "cube"]


def test_no_two_matches_have_the_same_moves(pool: Pool) -> None:
    fill(pool, record("near"), record("far", sizes=Sizes(1 << 22, row=64)), record("other", move=unroll(2)))
    assert sorted(found(pool)) == ["near", "other"]
    assert len(found(pool, count=1)) == 1
    assert found(pool, count=0) == []


def test_the_records_of_a_task_can_be_left_out(pool: Pool) -> None:
    other = replace(SOFTMAX, task="other", proof=replace(SOFTMAX.proof, task="0" * 64))
    fill(pool, SOFTMAX, other)
    assert len(found(pool)) == 1, "the same moves are given once"
    besides = pool.similar(QUERY, 10, besides=SOFTMAX.proof.task)
    assert [match.record.task for match in besides] == ["other"], "also when both have the same moves"


def test_strangers_are_not_similar(pool: Pool) -> None:
    fill(pool, record("product", operators=("matmul",)))
    assert found(pool) == []
    assert found(pool, replace(QUERY, operators=("log_softmax",))) == []
    assert found(pool, replace(QUERY, operators=())) == ["product"]
    assert found(pool, PoolQuery()) == ["product"]


def test_the_order_does_not_depend_on_the_order_of_adding() -> None:
    records = [record(f"t{n}", move=unroll(n), sizes=Sizes(1 << 22, row=64 << (n % 3))) for n in range(1, 9)]
    orders = []
    for listed in (records, records[::-1]):
        with open_pool(None, seed=False) as pool:
            fill(pool, *listed)
            orders.append(found(pool))
    assert orders[0] == orders[1]
    assert len(orders[0]) == 8


def test_why_is_a_clause(pool: Pool) -> None:
    fill(pool, record("rows", sizes=Sizes(1 << 22, row=1024)))
    assert pool.similar(QUERY, 1)[0].why == "gained 1.50x over PyTorch on rows: the same operators, 2.0 octaves away"


HOSTILE = [
    '"',
    "'",
    "' OR 1=1 --",
    "a AND OR NOT NEAR(",
    "text : *",
    "^x {y} + -",
    "\x00\x01",
    "𝕊 ＂",
    ")" * 50,
    "\\",
    "%_",
]


@settings(derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some.one_of(some.sampled_from(HOSTILE), some.text()))
def test_odd_characters_are_only_words(pool: Pool, text: str) -> None:
    pool.add(record("odd", text="a plain text"))
    query = PoolQuery(("softmax", text), text, text, None, text, text, text, text)
    assert found(pool, query) == ["odd"]
    for name in (text, text[:1]):
        if name not in SOFTMAX.id:
            with pytest.raises(UserError, match="has no record"):
                pool.find(name)


@pytest.mark.parametrize("text", [*HOSTILE, "[/red] {markup}", "\x1b[31m", "line\u2028break\r\n"])
def test_odd_texts_are_kept_as_they_are(pool: Pool, tmp_path: Path, text: str) -> None:
    odd = record(text=text, strategy=replace(SOFTMAX.strategy, text=text), task=text)
    fill(pool, odd)
    pool.export_lines(tmp_path / "out.jsonl")
    with open_pool(None, seed=False) as other:
        assert other.import_lines(tmp_path / "out.jsonl") == 1
        assert other.records() == [odd]


# --- keeping ---------------------------------------------------------------------------------


def test_records_last(path: Path) -> None:
    with open_pool(path, seed=False) as pool:
        fill(pool, SOFTMAX)
    with open_pool(path, seed=False) as pool:
        assert pool.records() == [SOFTMAX]
        assert len(pool) == 1


def test_the_better_of_one_task_and_strategy_stays(pool: Pool) -> None:
    fill(pool, SOFTMAX)
    assert not pool.add(SOFTMAX)
    assert not pool.add(replace(SOFTMAX, time_s=2e-5, gain=2.0))
    better = replace(SOFTMAX, time_s=5e-6, gain=8.0, text="now with zebras")
    assert pool.add(better)
    assert pool.records() == [better]
    assert found(pool, PoolQuery(text="zebras")) == ["softmax"], "the index follows"
    assert found(pool, PoolQuery(text="rows zebras")) == ["softmax"]


def test_forget_by_id_beginning_and_kernel(pool: Pool) -> None:
    one, two, three = record("one"), record("two", kernel="a" * 16), record("three", kernel="a" * 16)
    fill(pool, one, two, three)
    with pytest.raises(UserError, match="names 2 records"):
        pool.find("a" * 16)
    assert pool.find(one.id[:6]) == one
    assert pool.forget(one.id[:6]) == (one.id,)
    assert pool.forget("a" * 16) == tuple(sorted((two.id, three.id)))
    assert len(pool) == 0
    assert found(pool) == []
    with pytest.raises(UserError, match="has no record"):
        pool.forget(one.id)
    assert pool.add(one), "it may be found again"


@pytest.mark.parametrize("name", ["", "%", "a"])
def test_a_name_that_says_too_little_forgets_nothing(pool: Pool, name: str) -> None:
    fill(pool, SOFTMAX)
    with pytest.raises(UserError, match="has no record"):
        pool.forget(name)
    assert len(pool) == 1


def test_a_kernel_that_failed_later_never_comes_back(pool: Pool, tmp_path: Path) -> None:
    fill(pool, SOFTMAX, record("other", kernel="f" * 16))
    pool.export_lines(tmp_path / "out.jsonl")
    assert pool.drop_failed(SOFTMAX.kernel) == (SOFTMAX.id,)
    assert pool.drop_failed(SOFTMAX.kernel) == ()
    assert not pool.add(replace(SOFTMAX, time_s=1e-7))
    assert pool.import_lines(tmp_path / "out.jsonl") == 0
    assert [one.task for one in pool.records()] == ["other"]


def test_import_and_export(pool: Pool, tmp_path: Path) -> None:
    fill(pool, record("one"), record("two", move=unroll(2)), record("two", move=unroll(4), time_s=2e-5))
    file = tmp_path / "out.jsonl"
    assert pool.export_lines(file) == 3
    with open_pool(tmp_path / "other.sqlite", seed=False) as other:
        assert other.import_lines(file) == 3
        assert other.import_lines(file) == 0
        assert other.records() == pool.records()
        again = tmp_path / "again.jsonl"
        other.export_lines(again)
        assert again.read_bytes() == file.read_bytes()


GOOD = to_plain(SOFTMAX)
BAD = {
    "not JSON": ("{", "line 3"),
    "a number": ("17", "expected a table"),
    "unknown key": (json.dumps(GOOD | {"colour": 1}), "unknown key 'colour'"),
    "missing key": (json.dumps({key: value for key, value in GOOD.items() if key != "gain"}), "'gain' is missing"),
    "wrong type": (json.dumps(GOOD | {"task": 7}), "expected str"),
    "infinite": (json.dumps(GOOD | {"gain": float("inf")}), "Infinity is not a number"),
    "overflowing": (json.dumps(GOOD).replace('"gain": 4.0', '"gain": 1e999'), "positive number"),
    "zone": (json.dumps(GOOD | {"zone": "twilight"}), "'twilight' is none of memory-bound"),
    "limit": (json.dumps(GOOD | {"limit": "sky"}), "'sky' is none of"),
    "precision": (json.dumps(GOOD | {"precision": "fp1"}), "'fp1' is none of"),
    "tag": (json.dumps(GOOD | {"operators": ["a b"]}), "'a b' is not a tag"),
    "no moves": (json.dumps(GOOD | {"strategy": {"moves": [], "text": ""}}), "no moves"),
    "card": (json.dumps(GOOD | {"strategy": {"moves": [{"card": "rm -rf /"}]}}), "not a card's name"),
    "parameter": (
        json.dumps(GOOD | {"strategy": {"moves": [{"card": "unroll", "parameters": [["a", 1], ["a", 2]]}]}}),
        "without a proper name, or twice",
    ),
    "twice": (json.dumps(GOOD | {"strategy": {"moves": [{"card": "unroll"}] * 2}}), "at most once"),
    "huge size": (json.dumps(GOOD | {"sizes": {"elements": 10**30}}), "nothing is larger"),
    "negative size": (json.dumps(GOOD | {"sizes": {"elements": -1}}), "must be positive"),
    "long text": (json.dumps(GOOD | {"text": "x" * 5000}), "more than 4000 characters"),
    "long line": (json.dumps(GOOD | {"text": "x" * 100_000}), "at most 65536"),
    "half a pair": (json.dumps(GOOD).replace("rows in", "\\ud800"), "cannot be written as JSON"),
    "nested": ("[" * 50_000, "line 3"),
    "error over budget": (json.dumps(GOOD | {"proof": GOOD["proof"] | {"worst": 1.5}}), "share of what was allowed"),
    "unchecked": (json.dumps(GOOD | {"proof": GOOD["proof"] | {"checks": 0}}), "at least one comparison"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_named_and_nothing_is_imported(pool: Pool, tmp_path: Path, name: str) -> None:
    line, complaint = BAD[name]
    file = tmp_path / "in.jsonl"
    file.write_text(f"{line_of(record('good'))}\n\n{line}\n{line_of(record('also good'))}\n")
    with pytest.raises(DataError) as raised:
        pool.import_lines(file)
    assert str(raised.value).startswith("in.jsonl, line 3: ")
    assert complaint in str(raised.value)
    assert len(pool) == 0


def test_files_that_cannot_be_imported(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        pool.import_lines(tmp_path / "none.jsonl")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="is not text in UTF-8"):
        pool.import_lines(tmp_path / "binary")
    with pytest.raises(StoreError, match="cannot be written"):
        pool.export_lines(tmp_path / "none" / "out.jsonl")


def test_add_is_as_strict_as_import(pool: Pool) -> None:
    with pytest.raises(DataError, match="not a card's name"):
        pool.add(replace(SOFTMAX, strategy=Strategy((Move.of("My Trick!"),))))


# --- inventions ------------------------------------------------------------------------------


def test_inventions_are_kept_and_become_cards(pool: Pool) -> None:
    deck = load_deck()
    invented = Move.of("zigzag-walk", "neighbours share rows", step=4)
    fill(pool, record("good", move=invented, gain=3.0, zone="compute-bound", limit="l2"))
    fill(pool, record("better", move=Move.of("zigzag-walk", "it hits the L2", step=8, late=True), gain=5.0))
    fill(pool, record("weak", move=Move.of("slow-walk"), gain=1.1))
    fill(pool, record("nowhere", move=Move.of("blind-walk"), gain=9.0, zone="", limit=""))
    fill(pool, record("mixed", move=Move.of("zigzag-walk", step="wide"), gain=2.0))
    (card,) = proven_cards(pool, deck)
    assert isinstance(card, Card)
    assert (card.name, card.title) == ("zigzag-walk", "Zigzag walk")
    assert card.text.startswith("it hits the L2. neighbours share rows. Part of strategies that gained up to 5.00x")
    assert card.zones == ("memory-bound", "compute-bound")
    assert card.relieves == ("dram", "l2")
    assert {p.name: p.choices for p in card.parameters} == {"late": (True,), "step": (8, 4)}
    grown = Deck([*deck.values(), card])
    assert compatible(Strategy((invented,)), grown, capability=8.0, precision="fp32") == (
        "zigzag-walk needs a value for late",
    )
    assert proven_cards(pool, grown) == ()
    own = record("better").proof.task
    (less,) = proven_cards(pool, deck, besides=own)
    assert "gained up to 3.00x over plain kernels on good, mixed" in less.text, "the task at hand is left out"
    assert [c.name for c in proven_cards(pool, deck, least_gain=1.0)] == ["slow-walk", "zigzag-walk"]


def test_only_the_best_inventions_become_cards(pool: Pool) -> None:
    fill(pool, *(record(f"task{n}", move=Move.of(f"walk-{n}"), gain=2.0 + n) for n in range(MOST_CARDS + 4)))
    names = [card.name for card in proven_cards(pool, load_deck())]
    assert names == sorted(f"walk-{n}" for n in range(4, MOST_CARDS + 4))
