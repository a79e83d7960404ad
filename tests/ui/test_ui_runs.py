"""Runs as records: states, the best, and that looking changes nothing."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from ui_site import begin_run, individual, make_run

from cupilot.evolution.result import moves_text
from cupilot.evolution.store import FILE, LOCK, SqliteStore, read_store
from cupilot.testing.samples import INFO, STRATEGY
from cupilot.ui import runs as runs_module
from cupilot.ui.run_lock import is_running, lock_holders
from cupilot.ui.runs import RunsFolder, RunSummary


def summary(root: Path, name: str) -> RunSummary:
    found = RunsFolder(root).summary(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("stopped", "state", "why"),
    [
        ("generations", "finished", "all generations were done"),
        ("limit", "finished", "within 5 %"),
        ("interrupted", "stopped", "interrupted by the user"),
        ("", "stopped", "killed"),
    ],
)
def test_the_state_of_a_run_that_ended(tmp_path: Path, stopped: str, state: str, why: str) -> None:
    make_run(tmp_path / "run", stopped=stopped)
    found = summary(tmp_path, "run")
    assert found.state == state
    assert why in found.why


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    with closing(begin_run(tmp_path / "run")):
        assert summary(tmp_path, "run").state == "running"
    assert summary(tmp_path, "run").state == "stopped"


def test_a_finished_run_that_is_repeated_is_running(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    runs = RunsFolder(tmp_path, is_running=lambda folder: True)
    found = runs.summary("run")
    assert found is not None
    assert (found.state, found.why) == ("running", "")


def test_the_best_and_the_counts(tmp_path: Path) -> None:
    make_run(tmp_path / "run", (8e-6, None, 4e-6, 5e-6))
    found = summary(tmp_path, "run")
    assert found.best is not None
    assert (found.best.id, found.best.timing.time_s, found.best.timing.source) == (2, 4e-6, "modelled")
    assert (found.best.speedup, found.best.plain_s) == (pytest.approx(2.5), 8e-6)
    assert found.best.strategy == moves_text(STRATEGY)
    assert (found.individuals, found.failures, found.failed) == (4, (("verify: wrong-result", 1),), 1)
    assert found.best_times_s == (8e-6, 4e-6, 4e-6)
    assert found.last_generation == INFO.generations


def test_times_of_another_kind_are_not_ranked(tmp_path: Path) -> None:
    with closing(begin_run(tmp_path / "run", (8e-6, 6e-6))) as store:
        store.add(individual(2, 1e-6, source="measured"))
    found = summary(tmp_path, "run")
    assert found.best is not None
    assert (found.best.id, found.best_times_s) == (1, (8e-6, 6e-6))


def test_a_run_without_a_kernel_yet(tmp_path: Path) -> None:
    make_run(tmp_path / "run", (None,), stopped="")
    assert summary(tmp_path, "run").best is None


def test_all_runs_are_found_whatever_folder_they_are_in(tmp_path: Path) -> None:
    for name in ("one", "bench/level1/two", ".hidden/three", "a/b/c/d/e/too-deep"):
        make_run(tmp_path / name)
    (tmp_path / "empty").mkdir()
    with closing(begin_run(tmp_path / "zz-goes-on")):
        os.utime(tmp_path / "one" / FILE, (1, 1))
        assert [each.name for each in RunsFolder(tmp_path).summaries()] == ["zz-goes-on", "bench/level1/two", "one"]


def test_runs_that_are_links_out_of_the_folder_are_not_listed(tmp_path: Path) -> None:
    make_run(tmp_path / "elsewhere")
    root = tmp_path / "runs"
    (root / "run").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path / "elsewhere")
    (root / "run" / FILE).symlink_to(tmp_path / "elsewhere" / FILE)
    runs = RunsFolder(root)
    assert runs.summaries() == ()
    assert runs.summary("link") is None
    assert runs.summary("run") is None


def test_a_file_that_is_no_store_is_listed_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / FILE).write_bytes(b"not a database at all, but long enough to be one" * 40)
    found = summary(tmp_path, "run")
    assert found.state == "unreadable"
    assert "is damaged" in found.why


@pytest.mark.parametrize("stopped", ["generations", ""])
def test_looking_changes_no_file(tmp_path: Path, stopped: str) -> None:
    make_run(tmp_path / "run", stopped=stopped)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    summary(tmp_path, "run")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_an_onlooker_cannot_write(tmp_path: Path) -> None:
    with closing(begin_run(tmp_path / "run")) as store, closing(read_store(tmp_path / "run")) as reader:
        with pytest.raises(Exception, match="readonly"):
            reader.note("kind", "text")
        assert list(store.notes()) == []


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs whose stores were read as a whole."""
    names: list[str] = []
    summarise = runs_module._summarise

    def counted(name: str, store: SqliteStore, changed_s: float) -> RunSummary:
        names.append(name)
        return summarise(name, store, changed_s)

    monkeypatch.setattr(runs_module, "_summarise", counted)
    return names


