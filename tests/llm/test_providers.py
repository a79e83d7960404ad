"""The table of providers, the names of models, and what opening one needs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable

import pytest

from cupilot.errors import MissingExtra, MissingKey, UserError
from cupilot.llm import key_names, open_model, providers
from cupilot.llm.providers import RESPONSE_FORMATS, parse_model_name, without_address

EXPECTED = {
    "openai", "deepseek", "openrouter", "gemini", "anthropic", "vllm", "ollama", "llamacpp", "lmstudio", "local",
}  # fmt: skip


def test_the_table_is_complete() -> None:
    assert set(providers()) == EXPECTED
    for provider in providers().values():
        assert provider.response_format in RESPONSE_FORMATS
        assert importlib.util.find_spec(f"cupilot.llm.dialects.{provider.sdk}") is not None
        assert provider.key.endswith("_API_KEY")
    assert len(key_names()) == len(EXPECTED)


@pytest.mark.parametrize(
    ("name", "given", "model", "url"),
    [
        ("openai/gpt-5", None, "gpt-5", "https://api.openai.com/v1"),
        ("openrouter/deepseek/deepseek-r1:free", None, "deepseek/deepseek-r1:free", "https://openrouter.ai/api/v1"),
        ("vllm/Qwen/Qwen3@http://box:8000/v1", None, "Qwen/Qwen3", "http://box:8000/v1"),
        ("local/m@https://box/v1", "http://other/v1", "m", "http://other/v1"),
        ("local/m@20250101", "http://box/v1", "m@20250101", "http://box/v1"),
    ],
)
def test_names(name: str, given: str | None, model: str, url: str) -> None:
    choice = parse_model_name(name, given)
    assert (choice.model, choice.base_url) == (model, url)
    assert choice.name == f"{choice.provider_name}/{model}", "the address is no part of the name"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpt-5", "unknown provider 'gpt-5'.*known are openai, deepseek"),
        ("nobody/m", "unknown provider 'nobody'"),
        ("openai", "names no model; write openai/NAME"),
        ("openai/", "names no model"),
        ("local/m", "needs the address of a server: write local/m@http://HOST:PORT/v1"),
    ],
)
def test_names_that_are_wrong(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse_model_name(name)


def test_an_address_that_is_none() -> None:
    with pytest.raises(UserError, match="'ftp://x' is not a web address"):
        parse_model_name("local/m", "ftp://x")


@pytest.mark.parametrize("keys", [{}, {"OPENAI_API_KEY": "  "}, {"DEEPSEEK_API_KEY": "x"}])
def test_a_key_that_is_not_set(keys: dict[str, str]) -> None:
    with pytest.raises(
        MissingKey, match="openai/gpt-5 needs a key: the environment variable OPENAI_API_KEY is not set"
    ):
        open_model("openai/gpt-5", keys=keys)


def test_a_key_that_cannot_be_sent_is_not_shown() -> None:
    with pytest.raises(MissingKey, match="cannot be a key") as caught:
        open_model("openai/gpt-5", keys={"OPENAI_API_KEY": "sk-\nsecret"})
    assert "secret" not in str(caught.value)


def test_a_missing_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingExtra, match=r"local/m needs the Python package 'openai': install cupilot\[llm\]"):
        open_model("local/m@http://127.0.0.1:1/v1", keys={})


def test_importing_the_package_imports_no_sdk() -> None:
    program = """
import sys, cupilot.llm
print([name for name in ("openai", "anthropic", "genai_prices", "pydantic", "jinja2") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_provider_opens(name: str) -> None:
    provider = providers()[name]
    pytest.importorskip(provider.sdk, reason="needs cupilot[llm]")
    url = provider.base_url or "http://127.0.0.1:1/v1"
    assert open_model(f"{name}/m", keys={provider.key: "sk-x"}, base_url=url).name == f"{name}/m"


def test_the_table_of_prices_knows_the_paid_providers() -> None:
    prices = pytest.importorskip("genai_prices", reason="needs cupilot[llm]")
    find: Callable[..., object] = prices.data_snapshot.get_snapshot().find_provider
    for provider in providers().values():
        if provider.prices not in ("", "free"):
            assert find(None, provider.prices, None) is not None


def test_recordings_do_not_have_the_address() -> None:
    assert without_address("local/reader@http://127.0.0.1:1/v1") == parse_model_name("local/reader@http://h/v1").name
    assert without_address("openrouter/a/b@2026-01-01") == "openrouter/a/b@2026-01-01"
