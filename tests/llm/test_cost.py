"""Prices and totals."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from cupilot.contracts import Reply
from cupilot.llm import Spent, Usage, price_usd


def test_prices_come_from_the_table() -> None:
    pytest.importorskip("genai_prices", reason="needs cupilot[llm]")
    for model in ("openai/gpt-4o", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-pro", "deepseek/deepseek-chat"):
        once, twice = price_usd(model, 1000, 1000), price_usd(model, 2000, 2000)
        assert once is not None
        assert 0 < once < 1
        assert twice == pytest.approx(2 * once)


@pytest.mark.parametrize("model", ["openai/no-such-model", "local/m", "replay/examples", "scripted", ""])
def test_an_unknown_price_is_not_guessed(model: str) -> None:
    assert price_usd(model, 1000, 1000) is None


def test_a_local_server_is_free() -> None:
    assert price_usd("ollama/qwen3", 1000, 1000) == 0.0


def test_without_the_table_prices_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert price_usd("openai/gpt-4o", 1000, 1000) is None
    assert price_usd("vllm/m", 1000, 1000) == 0.0


def test_totals() -> None:
    usage = Usage()
    usage.add(Reply("", 10, 1, "m"), 0.5)
    usage.add(Reply("", 20, 2, "m", estimated=True), None)
    assert usage.spent == Spent(2, 30, 3, 0.5, unpriced_calls=1, estimated_calls=1)
    assert usage.spent.tokens == 33


def test_totals_from_many_threads() -> None:
    usage = Usage()
    with ThreadPoolExecutor(8) as pool:
        for _ in range(4000):
            pool.submit(usage.add, Reply("", 1, 2, "m"), 0.25)
    assert usage.spent == Spent(4000, 4000, 8000, 1000.0)
