"""Frames, tables and replayed searches, on a made-up table; the arithmetic of comparisons."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from cupilot.errors import DataError
from cupilot.evolution.result import moves_text
from cupilot.expert import Expert
from cupilot.gpu import load_spec
from cupilot.records import Kernel, Strategy, Task
from cupilot.runs.frames import FOLDER, Frame, all_strategies, load_frames
from cupilot.runs.replay import FastSpace, Method, ReplayAgents, Table, Trace, by_chance, replay
from cupilot.runs.replay_page import page
from cupilot.runs.replay_study import HORIZONS, POOL_AGAINST_NOTHING, VARIANTS, Traces, Variant, load_tables, results
from cupilot.runs.strategy_table import (
    DEVICE,
    TOGETHER,
    TableEntry,
    TableHead,
    fill_table,
    put_together,
    read_table,
)
from cupilot.strategies import load_deck, parse
from cupilot.tasks import load_task

SPEC = load_spec(DEVICE.removeprefix("virtual:"))
SEEDS = range(12)


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task(FOLDER / "softmax.py")


@pytest.fixture(scope="module")
def frame() -> Frame:
    return next(frame for frame in load_frames() if frame.task == "softmax")


@pytest.fixture(scope="module")
def table(task: Task, frame: Frame) -> Table:
    """Each move and each value multiplies the time by a factor of its own."""
    known, unknown = (FastSpace(frame.space(task, SPEC, starts=starts)) for starts in (True, False))
    rng, worth, entries = Random(3), {}, {}
    for strategy in all_strategies(known):
        time_s = 1e-3
        for move in strategy.moves:
            time_s *= worth.setdefault((move.card, move.parameters), rng.uniform(0.6, 1.1))
        text = moves_text(strategy)
        entries[text] = TableEntry(text, time_s, "dram", "memory-bound", "dram", 2.0)
    return Table(task, SPEC, DEVICE, known, unknown, entries)


# --- frames ----------------------------------------------------------------------------------


def test_nothing_leads_out_of_a_frame(table: Table) -> None:
    """What is drawn, mutated, crossed or repaired is in the table: nothing has to be guessed."""
    for method in (Method(), Method(starts=True), Method(crossing="code"), Method(loss=0.3)):
        for seed in SEEDS:
            replay(table, "any", method, seed, 32)  # raises where a legal strategy is not there


def test_every_strategy_of_a_frame_is_legal_for_the_whole_recipe(task: Task, frame: Frame) -> None:
    whole = Expert().space(task, SPEC)
    listed = all_strategies(frame.space(task, SPEC))
    assert listed[0] == Strategy()
    assert len({moves_text(one) for one in listed}) == len(listed) > 100
    assert not any(whole.faults(one) for one in listed)


def test_frames_fit_their_recipes() -> None:
    frames = load_frames()
    assert len(frames) >= 8
    for one in frames:
        space = one.space(load_task(FOLDER / f"{one.task}.py"), SPEC)
        assert set(space.cards) == set(one.cards)
        assert space.starts("")


def test_a_card_that_a_recipe_does_not_have_is_named(task: Task) -> None:
    with pytest.raises(DataError, match=r"frames.toml: the recipe softmax has no winograd"):
        Frame("softmax", {"winograd": {}}).space(task, SPEC)


# --- tables ----------------------------------------------------------------------------------


def test_a_table_goes_on_where_its_writer_was_killed(tmp_path: Path, table: Table) -> None:
    strategies, asked = all_strategies(table.known)[:30], []
    head = TableHead("softmax", "digest", DEVICE, "1")
    path = tmp_path / "softmax.jsonl"

    def evaluate(some: list[Strategy]) -> list[TableEntry]:
        asked.append(len(some))
        return [table.entries[moves_text(one)] for one in some]

    steps = fill_table(path, head, strategies, evaluate)
    assert [next(steps), next(steps)] == [(0, 30), (TOGETHER, 30)]
    path.write_text(path.read_text() + '{"moves": "cut off')
    assert len(read_table(path)[1]) == TOGETHER
    assert list(fill_table(path, head, strategies, evaluate))[-1] == (30, 30)
    assert sum(asked) == 30, "nothing is evaluated twice"
    found = read_table(path)[1]
    assert set(found) == {moves_text(one) for one in strategies}
    for text, entry in found.items():
        assert entry.time_s == pytest.approx(table.entries[text].time_s, rel=1e-5)
    with pytest.raises(DataError, match="is a table of something else"):
        list(fill_table(path, replace(head, source="other"), strategies, evaluate))


def test_several_kernels_become_one_source() -> None:
    one, other = (
        Kernel(
            "#include <cmath>\n" + f"__global__ void k() {{ {n}; }}\n"
            "torch::Tensor forward(torch::Tensor x) { return x; }\n"
        )
        for n in (1, 2)
    )
    both = put_together([one, other])
    assert both.source.count("#include <cmath>") == 1
    assert "namespace s0 {" in both.source
    assert "case 1: return s1::forward(x);" in both.source
    assert "torch::Tensor choose(torch::Tensor x, int64_t which)" in both.source
    with pytest.raises(DataError, match="that return one tensor"):
        put_together([Kernel("void forward(torch::Tensor x) {}")])


def test_shipped_tables_hold_their_frames_whole() -> None:
    """A part of one would be left out of the page silently."""
    made = [path.stem for path in sorted((FOLDER / "tables").glob("*.jsonl"))]
    assert made
    found = load_tables(SPEC, DEVICE, only=made)
    assert sorted(table.task.name for table in found) == made
    for table in found:
        assert table.best_s > 0
        assert sum(entry.time_s is not None for entry in table.entries.values()) > len(table.entries) / 2


# --- replaying -------------------------------------------------------------------------------


def test_a_replay_is_a_search(table: Table) -> None:
    traces = [replay(table, "any", Method(), seed, 32) for seed in SEEDS]
    assert traces == [replay(table, "any", Method(), seed, 32) for seed in SEEDS]
    for one in traces:
        assert len(one.over_best) == 33
        assert list(one.over_best) == sorted(one.over_best, reverse=True)
        assert one.over_best[-1] >= 1.0
    assert sum(one.over_best[-1] < 1.05 for one in traces) > len(traces) / 2


def test_code_is_crossed_by_chance() -> None:
    deck = load_deck()
    parents = [
        parse(text, deck) for text in ("vector-load(bytes=16)\nunroll(factor=2)", "vector-load(bytes=8)\ngrid-stride")
    ]
    children = [by_chance(parents, Random(seed)) for seed in range(40)]
    assert {child.move("vector-load").get("bytes") for child in children} == {8, 16}  # type: ignore[union-attr]
    assert {len(child.moves) for child in children} == {1, 2, 3}


def test_moves_are_lost_twice_as_often_where_code_is_crossed(table: Table) -> None:
    kept = {}
    for crossing in ("strategies", "code"):
        method = Method(loss=0.2, crossing=crossing)
        traces = [replay(table, "any", method, seed, 32) for seed in SEEDS]
        kept[crossing] = sum(one.kept for one in traces) / sum(one.crossed for one in traces)
    assert 0.0 < kept["code"] < kept["strategies"] < 1.0
    assert replay(table, "any", Method(), 0, 32).crossed == 0, "nothing is lost, so nothing is counted"


def test_what_was_lost_is_not_claimed(table: Table) -> None:
    agents = ReplayAgents(table, Method(loss=0.4), 0)
    from cupilot.contracts import Brief

    for strategy in all_strategies(table.known)[1:40]:
        brief = Brief(table.task, SPEC, sample=len(strategy.moves))
        kernel = agents.translate(brief, strategy)
        assert isinstance(kernel, Kernel)
        aligned = agents.align(brief, kernel, strategy, None)  # type: ignore[arg-type]
        assert (moves_text(aligned) or "plain") == kernel.source


# --- comparing -------------------------------------------------------------------------------


def made_up(method: str, over: float, seed: int, task: str = "t") -> Trace:
    """As many candidates as there are; the last half of them reach the best."""
    return Trace(task, method, seed, tuple(over if n <= 16 else 1.0 for n in range(33)))


def test_variants_are_compared_seed_by_seed() -> None:
    rng, traces = Random(0), []
    for seed in range(60):
        luck = rng.uniform(1.0, 3.0)  # of the seed: it must not matter
        traces += [made_up("base", luck, seed), made_up("worse", luck * rng.uniform(1.05, 1.15), seed)]
        traces += [made_up("same", luck * rng.uniform(0.95, 1.05), seed)]
    found = Traces(traces)
    worse, same = (found.result(Variant(name, "base", Method())) for name in ("worse", "same"))
    assert worse.ratios[0].mean == pytest.approx(1.10, abs=0.01)
    assert worse.ratios[0].is_above_one
    assert not same.ratios[0].is_above_one
    assert not same.ratios[0].is_below_one
    assert worse.ratios[2].mean == 1.0, "in the end all reach the best"
    assert worse.needed.mean == pytest.approx(17, abs=1)
    assert worse.reached == 1.0
    assert dict(worse.tasks)["t"] == pytest.approx(worse.ratios[1].mean)


def test_the_page_says_what_the_numbers_say(table: Table) -> None:
    traces = []
    for variant in VARIANTS:
        slow = 1.3 if variant.name == "from nothing, no roofline guidance" else 1.1
        traces += [made_up(variant.name, slow * (1 + 0.001 * (seed % 3)), seed) for seed in range(20)]
    text = page([table], results(traces), 20)
    assert "- **from nothing, no roofline guidance**: 18.2% slower than from nothing after 16 candidates." in text
    assert "- **from the pool, no ties**: no difference shown after 16 candidates (+0.0% to +0.0%)." in text
    assert f"{len(VARIANTS) * 20} searches" in text
    assert math.isclose(HORIZONS[1], 16)
    assert POOL_AGAINST_NOTHING.name in text
    with pytest.raises(FileNotFoundError):
        load_tables(SPEC, DEVICE, Path("nowhere"))
