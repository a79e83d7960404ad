"""The providers, read from `providers.toml`, and the names by which a model is chosen.

A name is ``provider/model`` or ``provider/model@URL``; the model's part may itself hold slashes.
The URL only says where the server is: it is no part of the model's name, and so in no recording.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from cupilot.errors import ModelError
from cupilot.records import from_plain

FORMS = ("json_schema", "json_object", "none")


@dataclass(frozen=True)
class Provider:
    """One table of `providers.toml`, where the entries are explained."""

    title: str
    sdk: str
    base_url: str
    key: str
    needs_key: bool
    structured: str
    max_tokens_name: str
    thinking_tokens: int
    temperature: bool
    seed: bool
    prices: str


@dataclass(frozen=True)
class Choice:
    """What ``--model`` says: the provider, the model's name there, and where the server is."""

    provider_name: str
    provider: Provider
    model: str
    base_url: str

    @property
    def name(self) -> str:
        return f"{self.provider_name}/{self.model}"


@cache
def providers() -> Mapping[str, Provider]:
    """All providers by name."""
    tables = tomllib.loads(resources.files("cupilot.llm").joinpath("providers.toml").read_text(encoding="utf-8"))
    return MappingProxyType({name: from_plain(Provider, table, f"providers.{name}") for name, table in tables.items()})


def choose(name: str, base_url: str | None = None) -> Choice:
    """Take a model's name apart; a ``base_url`` given beside it counts before one in the name."""
    provider_name, slash, rest = name.partition("/")
    known = providers()
    if provider_name not in known:
        raise ModelError(f"unknown provider {provider_name!r} in {name!r}; known are {', '.join(known)}")
    # only before a URL, since some providers have names such as model@date
    model, *urls = re.split(r"@(?=https?://)", rest, maxsplit=1)
    if not slash or not model:
        raise ModelError(f"{name!r} names no model; write {provider_name}/NAME")
    provider = known[provider_name]
    url = base_url or (urls[0] if urls else provider.base_url)
    if not re.match(r"https?://[^/]", url):
        hint = f"write {provider_name}/{model}@http://HOST:PORT/v1" if not url else f"{url!r} is not a web address"
        raise ModelError(f"{name!r} needs the address of a server: {hint}")
    return Choice(provider_name, provider, model, url)


def key_names() -> tuple[str, ...]:
    """The environment variables that may hold keys, for the one place that reads them."""
    return tuple(dict.fromkeys(provider.key for provider in providers().values()))
