"""Recording calls, replaying them, and saying what changed."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cupilot.contracts import Message, Model, Reply, Request
from cupilot.errors import ModelError, StoreError
from cupilot.llm import Answer, Book, JsonLinesBook, Recorder, Replay, Scripted, SqliteBook, Usage, call_key
from cupilot.testing import ModelContract

ASKED = Request(
    (Message("system", "# role: translator\nYou write kernels."), Message("user", "Task: softmax\nWidth: 4\nGo.")),
    schema='{"type":"object"}',
    temperature=0.7,
    sample=2,
)
OTHER = Request((Message("system", "# role: revisor\nYou repair kernels."), Message("user", "Task: softmax")))

Open = Callable[..., Book]


@pytest.fixture(params=["sqlite", "json lines"])
def book_of(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same book each time."""
    if request.param == "sqlite":
        return lambda: SqliteBook(tmp_path / "run.sqlite")
    return lambda: JsonLinesBook(tmp_path / "calls.jsonl")


class TestReplay(ModelContract):
    @pytest.fixture
    def model(self, book_of: Open) -> Model:
        Recorder(Scripted(["Hello."]), book_of()).complete(self.request_made)
        return Replay(book_of(), "scripted")

    @pytest.fixture
    def failing_model(self, book_of: Open) -> Model:
        return Replay(book_of(), "scripted")


def test_what_was_recorded_is_replayed(book_of: Open) -> None:
    reply = Answer("x ünï 𝄞 \x00 \ud800", 7, 5, "scripted", cut=True, estimated=True)

    class Once(Scripted):
        def complete(self, request: Request) -> Reply:
            return reply

    assert Recorder(Once([]), book_of()).complete(ASKED) == reply
    assert Replay(book_of(), "scripted").complete(ASKED) == reply


def test_the_same_request_is_asked_once(book_of: Open) -> None:
    model, usage = Scripted(["one", "two"]), Usage()
    recorder = Recorder(model, book_of(), usage)
    assert [recorder.complete(ASKED).text for _ in range(3)] == ["one"] * 3
    assert len(model.requests) == 1
    assert Recorder(Scripted([]), book_of()).complete(ASKED).text == "one", "nor after a restart"
    assert usage.spent.calls == 1


@pytest.mark.parametrize(
    "changed",
    [
        replace(ASKED, sample=3),
        replace(ASKED, temperature=0.0),
        replace(ASKED, max_tokens=1),
        replace(ASKED, schema=""),
        replace(ASKED, messages=ASKED.messages[:1]),
        replace(ASKED, messages=(*ASKED.messages[:1], Message("assistant", ASKED.messages[1].text))),
    ],
)
def test_every_part_of_a_request_is_in_its_key(changed: Request) -> None:
    assert call_key("m", changed) != call_key("m", ASKED)
    assert call_key("m", ASKED) == call_key("m", replace(ASKED))
    assert call_key("other", ASKED) != call_key("m", ASKED)


def recorded(book: Book) -> Replay:
    recorder = Recorder(Scripted(["one", "two", "three"]), book)
    for request in (OTHER, ASKED, replace(OTHER, sample=1)):
        recorder.complete(request)
    return Replay(book, "scripted")


def test_a_miss_shows_the_line_that_changed(tmp_path: Path) -> None:
    replay = recorded(SqliteBook(tmp_path / "run.sqlite"))
    edited = replace(ASKED, messages=(ASKED.messages[0], Message("user", "Task: softmax\nWidth: 8\nGo.")))
    with pytest.raises(ModelError) as caught:
        replay.complete(edited)
    assert str(caught.value) == (
        "scripted: no recorded reply to this request; the nearest one (translator) differs in"
        " message 2 (user), line 2: 'Width: 4' was recorded, 'Width: 8' is asked"
    )


