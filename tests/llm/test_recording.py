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
from cupilot.llm import CallLog, JsonLinesCallLog, Recorder, Replay, Scripted, SqliteCallLog, Usage, call_key
from cupilot.testing import ModelContract

ASKED = Request(
    (Message("system", "# role: translator\nYou write kernels."), Message("user", "Task: softmax\nWidth: 4\nGo.")),
    schema='{"type":"object"}',
    temperature=0.7,
    sample=2,
)
OTHER = Request((Message("system", "# role: revisor\nYou repair kernels."), Message("user", "Task: softmax")))

Open = Callable[..., CallLog]


@pytest.fixture(params=["sqlite", "json lines"])
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same log each time."""
    if request.param == "sqlite":
        return lambda: SqliteCallLog(tmp_path / "run.sqlite")
    return lambda: JsonLinesCallLog(tmp_path / "calls.jsonl")


class TestReplay(ModelContract):
    @pytest.fixture
    def model(self, open_log: Open) -> Model:
        Recorder(Scripted(["Hello."]), open_log()).complete(self.request_made)
        return Replay(open_log(), "scripted")

    @pytest.fixture
    def failing_model(self, open_log: Open) -> Model:
        return Replay(open_log(), "scripted")


def test_what_was_recorded_is_replayed(open_log: Open) -> None:
    reply = Reply("x ünï 𝄞 \x00 \ud800", 7, 5, "scripted", cut=True, estimated=True)

    class Once(Scripted):
        def complete(self, request: Request) -> Reply:
            return reply

    assert Recorder(Once([]), open_log()).complete(ASKED) == reply
    assert Replay(open_log(), "scripted").complete(ASKED) == reply


def test_the_same_request_is_asked_once(open_log: Open) -> None:
    model, usage = Scripted(["one", "two"]), Usage()
    recorder = Recorder(model, open_log(), usage)
    assert [recorder.complete(ASKED).text for _ in range(3)] == ["one"] * 3
    assert len(model.requests) == 1
    assert Recorder(Scripted([]), open_log()).complete(ASKED).text == "one", "nor after a restart"
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


def recorded(log: CallLog) -> Replay:
    recorder = Recorder(Scripted(["one", "two", "three"]), log)
    for request in (OTHER, ASKED, replace(OTHER, sample=1)):
        recorder.complete(request)
    return Replay(log, "scripted")


def test_a_miss_shows_the_line_that_changed(tmp_path: Path) -> None:
    replay = recorded(SqliteCallLog(tmp_path / "run.sqlite"))
    edited = replace(ASKED, messages=(ASKED.messages[0], Message("user", "Task: softmax\nWidth: 8\nGo.")))
    with pytest.raises(ModelError) as caught:
        replay.complete(edited)
    assert str(caught.value) == (
        "scripted: no recorded reply to this request; the nearest one (translator) differs in"
        " message 2 (user), line 2: 'Width: 4' was recorded, 'Width: 8' is asked"
    )


def test_a_miss_in_a_open_log_digests_names_the_message(tmp_path: Path) -> None:
    replay = recorded(JsonLinesCallLog(tmp_path / "calls.jsonl"))
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
def test_a_miss_names_the_parameter_that_changed(open_log: Open, asked: Request, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        recorded(open_log()).complete(asked)


def test_a_miss_in_a_long_line_shows_the_place(tmp_path: Path) -> None:
    log = SqliteCallLog(tmp_path / "run.sqlite")
    Recorder(Scripted(["one"]), log).complete(Request((Message("user", "x" * 5000 + "old"),)))
    with pytest.raises(ModelError, match=r"'x{40}old' was recorded, 'x{40}new' is asked"):
        Replay(log, "scripted").complete(Request((Message("user", "x" * 5000 + "new"),)))


def test_a_miss_because_of_the_model_or_of_an_empty_log(open_log: Open) -> None:
    with pytest.raises(ModelError, match="nothing is recorded at all"):
        Replay(open_log(), "other/m").complete(ASKED)
    recorded(open_log())
    with pytest.raises(ModelError, match=r"the nearest one \(translator\) was made to scripted"):
        Replay(open_log(), "other/m").complete(ASKED)


def test_threads_that_ask_the_same_go_on_with_one_reply(open_log: Open) -> None:
    meet = threading.Barrier(4)

    class Slow:
        name = "slow"

        def complete(self, request: Request) -> Reply:
            meet.wait(timeout=20)
            return Reply(threading.current_thread().name, 1, 1, "slow")

    recorder, usage, texts = Recorder(Slow(), open_log(), total := Usage()), total, []
    threads = [threading.Thread(target=lambda: texts.append(recorder.complete(ASKED).text)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(texts) == 4
    assert len(set(texts)) == 1
    assert usage.spent.calls == 4, "all four were paid"


def test_price_and_tokens_are_in_the_log(tmp_path: Path) -> None:
    usage = Usage()
    recorder = Recorder(Scripted(["a b c"]), SqliteCallLog(tmp_path / "b.sqlite"), usage, price=lambda *tokens: 0.25)
    recorder.complete(ASKED)
    connection = sqlite3.connect(tmp_path / "b.sqlite")
    row = connection.execute("SELECT role, model, output_tokens, price_usd FROM llm_call").fetchone()
    connection.close()
    assert row == ("translator", "scripted", 3, 0.25)
    assert usage.spent.price_usd == 0.25


# --- the logs themselves --------------------------------------------------------------------


def test_a_log_beside_other_tables(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA journal_mode = WAL; CREATE TABLE run (x); PRAGMA user_version = 1")
    log = SqliteCallLog(path)
    Recorder(Scripted(["one"]), log).complete(ASKED)
    connection.execute("INSERT INTO run VALUES (1)")
    connection.commit()
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()
    assert Replay(SqliteCallLog(path, readonly=True), "scripted").complete(ASKED).text == "one"


def test_nothing_to_replay(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        SqliteCallLog(tmp_path / "no.sqlite", readonly=True)
    sqlite3.connect(tmp_path / "empty.sqlite").close()
    with pytest.raises(StoreError, match="holds no recorded calls"):
        SqliteCallLog(tmp_path / "empty.sqlite", readonly=True)


def test_files_that_are_no_logs(tmp_path: Path) -> None:
    path = tmp_path / "no.log"
    path.write_text("not a log, " * 100 + "\n")
    with pytest.raises(StoreError, match="is damaged: file is not a database"):
        SqliteCallLog(path)
    with pytest.raises(StoreError, match=r"no\.log, line 1"):
        JsonLinesCallLog(path)


def test_a_line_that_was_not_finished_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    recorded(JsonLinesCallLog(path))
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    log = JsonLinesCallLog(path)
    assert len(list(log.calls())) == 2
    Recorder(Scripted(["again"]), log).complete(replace(OTHER, sample=1))
    lines = path.read_text().splitlines()
    assert [json.loads(line)["reply"]["text"] for line in lines] == ["one", "two", "again"]


def test_json_lines_hold_no_prompts(tmp_path: Path) -> None:
    recorded(JsonLinesCallLog(tmp_path / "calls.jsonl"))
    text = (tmp_path / "calls.jsonl").read_text()
    assert "softmax" not in text
    assert "# role: translator" in text


def test_an_unwritable_log_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        Recorder(Scripted(["x"]), JsonLinesCallLog(tmp_path / "no" / "calls.jsonl")).complete(ASKED)
    with pytest.raises(StoreError, match="cannot be read or written"):
        SqliteCallLog(tmp_path / "no" / "run.sqlite")
