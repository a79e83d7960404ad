"""The pool's file, and the records that come with the program."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pool_samples import QUERY, SOFTMAX, fill, found, record

from cupilot.errors import StoreError
from cupilot.records.pool import PoolRecord
from cupilot.strategies import compatible, load_deck
from cupilot.strategies.pool import SHIPPED, open_pool
from cupilot.strategies.pool_lines import read_lines

# --- the file --------------------------------------------------------------------------------


def test_files_that_are_no_pool(path: Path) -> None:
    path.write_text("a text, and long enough not to look like an empty database" * 20)
    with pytest.raises(StoreError, match="is damaged: file is not a database"):
        open_pool(path)
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
        other.execute("PRAGMA user_version = 1")
    other.close()
    with pytest.raises(StoreError, match="is not a pool"):
        open_pool(path)
    for special in (path.parent, Path("/dev/null")):
        with pytest.raises(StoreError, match="no ordinary file"):
            open_pool(special)
    with pytest.raises(StoreError, match="cannot be made"):
        open_pool(path / "below-a-file")


@pytest.mark.parametrize(("version", "age"), [(99, "a newer"), (-1, "an older")])
def test_a_pool_of_another_version(path: Path, version: int, age: str) -> None:
    open_pool(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(StoreError, match=f"{age} version of cupilot"):
        open_pool(path)


def test_a_damaged_record_and_a_damaged_file(path: Path) -> None:
    with open_pool(path, seed=False) as pool:
        fill(pool, SOFTMAX)
        connection = sqlite3.connect(path)
        connection.execute("UPDATE record SET line = '{}'")
        connection.commit()
        connection.close()
        with pytest.raises(StoreError, match="holds a record that cannot be read"):
            pool.records()
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\x5a" * (len(content) - 4096))
    with (
        pytest.raises(StoreError, match=r"the pool .* (is damaged|cannot be read)"),
        open_pool(path, seed=False) as pool,
    ):
        pool.similar(QUERY, 3)


def test_an_empty_file_becomes_a_pool(path: Path) -> None:
    path.touch()
    with open_pool(path, seed=False) as pool:
        fill(pool, SOFTMAX)


def test_readers_see_what_is_complete_while_another_writes(path: Path) -> None:
    with open_pool(path, seed=False) as writer, open_pool(path, seed=False) as reader:
        fill(writer, SOFTMAX)
        with writer._own.transaction():
            writer._own.put(record("half"))
            assert [one.task for one in reader.records()] == ["softmax"]
            assert found(reader) == ["softmax"]
        assert len(reader) == 2


def test_several_processes_make_and_fill_one_pool(path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path; from pool_samples import record\n"
        "from cupilot.strategies.pool import open_pool\n"
        "for n in range(10):\n"
        "    with open_pool(Path(sys.argv[2]), seed=False) as pool:\n"
        "        pool.add(record(f'{sys.argv[3]}-{n}'))\n"
    )
    command = [sys.executable, "-c", program, str(Path(__file__).parent), str(path)]
    running = [subprocess.Popen([*command, str(n)], stderr=subprocess.PIPE, text=True) for n in range(3)]
    errors = [process.communicate()[1] for process in running]
    assert errors == [""] * 3
    with open_pool(path, seed=False) as pool:
        assert len(pool) == 30


# --- what is shipped -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped() -> list[PoolRecord]:
    return list(read_lines(SHIPPED))


def test_every_shipped_strategy_is_legal(shipped: list[PoolRecord]) -> None:
    deck = load_deck()
    assert len(shipped) >= 50
    for one in shipped:
        assert one.strategy.cards <= set(deck)
        assert compatible(one.strategy, deck, capability=8.0, precision=one.precision) == ()


def test_every_shipped_record_has_its_proof(shipped: list[PoolRecord]) -> None:
    assert len({one.id for one in shipped}) == len(shipped)
    for one in shipped:
        assert one.gain > 1
        assert one.source == "modelled"
        assert one.zone
        assert one.limit
        assert one.proof.checks >= 4, "small, odd and true shapes"
        assert len(one.proof.source) == len(one.proof.task) == 64


def test_the_shipped_records_are_seen_and_never_written(path: Path, shipped: list[PoolRecord], tmp_path: Path) -> None:
    with open_pool(path) as pool:
        assert len(pool) == len(shipped)
        assert pool.records(shipped=False) == []
        assert pool.shipped() == {one.id for one in shipped}
        match = pool.similar(QUERY, 1)[0]
        assert match.shipped
        assert match.record.operators == ("softmax",)
        assert pool.export_lines(tmp_path / "own.jsonl") == 0
        assert pool.export_lines(tmp_path / "all.jsonl", shipped=True) == len(shipped)
        assert pool.import_lines(tmp_path / "all.jsonl") == 0, "they are known"
    with open_pool(path, seed=False) as pool:
        assert len(pool) == 0


def test_shipped_records_can_be_outdone_and_hidden(path: Path, shipped: list[PoolRecord]) -> None:
    one, two = shipped[:2]
    better = replace(one, time_s=one.time_s / 2, kernel="b" * 16)
    with open_pool(path) as pool:
        assert not pool.add(replace(one, time_s=one.time_s * 2))
        assert pool.add(better)
        assert pool.find(one.id) == better
        assert len(pool) == len(shipped)
        pool.forget(one.id)
        pool.drop_failed(two.kernel)
    with open_pool(path) as pool:
        left = {record.id for record in pool.records()}
        assert one.id not in left
        assert two.id not in left
        assert pool.add(one), "found again by a run"
        assert pool.find(one.id) == one
        assert one.id not in pool.shipped()
