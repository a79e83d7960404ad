"""Transcripts: replies by role and sample."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cupilot.contracts import Message, Model, Request
from cupilot.errors import DataError, ModelError
from cupilot.llm import LabelledReplay
from cupilot.testing import ModelContract


def written(tmp_path: Path, *lines: dict[str, Any]) -> LabelledReplay:
    path = tmp_path / "softmax.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    return LabelledReplay(path)


def asked(role: str, sample: int = 0, text: str = "Go.", attempts: int = 0) -> Request:
    turns = (Message("assistant", "no"), Message("user", "again")) * attempts
    return Request((Message("system", f"# role: {role}\nRules."), Message("user", text), *turns), sample=sample)


class TestLabelledReplay(ModelContract):
    request_made = asked("translator")

    @pytest.fixture
    def model(self, tmp_path: Path) -> Model:
        return written(tmp_path, {"role": "translator", "text": "Hello."})

    @pytest.fixture
    def failing_model(self, tmp_path: Path) -> Model:
        return written(tmp_path, {"role": "revisor", "text": "Hello."})


def test_in_order_per_role_and_not_in_circles(tmp_path: Path) -> None:
    model = written(
        tmp_path,
        {"role": "translator", "text": "t1", "note": "good"},
        {"role": "revisor", "text": "r1"},
        {"role": "translator", "text": "t2"},
    )
    assert model.name == "replay/softmax"
    assert model.complete(asked("translator", 0)).text == "t1"
    assert model.complete(asked("translator", 1)).text == "t2"
    assert model.complete(asked("revisor", 0)).text == "r1"
    assert model.complete(asked("translator", 1)).text == "t2", "the same request has the same reply"
    with pytest.raises(ModelError, match=r"softmax\.jsonl has no reply left for translator, sample 7$"):
        model.complete(asked("translator", 7))


def test_by_sample_in_any_order(tmp_path: Path) -> None:
    lines = [{"role": "translator", "sample": n, "text": f"t{n}"} for n in range(50)]
    requests = [asked("translator", n) for n in reversed(range(50))]
    for _ in range(3):
        model = written(tmp_path, *lines)
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(model.complete, requests))
        assert [reply.text for reply in replies] == [f"t{n}" for n in reversed(range(50))]


def test_asking_again_and_several_requests_of_one_sample(tmp_path: Path) -> None:
    model = written(
        tmp_path,
        {"role": "revisor", "sample": 4, "text": "first"},
        {"role": "revisor", "sample": 4, "attempt": 1, "text": "asked again"},
        {"role": "revisor", "sample": 4, "text": "second"},
        {"role": "revisor", "text": "any"},
    )
    assert model.complete(asked("revisor", 4, "error A")).text == "first"
    assert model.complete(asked("revisor", 4, "error A", attempts=1)).text == "asked again"
    assert model.complete(asked("revisor", 4, "error B")).text == "second"
    assert model.complete(asked("revisor", 4, "error C")).text == "any"
    with pytest.raises(ModelError, match="sample 4, asked again 1 times"):
        model.complete(asked("revisor", 4, "error C", attempts=1))


def test_replies_in_files_and_repeated_ones(tmp_path: Path) -> None:
    (tmp_path / "kernel.md").write_text("```cuda\nint x;\n```\n")
    model = written(
        tmp_path,
        {"role": "a", "file": "kernel.md"},
        {"role": "b", "text": "ab", "repeat": 1000},
    )
    assert model.complete(asked("a")).text == "```cuda\nint x;\n```\n"
    assert model.complete(asked("b")).text == "ab" * 1000


def test_a_request_without_a_role(tmp_path: Path) -> None:
    model = written(tmp_path, {"role": "a", "text": "x"})
    for messages in ((Message("user", "# role: a"),), (Message("system", "Rules.\n# role: a"), Message("user", "x"))):
        with pytest.raises(ModelError, match="does not begin with '# role: NAME'"):
            model.complete(Request(messages))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"role": "a"}, "line 1: give either text or file"),
        ({"role": "a", "text": "x", "file": "y"}, "give either text or file"),
        ({"role": "a", "file": "../y"}, "has to be a file beside"),
        ({"role": "a", "file": "none.md"}, "none.md cannot be read"),
        ({"role": "a", "text": "x", "smaple": 1}, "line 1: unknown key 'smaple'"),
    ],
)
def test_transcripts_with_mistakes(tmp_path: Path, line: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        written(tmp_path, line)


def test_a_transcript_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        LabelledReplay(tmp_path / "none.jsonl")
    (tmp_path / "x.jsonl").write_text("{")
    with pytest.raises(DataError, match=r"x\.jsonl, line 1"):
        LabelledReplay(tmp_path / "x.jsonl")