def test_news_is_seen_and_nothing_is_read_twice(tmp_path: Path, reads: list[str]) -> None:
    runs = RunsFolder(tmp_path)
    with closing(begin_run(tmp_path / "run", (8e-6,))) as store:
        assert [each.individuals for each in runs.summaries()] == [1]
        runs.summaries()
        assert len(reads) == 1
        store.add(individual(1, 4e-6))
        (found,) = runs.summaries()
        assert (found.individuals, found.best and found.best.id) == (2, 1)
        assert len(reads) == 2
    assert [each.state for each in runs.summaries()] == ["stopped"]
    runs.summaries()
    assert len(reads) == 3


def test_news_is_seen_though_the_files_look_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite writes its log first and shows it afterwards, so that the files may be looked at too early."""
    runs = RunsFolder(tmp_path)
    monkeypatch.setattr(runs_module, "_files", lambda folder: ((1, 1),))
    with closing(begin_run(tmp_path / "run", (8e-6,))) as store:
        assert [each.individuals for each in runs.summaries()] == [1]
        store.add(individual(1, 4e-6))
        assert [each.individuals for each in runs.summaries()] == [2]


def test_a_run_that_was_removed_is_forgotten(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    runs = RunsFolder(tmp_path)
    assert len(runs.summaries()) == 1
    (tmp_path / "run" / FILE).unlink()
    assert runs.summaries() == ()
    assert runs._known == {}


def test_an_empty_log_is_no_change(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    os.utime(tmp_path / "run" / FILE, (1000, 1000))
    (tmp_path / "run" / f"{FILE}-wal").touch()
    assert summary(tmp_path, "run").changed_s == pytest.approx(1000)


def test_outlines_agree_with_the_records(tmp_path: Path) -> None:
    make_run(tmp_path / "run", (8e-6, None, 4e-6))
    with closing(read_store(tmp_path / "run")) as store:
        records = list(store.individuals())
        assert [store.individual(one.id) for one in records] == records
        assert [(o.id, o.generation, o.origin, o.time_s) for o in store.outlines()] == [
            (one.id, one.generation, one.origin, one.time_s) for one in records
        ]
        assert [(o.source, o.device, o.failure) for o in store.outlines()] == [
            ("modelled", "sample", None),
            (None, None, "verify: wrong-result"),
            ("modelled", "sample", None),
        ]


def test_locks_are_read_not_taken(tmp_path: Path) -> None:
    with closing(begin_run(tmp_path / "run")):
        assert is_running(tmp_path / "run")
    assert not is_running(tmp_path / "run")
    assert not is_running(tmp_path / "nowhere")


def test_the_holders_of_a_lock() -> None:
    text = (
        "1: FLOCK  ADVISORY  WRITE 1234 fe:01:77 0 EOF\n"
        "1: -> FLOCK  ADVISORY  WRITE 99 fe:01:77 0 EOF\n"
        "2: POSIX  ADVISORY  WRITE 5 fe:01:77 0 EOF\n"
        "3: FLOCK  ADVISORY  READ 6 fe:01:77 0 EOF\n"
        "4: FLOCK  ADVISORY  WRITE 7 fe:01:177 0 EOF\n"
    )
    assert list(lock_holders(text, 77)) == [1234]


def test_a_lock_on_another_file_of_the_same_number_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / LOCK).touch()
    number = (tmp_path / LOCK).stat().st_ino
    (tmp_path / "locks").write_text(f"1: FLOCK  ADVISORY  WRITE {os.getpid()} 00:00:{number} 0 EOF\n")
    monkeypatch.setattr("cupilot.ui.run_lock.LOCKS", tmp_path / "locks")
    assert not is_running(tmp_path)
    with (tmp_path / LOCK).open():
        assert is_running(tmp_path)


def test_a_store_of_another_schema(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    with closing(sqlite3.connect(tmp_path / "run" / FILE)) as connection:
        connection.execute("PRAGMA user_version = 99")
    found = summary(tmp_path, "run")
    assert (found.state, "a newer version" in found.why) == ("unreadable", True)


def test_two_runs_of_the_same_state_differ_only_in_their_names(tmp_path: Path) -> None:
    make_run(tmp_path / "one")
    make_run(tmp_path / "two")
    one, two = RunsFolder(tmp_path).summary("one"), RunsFolder(tmp_path).summary("two")
    assert one is not None
    assert two is not None
    assert replace(one, name="two", changed_s=two.changed_s) == two
