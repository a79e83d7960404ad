"""Caps are looked at before each call; a run that goes on has spent what it spent before."""

from __future__ import annotations

from pathlib import Path

import pytest

from cupilot.contracts import Message, Request
from cupilot.llm import CappedModel, OverBudget, Recorder, Scripted, SqliteCallLog, Usage


def request(sample: int) -> Request:
    return Request((Message("user", "one two three"),), sample=sample)


@pytest.mark.parametrize(
    ("tokens", "usd", "said"), [(8, None, "8 tokens are spent"), (None, 0.02, "0.02 USD are spent"), (None, None, "")]
)
def test_no_call_is_made_once_a_cap_is_reached(
    tmp_path: Path, tokens: int | None, usd: float | None, said: str
) -> None:
    model, usage = Scripted(["a"] * 5), Usage()
    capped = CappedModel(model, usage, tokens, usd)
    recorder = Recorder(capped, SqliteCallLog(tmp_path / "calls.sqlite"), usage, lambda *call: 0.01)
    assert capped.name == model.name
    recorder.complete(request(0))
    recorder.complete(request(1))
    if said:
        with pytest.raises(OverBudget, match=said):
            recorder.complete(request(2))
    else:
        recorder.complete(request(2))
    assert len(model.requests) == (2 if said else 3)
    assert recorder.complete(request(0)).text == "a", "what was recorded is free"


def test_what_was_paid_before_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    Recorder(Scripted(["a"]), SqliteCallLog(path)).complete(request(0))
    usage = Usage()
    again = Recorder(CappedModel(Scripted([]), usage, 4, None), SqliteCallLog(path), usage)
    for _ in range(3):
        again.complete(request(0))
    assert (usage.spent.calls, usage.spent.tokens) == (1, 4)
    with pytest.raises(OverBudget):
        again.complete(request(1))