def test_a_miss_in_a_book_of_digests_names_the_message(tmp_path: Path) -> None:
    replay = recorded(JsonLinesBook(tmp_path / "calls.jsonl"))
    edited = replace(ASKED, messages=(ASKED.messages[0], Message("user", "Task: softmax\nWidth: 8\nGo.")))
    with pytest.raises(ModelError, match=r"the nearest one \(translator\) differs in message 2 \(user\)$"):
        replay.complete(edited)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (replace(ASKED, sample=9), r"\(translator\) differs in sample: 2 recorded, 9 asked"),
        (replace(ASKED, temperature=0.1), r"differs in temperature: 0.7 recorded, 0.1 asked"),
        (replace(ASKED, schema="{}"), r"differs in schema: '{\"type\":\"object\"}' recorded, '{}' asked"),
        (
            replace(OTHER, messages=(*OTHER.messages, Message("user", "more"))),
            r"\(revisor\) differs in the number of messages: 2 recorded, 3 asked",
        ),
    ],
)
def test_a_miss_names_the_parameter_that_changed(book_of: Open, asked: Request, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        recorded(book_of()).complete(asked)


def test_a_miss_in_a_long_line_shows_the_place(tmp_path: Path) -> None:
    book = SqliteBook(tmp_path / "run.sqlite")
    Recorder(Scripted(["one"]), book).complete(Request((Message("user", "x" * 5000 + "old"),)))
    with pytest.raises(ModelError, match=r"'x{40}old' was recorded, 'x{40}new' is asked"):
        Replay(book, "scripted").complete(Request((Message("user", "x" * 5000 + "new"),)))


def test_a_miss_because_of_the_model_or_of_an_empty_book(book_of: Open) -> None:
    with pytest.raises(ModelError, match="nothing is recorded at all"):
        Replay(book_of(), "other/m").complete(ASKED)
    recorded(book_of())
    with pytest.raises(ModelError, match=r"the nearest one \(translator\) was made to scripted"):
        Replay(book_of(), "other/m").complete(ASKED)


def test_threads_that_ask_the_same_go_on_with_one_reply(book_of: Open) -> None:
    meet = threading.Barrier(4)

    class Slow:
        name = "slow"

        def complete(self, request: Request) -> Reply:
            meet.wait(timeout=20)
            return Reply(threading.current_thread().name, 1, 1, "slow")

    recorder, usage, texts = Recorder(Slow(), book_of(), total := Usage()), total, []
    threads = [threading.Thread(target=lambda: texts.append(recorder.complete(ASKED).text)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(texts) == 4
    assert len(set(texts)) == 1
    assert usage.spent.calls == 4, "all four were paid"


def test_price_and_tokens_are_in_the_book(tmp_path: Path) -> None:
    usage = Usage()
    recorder = Recorder(Scripted(["a b c"]), SqliteBook(tmp_path / "b.sqlite"), usage, price=lambda *tokens: 0.25)
    recorder.complete(ASKED)
    connection = sqlite3.connect(tmp_path / "b.sqlite")
    row = connection.execute("SELECT role, model, output_tokens, price_usd FROM llm_call").fetchone()
    connection.close()
    assert row == ("translator", "scripted", 3, 0.25)
    assert usage.spent.price_usd == 0.25


# --- the books themselves -------------------------------------------------------------------


def test_a_book_beside_other_tables(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA journal_mode = WAL; CREATE TABLE run (x); PRAGMA user_version = 1")
    book = SqliteBook(path)
    Recorder(Scripted(["one"]), book).complete(ASKED)
    connection.execute("INSERT INTO run VALUES (1)")
    connection.commit()
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()
    assert Replay(SqliteBook(path, readonly=True), "scripted").complete(ASKED).text == "one"


def test_nothing_to_replay(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        SqliteBook(tmp_path / "no.sqlite", readonly=True)
    sqlite3.connect(tmp_path / "empty.sqlite").close()
    with pytest.raises(StoreError, match="holds no recorded calls"):
        SqliteBook(tmp_path / "empty.sqlite", readonly=True)


def test_files_that_are_no_books(tmp_path: Path) -> None:
    path = tmp_path / "no.book"
    path.write_text("not a book, " * 100 + "\n")
    with pytest.raises(StoreError, match="is damaged: file is not a database"):
        SqliteBook(path)
    with pytest.raises(StoreError, match=r"no\.book, line 1"):
        JsonLinesBook(path)


def test_a_line_that_was_not_finished_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    recorded(JsonLinesBook(path))
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    book = JsonLinesBook(path)
    assert len(list(book.calls())) == 2
    Recorder(Scripted(["again"]), book).complete(replace(OTHER, sample=1))
    lines = path.read_text().splitlines()
    assert [json.loads(line)["reply"]["text"] for line in lines] == ["one", "two", "again"]


def test_json_lines_hold_no_prompts(tmp_path: Path) -> None:
    recorded(JsonLinesBook(tmp_path / "calls.jsonl"))
    text = (tmp_path / "calls.jsonl").read_text()
    assert "softmax" not in text
    assert "# role: translator" in text


def test_an_unwritable_book_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        Recorder(Scripted(["x"]), JsonLinesBook(tmp_path / "no" / "calls.jsonl")).complete(ASKED)
    with pytest.raises(StoreError, match="cannot be read or written"):
        SqliteBook(tmp_path / "no" / "run.sqlite")
