from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cupilot.records import to_plain
from cupilot.records.pool import PoolRecord
from cupilot.strategies.pool import SHIPPED
from cupilot.strategies.pool_lines import line_of, read_lines

Cli = Callable[..., Any]


@pytest.fixture
def known() -> PoolRecord:
    """Any shipped record."""
    return next(read_lines(SHIPPED))


@pytest.fixture
def mine(known: PoolRecord) -> str:
    """A file with one record that is not shipped, whose texts try to do harm to a terminal."""
    changes = {"device": "cuda:0", "task": "[/red]\x1b[31mmine", "text": "[bold", "source": "measured"}
    Path("mine.jsonl").write_text(json.dumps(to_plain(known) | changes) + "\n")
    return "mine.jsonl"


def test_a_new_pool_shows_what_is_shipped(cli: Cli, known: PoolRecord) -> None:
    ran = cli("pool", "list")
    assert (ran.status, ran.err) == (0, "")
    assert known.id in ran.out
    shipped = len(list(read_lines(SHIPPED)))
    assert f"{shipped} records, {shipped} of them come with cupilot" in ran.out
    assert Path("cache/pool.sqlite").is_file()
    assert "0 records" in cli("pool", "list", "--own").out


def test_list_by_operator_for_programs(cli: Cli) -> None:
    ran = cli("pool", "list", "--operator", "softmax", "--json", "-")
    records = json.loads(ran.out)["records"]
    assert records
    assert all("softmax" in record["operators"] and record["shipped"] for record in records)
    assert {"id", "gain", "proof", "strategy"} <= set(records[0])


def test_show(cli: Cli, known: PoolRecord) -> None:
    ran = cli("pool", "show", known.id[:8])
    assert (ran.status, ran.err) == (0, "")
    assert f"record {known.id}, comes with cupilot" in ran.out
    assert known.strategy.moves[0].card in ran.out
    assert known.proof.source in ran.out
    report = json.loads(cli("pool", "show", known.id, "--json", "-").out)
    assert (report["id"], report["gain"]) == (known.id, known.gain)


def test_import_export_and_forget(cli: Cli, mine: str) -> None:
    ran = cli("pool", "import", mine, "--pool", "own.sqlite")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("1 records were new or better; the pool has ")
    listed = cli("pool", "list", "--own", "--pool", "own.sqlite")
    assert listed.status == 0
    assert "[/red]�[31mmine" in listed.out, "neither markup nor an escape sequence"
    id_ = listed.out.splitlines()[-2].split()[0]
    assert "\x1b" not in cli("pool", "show", id_, "--pool", "own.sqlite").out
    assert cli("pool", "export", "out.jsonl", "--pool", "own.sqlite").out == "1 records written to out.jsonl\n"
    assert [line_of(r) for r in read_lines(Path("out.jsonl"))] == [line_of(r) for r in read_lines(Path(mine))]
    assert cli("pool", "forget", id_, "--pool", "own.sqlite").out == f"{id_} is forgotten\n"
    assert cli("pool", "export", "all.jsonl", "--all", "--pool", "own.sqlite").status == 0
    assert len(list(read_lines(Path("all.jsonl")))) == len(list(read_lines(SHIPPED)))


def test_forgetting_what_is_shipped_hides_it(cli: Cli, known: PoolRecord) -> None:
    assert cli("pool", "forget", known.id).status == 0
    assert known.id not in cli("pool", "list").out
    ran = cli("pool", "show", known.id)
    assert ran.status == 2
    assert "has no record" in ran.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "the following arguments are required: ACTION (see cupilot pool --help)"),
        (("empty",), "argument ACTION: invalid choice: 'empty'"),
        (("list", "--pool", "none.sqlite"), "there is no pool none.sqlite"),
        (("list", "--json", "no/out.json"), "--json no/out.json: there is no folder"),
        (("show", "123"), "the pool"),
        (("forget", "zzzzzz"), "the pool"),
        (("import", "none.jsonl"), "the file none.jsonl cannot be read: No such file"),
        (("import", "bad.jsonl"), "bad.jsonl, line 2: "),
        (("export", "no/out.jsonl"), "there is no folder"),
        (("export", "."), ". is a folder"),
    ],
)
def test_mistakes_are_one_sentence_and_status_2(
    cli: Cli, known: PoolRecord, arguments: tuple[str, ...], sentence: str
) -> None:
    Path("bad.jsonl").write_text(f"{line_of(known)}\n{{}}\n")
    ran = cli("pool", *arguments)
    assert ran.status == 2
    assert ran.err.startswith(f"cupilot: {sentence}")
    assert ran.err.count("\n") == 1


def test_a_file_that_is_no_pool_is_status_2(cli: Cli) -> None:
    Path("text.sqlite").write_text("no database, whatever its name says; " * 10)
    ran = cli("pool", "list", "--pool", "text.sqlite")
    assert ran.status == 2
    assert ran.err == "cupilot: the pool text.sqlite is damaged: file is not a database\n"
