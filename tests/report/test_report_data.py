"""What a report says, as records."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import NOTES, RUN_INFO, individuals, write_run, writing

from cupilot.errors import StoreError
from cupilot.gpu import load_spec
from cupilot.gpu.timing import launch_parts
from cupilot.records import Kernel, Timing
from cupilot.report.costs import BY_INSTRUCTIONS, BY_TIME, facts, line_shares, part_rows
from cupilot.report.data import failure_kinds, run_view
from cupilot.report.lineage import lineage
from cupilot.report.run import read_run
from cupilot.report.sources import sources
from cupilot.report.steps import Change, path, steps, worths
from cupilot.strategies.deck import load_deck

SPEC = load_spec("a100-80gb")


def test_a_finished_run(run_folder: Path) -> None:
    run = read_run(run_folder)
    assert run.plain is not None
    assert run.best is not None
    assert (run.plain.id, run.best.id, run.evaluations, len(run.failed)) == (0, 5, 6, 2)
    assert run.why == "all generations were done"
    assert run.spec == SPEC
    best, plain, pytorch = run_view(run).headlines
    assert (best.title, best.vs_plain, best.vs_pytorch) == ("best kernel", pytest.approx(4), pytest.approx(2))
    assert (plain.title, plain.vs_plain, plain.vs_pytorch) == ("plain kernel", 1.0, pytest.approx(0.5))
    assert (pytorch.timing.source, pytorch.vs_plain) == ("modelled", pytest.approx(2))


def test_a_run_can_be_read_at_every_stage_beside_its_writer(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with writing(folder) as store:
        assert run_view(read_run(folder)).headlines == ()
        store.begin(RUN_INFO)
        assert read_run(folder).info == RUN_INFO
        for count, one in enumerate(individuals(), start=1):
            store.add(one)
            view = run_view(read_run(folder))
            assert len(view.run.individuals) == count
            assert view.run.why == ""
    assert view.run.best is not None


def test_reading_leaves_nothing_behind(run_folder: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in run_folder.iterdir()}
    read_run(run_folder)
    assert {path.name: path.stat().st_mtime_ns for path in run_folder.iterdir()} == before


def test_a_folder_that_may_not_be_written_can_be_read(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as for everybody but root in somebody else's folder
    assert len(read_run(run_folder).individuals) == 7
    assert not list(run_folder.glob("*-shm")), "nothing is written there"


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no run"):
        read_run(tmp_path)


def test_times_of_another_kind_are_not_ranked(tmp_path: Path) -> None:
    plain, fast, *_ = individuals()
    odd = replace(fast, evaluation=replace(fast.evaluation, timing=Timing(1e-9, "measured", "cuda:0")))
    run = read_run(write_run(tmp_path / "run", [plain, odd], finished=False))
    assert run.best == plain


# --- lineage -------------------------------------------------------------------------------------


def test_a_step_says_what_changed_and_what_it_gained_on_which_limit() -> None:
    found = steps(individuals())
    assert 0 not in found
    cross = found[5]
    assert cross.base == 1, "the faster one of the two parents"
    assert cross.changes == (Change("added", "unroll", "unroll(factor=2)"),)
    assert (cross.gain, cross.limit) == (pytest.approx(2), "latency")
    assert [(part.limit, part.saved_s) for part in cross.parts] == [("latency", pytest.approx(250e-6))]
    assert found[6].changes == (Change("changed", "vector-load", "vector-load(bytes 16 → 8)"),)
    assert found[6].gain == pytest.approx(250 / 350)
    assert found[3].gain is None, "its parent failed"


def test_the_way_to_the_best() -> None:
    listed = individuals()
    assert [one.id for one in path(listed[5], listed)] == [0, 1, 5]


def test_moves_are_worth_what_their_own_steps_gained() -> None:
    listed = individuals()
    found = {worth.card: worth for worth in worths(listed, listed[5], load_deck())}
    vector = found["vector-load"]
    assert vector.alone == (pytest.approx(2), pytest.approx(250 / 350))
    assert vector.relieved == "latency"
    assert vector.in_best
    assert vector.title == "Vector loads and stores"
    assert (found["unroll"].used, found["unroll"].failed) == (4, 1)
    invented = found["warp-magic"]
    assert (invented.title, invented.typical, invented.failed) == ("warp-magic", None, 1)


def test_the_lineage_has_a_place_for_everybody() -> None:
    listed = individuals()
    tree = lineage(listed, listed[5], NOTES, RUN_INFO)
    assert [[node.individual.id for node in generation.nodes] for generation in tree.generations] == [
        [0, 1, 2, 3, 4],
        [5, 6],
    ]
    nodes = {node.individual.id: node for node in tree.nodes}
    assert {node.mark for node in nodes.values()} == {"plain", "best", "failed", ""}
    assert nodes[2].dead_end
    assert nodes[2].remarks == (("given-up", "nothing to repair"),)
    assert nodes[3].y > nodes[2].y > nodes[0].y, "repairs stand below what they repair"
    assert nodes[6].y > nodes[5].y > nodes[3].y
    assert len({(node.x, node.y) for node in nodes.values()}) == 7
    assert {(edge.parent.individual.id, edge.child.individual.id) for edge in tree.edges if edge.on_path} == {
        (0, 1), (1, 5),
    }  # fmt: skip
    assert all(0 < node.x < tree.width and 0 < node.y < tree.height for node in nodes.values())


def test_parents_that_are_not_there_are_left_out() -> None:
    orphan = replace(individuals()[5], parents=(1, 99))
    tree = lineage([orphan], orphan, (), RUN_INFO)
    assert tree.edges == ()
    assert [node.individual.id for node in tree.path] == [5]


# --- costs ---------------------------------------------------------------------------------------


def test_lines_have_their_share_of_the_modelled_time() -> None:
    one = individuals()[0]
    found = line_shares(one, SPEC)
    assert found is not None
    assert found.basis == BY_TIME
    shares = dict(found.shares)
    assert set(shares) == {2, 4}
    profile = one.evaluation.profile
    assert profile is not None
    parts = launch_parts(profile.launches[0], SPEC)
    assert sum(shares.values()) == pytest.approx(1 - parts.get("launch", 0.0) / sum(parts.values()))
    assert shares[4] > shares[2]


def test_without_a_known_gpu_lines_go_by_instructions() -> None:
    found = line_shares(individuals()[0], None)
    assert found is not None
    assert found.basis == BY_INSTRUCTIONS
    assert dict(found.shares) == {2: pytest.approx(0.25), 4: pytest.approx(0.75)}


def test_lines_of_other_files_are_not_guessed() -> None:
    one = individuals()[0]
    assert line_shares(replace(one, kernel=Kernel("text", language="modelnew")), SPEC) is None
    assert line_shares(individuals()[4], SPEC) is None


def test_parts_before_and_after_are_the_two_times() -> None:
    listed = individuals()
    rows = part_rows(listed[0], listed[5])
    assert [(row.limit, row.before_share) for row in rows] == [
        ("latency", pytest.approx(0.8)),
        ("dram", pytest.approx(0.2)),
    ]
    assert sum(row.after_s for row in rows) == pytest.approx(250e-6)
    assert sum(row.after_share for row in rows) == pytest.approx(1)


def test_small_parts_share_a_row() -> None:
    listed = individuals()
    timing = listed[0].evaluation.timing
    assert timing is not None
    more = replace(timing, breakdown=(*timing.breakdown, ("issue", 1e-9), ("int", 1e-9)))
    odd = replace(listed[0], evaluation=replace(listed[0].evaluation, timing=more))
    last = part_rows(odd, listed[5])[-1]
    assert (last.limit, last.words, last.before_s) == ("other", "int, issue", pytest.approx(2e-9))


def test_counters_before_and_after() -> None:
    listed = individuals()
    found = {fact.name: fact for fact in facts(listed[0], listed[5], SPEC)}
    assert found["blocks × threads, longest launch"].before == "4096 × 256"
    assert (found["sectors per global request"].before, found["active lanes of 32"].after) == ("4", "30.0")
    assert found["occupancy, longest launch"].source == "model"
    assert "fills and copies" not in found


def test_sources_share_their_lines() -> None:
    found = sources(individuals(), SPEC)
    assert [kernel.id for kernel in found.kernels] == [0, 1, 2, 3, 5, 6], "4 was never written"
    assert len(found.lines) == 5 + 6, "six kernels that differ in one line"
    texts = {k.id: "\n".join(found.lines[n] for n in k.lines) + "\n" for k in found.kernels}
    assert texts[5] == individuals()[5].kernel.source
    assert found.kernels[2].costs == ()


def test_failures_and_budget(run_folder: Path) -> None:
    view = run_view(read_run(run_folder))
    assert [(kind.stage, kind.kind, kind.ids) for kind in failure_kinds(individuals())] == [
        ("translate", "no-kernel", (4,)), ("verify", "wrong-result", (2,)),
    ]  # fmt: skip
    assert [(cap.name, cap.spent, cap.share) for cap in view.caps] == [
        ("evaluations", "6 evaluations", pytest.approx(0.15)), ("wall_s", "not recorded", None),
    ]  # fmt: skip
