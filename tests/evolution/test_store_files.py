from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from cupilot.errors import StoreError
from cupilot.evolution import store as store_module
from cupilot.evolution.store import FILE, create_store, discard_store, holds_run, open_store
from cupilot.records import Kernel
from cupilot.testing.samples import INDIVIDUAL, INFO, RESULT


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no run"):
        open_store(tmp_path)
    assert not holds_run(tmp_path)


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    create_store(tmp_path).close()
    with pytest.raises(StoreError, match="already holds a run"):
        create_store(tmp_path)


@pytest.mark.parametrize(("version", "age"), [(99, "a newer version"), (1, "an older version")])
def test_another_schema_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, age: str) -> None:
    create_store(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    monkeypatch.setattr(store_module, "SCHEMA", 2)
    with pytest.raises(StoreError, match=f"{age} of cupilot .schema {version}, this one reads 2"):
        open_store(tmp_path)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database at all, but long enough to be one" * 40)
    with pytest.raises(StoreError, match="is damaged"):
        open_store(tmp_path)


def test_a_file_that_was_cut(tmp_path: Path) -> None:
    store = create_store(tmp_path)
    store.begin(INFO)
    store.add(INDIVIDUAL)
    store.close()
    data = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(data[: len(data) // 2])
    with pytest.raises(StoreError, match=r"run\.sqlite"):
        list(open_store(tmp_path).individuals())


def test_a_record_that_was_changed(tmp_path: Path) -> None:
    store = create_store(tmp_path)
    store.begin(INFO)
    store.close()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("UPDATE run SET record = '{\"task\": 1}'")
    connection.close()
    with pytest.raises(StoreError, match="cannot be read"):
        open_store(tmp_path).info()


def test_a_file_that_was_removed_meanwhile(tmp_path: Path) -> None:
    store = create_store(tmp_path)
    store.begin(INFO)
    (tmp_path / FILE).unlink()
    with pytest.raises(StoreError, match=r"run\.sqlite was removed while it was in use$"):
        store.add(INDIVIDUAL)
    store.close()


def test_a_full_disk(tmp_path: Path) -> None:
    store = create_store(tmp_path)
    store.begin(INFO)
    store.add(INDIVIDUAL)
    # SQLite's own bound on the file stands in for the disk's: it is the same error
    pages = store._database.number("page_count")
    store._database.execute(f"PRAGMA max_page_count = {pages}")
    large = replace(INDIVIDUAL, id=INDIVIDUAL.id + 1, kernel=Kernel("x" * 1_000_000))
    with pytest.raises(StoreError, match=r"run\.sqlite cannot be written: the disk is full$"):
        store.add(large)
    assert list(store.individuals()) == [INDIVIDUAL], "what was there stays"
    store.close()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be made"):
        create_store(tmp_path / "file" / "run")


def test_an_unused_store_is_discarded_with_its_folder(tmp_path: Path) -> None:
    create_store(tmp_path / "run").close()
    discard_store(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_discarding_keeps_what_else_is_there(tmp_path: Path) -> None:
    create_store(tmp_path).close()
    (tmp_path / "mine.txt").write_text("mine")
    discard_store(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_slow_reader_does_not_hold_up_the_writer(tmp_path: Path) -> None:
    store = create_store(tmp_path)
    store.begin(INFO)
    reader = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM individual").fetchone() == (0,)
    store.add(INDIVIDUAL)
    assert reader.execute("SELECT count(*) FROM individual").fetchone() == (0,), "a reader sees one moment"
    reader.execute("COMMIT")
    assert reader.execute("SELECT count(*) FROM individual").fetchone() == (1,)
    reader.close()
    store.close()


def test_the_result_is_kept(tmp_path: Path) -> None:
    store = create_store(tmp_path)
    store.begin(INFO)
    assert store.result() is None
    store.finish(RESULT)
    store.close()
    again = open_store(tmp_path)
    assert again.result() == RESULT
    again.close()


def test_a_killed_writer_loses_nothing_that_was_added(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import os, signal, sys
        from dataclasses import replace
        from pathlib import Path
        from cupilot.evolution.store import create_store
        from cupilot.testing.samples import INDIVIDUAL, INFO
        store = create_store(Path(sys.argv[1]))
        store.begin(INFO)
        for number in range(5):
            store.add(replace(INDIVIDUAL, id=number))
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=dict(os.environ), check=False)
    assert ended.returncode == -signal.SIGKILL
    store = open_store(tmp_path)
    assert [one.id for one in store.individuals()] == list(range(5))
    store.close()
